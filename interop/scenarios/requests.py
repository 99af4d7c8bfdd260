"""Builders for the requests that the scripts use most."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from crc32c import crc32c

from barnabas.batch.compression import Compression
from barnabas.batch.records import Record, build_batch
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from interop.scenarios.step import Ask, Request, Step
from tests.compatibility.raw import batch_of, fetch_request, produce_request

THEN = 1_700_000_000_000
"""A time in the past, the same in every run."""
FAR = 4_000_000_000_000
"""A time that has not come."""
COUNT_AT, LAST_DELTA_AT, CRC_AT, ATTRIBUTES_AT, MAGIC_AT = 57, 23, 17, 21, 16
BATCH_HEADER = 61


def ask(name: str, request: Request, version: int | None = None) -> Step:
    return Step(name=name, action=Ask(request=request, version=version))


# ---- topics


def new_topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    *,
    configs: Mapping[str, str | None] | None = None,
    assignments: Mapping[int, tuple[int, ...]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=tuple(
            CreatableReplicaAssignment(index, brokers)
            for index, brokers in (assignments or {}).items()
        ),
        configs=tuple(CreatableTopicConfig(*pair) for pair in (configs or {}).items()),
    )


def create(*topics: CreatableTopic, **options: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=topics, **options)


def delete(*topics: str, version: int = 6) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=topics, timeout_ms=30_000)
    return DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name) for name in topics), timeout_ms=30_000
    )


def grown(name: str, count: int, *replicas: tuple[int, ...]) -> CreatePartitionsTopic:
    """A topic to be expanded to `count` partitions, with optional replicas for the new ones."""
    lists = tuple(CreatePartitionsAssignment(brokers) for brokers in replicas)
    return CreatePartitionsTopic(name=name, count=count, assignments=lists or None)


def grow(
    *topics: CreatePartitionsTopic, timeout_ms: int = 30_000, validate_only: bool = False
) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=topics, timeout_ms=timeout_ms, validate_only=validate_only
    )


def metadata(*topics: str, create: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in topics),
        allow_auto_topic_creation=create,
    )


def describe(kind: int, name: str, *keys: str, **options: bool) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(kind, name, keys or None)
    return DescribeConfigsRequest(resources=(resource,), **options)


# ---- records

produce = produce_request
fetch = fetch_request
batch = batch_of


def keyed(*pairs: tuple[bytes | None, bytes | None], **options: Any) -> bytes:
    found = [Record(number, THEN, key, value) for number, (key, value) in enumerate(pairs)]
    return build_batch(found, **options)


def changed(data: bytes, at: int, layout: str, value: int) -> bytes:
    """A batch with one header field changed and a matching crc."""
    batch = bytearray(data)
    struct.pack_into(layout, batch, at, value)
    struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[ATTRIBUTES_AT:])))
    return bytes(batch)


def fake_compressed(codec: Compression) -> bytes:
    """A batch whose records are marked as compressed, but are not."""
    return changed(batch_of(b"not compressed at all"), ATTRIBUTES_AT, ">h", codec)


def message_set(
    magic: int, *values: bytes, key: bytes | None = None, timestamp: int = THEN
) -> bytes:
    """Messages in the formats before record batches."""
    found = b""
    for offset, value in enumerate(values):
        body = struct.pack(">bb", magic, 0)
        body += struct.pack(">q", timestamp) if magic == 1 else b""
        body += struct.pack(">i", -1) if key is None else struct.pack(">i", len(key)) + key
        body += struct.pack(">i", len(value)) + value
        message = struct.pack(">I", crc32(body)) + body
        found += struct.pack(">qi", offset, len(message)) + message
    return found


def numbered(producer_id: int, epoch: int, sequence: int, count: int = 1) -> bytes:
    """A batch of an idempotent producer, with a timestamp in the future so that the producer id does not expire."""
    return batch_of(
        *(b"%d" % number for number in range(count)),
        timestamp=FAR,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


# ---- offsets


def list_offsets(
    topic: str, timestamp: int, *, partition: int = 0, count: int = 1, epoch: int = -1, **more: int
) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition, epoch, timestamp, count)
    return ListOffsetsRequest(topics=(ListOffsetsTopic(topic, (wanted,)),), **more)


def epoch_end(
    topic: str, epoch: int, *, current: int = -1, partition: int = 0
) -> OffsetForLeaderEpochRequest:
    wanted = OffsetForLeaderPartition(partition, current, epoch)
    return OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic, (wanted,)),))


def delete_records(topic: str, offset: int, partition: int = 0) -> DeleteRecordsRequest:
    wanted = DeleteRecordsPartition(partition, offset)
    return DeleteRecordsRequest(topics=(DeleteRecordsTopic(topic, (wanted,)),), timeout_ms=10_000)
