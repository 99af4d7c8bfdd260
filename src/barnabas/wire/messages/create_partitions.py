"""CreatePartitions: adds partitions to existing topics."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Int16, Int32


class CreatePartitionsAssignment(NamedTuple):
    broker_ids: tuple[Int32, ...]


class CreatePartitionsTopic(Struct, frozen=True, kw_only=True):
    """`count` is the new total. `assignments` has an element per new partition; None lets the broker assign them.

    It is not a NamedTuple, since every tuple has a method `count`.
    """

    name: str
    count: Int32
    assignments: tuple[CreatePartitionsAssignment, ...] | None = None


class CreatePartitionsRequest(ApiMessage, frozen=True, kw_only=True):
    topics: tuple[CreatePartitionsTopic, ...]
    timeout_ms: Int32
    validate_only: Bool = False


class CreatePartitionsTopicResult(NamedTuple):
    name: str
    error_code: Int16 = 0
    error_message: str | None = None


class CreatePartitionsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: tuple[CreatePartitionsTopicResult, ...] = ()
