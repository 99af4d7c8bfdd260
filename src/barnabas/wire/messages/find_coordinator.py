"""FindCoordinator: the coordinator of a group or a transactional id. Requests have several keys from version 4 on."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Essential, Int8, Int16, Int32, Since, Until


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class FindCoordinatorRequest(ApiMessage, frozen=True, kw_only=True):
    key: Annotated[str, Until(3), Essential] = ""
    key_type: Annotated[Int8, Since(1), Essential] = 0
    coordinator_keys: Annotated[tuple[str, ...], Since(4), Essential] = ()


class CoordinatorResult(NamedTuple):
    """The coordinator of one key, or an error. Kafka calls it Coordinator."""

    key: str
    node_id: Int32 = -1
    host: str = ""
    port: Int32 = -1
    error_code: Int16 = 0
    error_message: str | None = None


class FindCoordinatorResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Annotated[Int16, Until(3), Essential] = 0
    error_message: Annotated[str | None, Since(1), Until(3)] = None
    node_id: Annotated[Int32, Until(3), Essential] = 0
    host: Annotated[str, Until(3), Essential] = ""
    port: Annotated[Int32, Until(3), Essential] = 0
    coordinators: Annotated[tuple[CoordinatorResult, ...], Since(4), Essential] = ()
