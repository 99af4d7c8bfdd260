"""ElectLeaders: elects leaders for the given partitions, or for all partitions.

Version 0 has only preferred elections and no error for the whole request.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Essential, Int8, Int16, Int32, Since


class ElectionType(IntEnum):
    """PREFERRED elects the first replica, if it is in sync. UNCLEAN elects a live one, if no in-sync one is alive."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectLeadersTopic(NamedTuple):
    topic: str
    partitions: tuple[Int32, ...]


class ElectLeadersRequest(ApiMessage, frozen=True, kw_only=True):
    """`topic_partitions=None` requests all partitions."""

    election_type: Annotated[Int8, Since(1), Essential] = ElectionType.PREFERRED
    topic_partitions: tuple[ElectLeadersTopic, ...] | None
    timeout_ms: Int32 = 60_000


class ElectLeadersPartitionResult(NamedTuple):
    partition_id: Int32
    error_code: Int16 = 0
    error_message: str | None = None


class ElectLeadersTopicResult(NamedTuple):
    topic: str
    partition_result: tuple[ElectLeadersPartitionResult, ...]


class ElectLeadersResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(1), Essential] = 0
    replica_election_results: tuple[ElectLeadersTopicResult, ...] = ()
