"""DescribeTopicPartitions: the partitions of topics, page by page.

A cursor names the first partition of the next page.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from barnabas.model import ZERO_ID
from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Int16, Int32
from barnabas.wire.messages.metadata import NO_OPERATIONS


class TopicCursor(NamedTuple):
    topic_name: str
    partition_index: Int32


class DescribeTopicPartitionsTopic(NamedTuple):
    name: str


class DescribeTopicPartitionsRequest(ApiMessage, frozen=True, kw_only=True):
    """Without `topics`, all topics are requested."""

    topics: tuple[DescribeTopicPartitionsTopic, ...] = ()
    response_partition_limit: Int32 = 2000
    cursor: TopicCursor | None = None


class DescribeTopicPartitionsResponsePartition(NamedTuple):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    eligible_leader_replicas: tuple[Int32, ...] | None = None
    last_known_elr: tuple[Int32, ...] | None = None
    offline_replicas: tuple[Int32, ...] = ()


class DescribeTopicPartitionsResponseTopic(NamedTuple):
    error_code: Int16
    name: str | None
    topic_id: UUID = ZERO_ID
    is_internal: Bool = False
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = ()
    topic_authorized_operations: Int32 = NO_OPERATIONS


class DescribeTopicPartitionsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = ()
    next_cursor: TopicCursor | None = None
