"""ControlledShutdown: before it stops, a broker asks the controller to elect other leaders for its partitions.

The response has the partitions that the broker still leads. The broker retries until there are none, or gives up.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int16, Int32, Int64, Since
from barnabas.wire.messages.control_plane import UNKNOWN_BROKER_EPOCH


class ControlledShutdownRequest(ApiMessage, frozen=True, kw_only=True):
    broker_id: Int32
    broker_epoch: Annotated[Int64, Since(2)] = UNKNOWN_BROKER_EPOCH


class RemainingPartition(NamedTuple):
    topic_name: str
    partition_index: Int32


class ControlledShutdownResponse(ApiMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    remaining_partitions: tuple[RemainingPartition, ...] = ()
