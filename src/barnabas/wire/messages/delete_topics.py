"""DeleteTopics: deletes topics by name and, from version 6 on, also by id."""

from __future__ import annotations

from typing import Annotated, NamedTuple
from uuid import UUID

from barnabas.model import ZERO_ID
from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Essential, Int16, Int32, NullableSince, Since, Until


class DeleteTopicState(NamedTuple):
    name: str | None = None
    topic_id: UUID = ZERO_ID


class DeleteTopicsRequest(ApiMessage, frozen=True, kw_only=True):
    topics: Annotated[tuple[DeleteTopicState, ...], Since(6), Essential] = ()
    topic_names: Annotated[tuple[str, ...], Until(5)] = ()
    timeout_ms: Int32


class DeletableTopicResult(NamedTuple):
    name: Annotated[str | None, NullableSince(6)]
    topic_id: Annotated[UUID, Since(6)] = ZERO_ID
    error_code: Int16 = 0
    error_message: Annotated[str | None, Since(5)] = None


class DeleteTopicsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    responses: tuple[DeletableTopicResult, ...] = ()
