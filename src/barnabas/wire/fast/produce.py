"""Decoder of Produce requests and encoder of Produce responses."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from barnabas.errors import LocalWireError, RemoteWireError
from barnabas.wire.codec import encode, encode_struct
from barnabas.wire.messages.current_leader import LEADER_UNKNOWN, NodeEndpoint
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.wire.primitives import (
    INT32,
    compact_size,
    pack_name,
    read_count,
    read_uvarint32,
    skip_tags,
    string_codec,
)

new_tuple: Final[Callable[..., Any]] = tuple.__new__

read_plain_string = string_codec(flexible=False, nullable=False).read
read_compact_string = string_codec(flexible=True, nullable=False).read
read_plain_nullable = string_codec(flexible=False, nullable=True).read
read_compact_nullable = string_codec(flexible=True, nullable=True).read

ACKS_TIMEOUT: Final = struct.Struct(">hi")
INDEX_SIZE: Final = struct.Struct(">ii")

SMALL_PARTITIONS_MAX: Final = 1000
PARTITIONS_MAX: Final = 50_000


class ManyPartitions(Exception):
    """The request has too many partitions to decode on the event loop."""


def decode_small_produce(version: int, data: memoryview, at: int = 0) -> ProduceRequest:
    """Decode a request on the event loop. Raises ManyPartitions above SMALL_PARTITIONS_MAX."""
    return decode_produce(version, data, at, SMALL_PARTITIONS_MAX)


def decode_produce(
    version: int, data: memoryview, at: int = 0, partitions_max: int = PARTITIONS_MAX
) -> ProduceRequest:
    """Decode a request. Records are views of `data`. Raises ManyPartitions above `partitions_max`, and RemoteWireError
    above PARTITIONS_MAX. Each topic counts as a partition."""
    if version not in ProduceRequest.VERSIONS:
        raise RemoteWireError(f"ProduceRequest has no version {version}")
    try:
        if version >= 9:
            return read_flexible_produce(data, at, partitions_max)
        return read_produce(version, data, at, partitions_max)
    except (struct.error, IndexError) as error:
        raise RemoteWireError(f"ProduceRequest v{version} ends too early") from error
    except UnicodeDecodeError as error:
        raise RemoteWireError(f"ProduceRequest v{version}: not UTF-8") from error


def check_partition_count(count: int, partitions_max: int) -> None:
    if count > PARTITIONS_MAX:
        raise RemoteWireError(
            f"ProduceRequest has {count} partitions; at most {PARTITIONS_MAX} are allowed"
        )
    if count > partitions_max:
        raise ManyPartitions


def read_produce(version: int, data: memoryview, at: int, partitions_max: int) -> ProduceRequest:
    transactional_id = None
    if version >= 3:
        transactional_id, at = read_plain_nullable(data, at)
    acks, timeout_ms = ACKS_TIMEOUT.unpack_from(data, at)
    topic_count, at = read_count(data, at + 6, False, 6)
    count = topic_count
    topics = []
    for _ in range(topic_count):
        name, at = read_plain_string(data, at)
        partition_count, at = read_count(data, at, False, 8)
        count += partition_count
        if count > partitions_max:
            check_partition_count(count, partitions_max)
        partitions = []
        for _ in range(partition_count):
            index, size = INDEX_SIZE.unpack_from(data, at)
            at += 8
            records = None
            if size != -1:
                if not 0 <= size <= len(data) - at:
                    raise RemoteWireError(
                        f"records at {at} have {size} bytes, data has {len(data)} bytes"
                    )
                records = data[at : at + size]
                at += size
            partitions.append(new_tuple(PartitionProduceData, (index, records)))
        topics.append(new_tuple(TopicProduceData, (name, tuple(partitions))))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=tuple(topics),
    )


def read_flexible_produce(data: memoryview, at: int, partitions_max: int) -> ProduceRequest:
    transactional_id, at = read_compact_nullable(data, at) if data[at] else (None, at + 1)
    acks, timeout_ms = ACKS_TIMEOUT.unpack_from(data, at)
    topic_count, at = read_count(data, at + 6, True, 3)
    count = topic_count
    topics = []
    for _ in range(topic_count):
        name, at = read_compact_string(data, at)
        partition_count, at = read_count(data, at, True, 6)
        count += partition_count
        if count > partitions_max:
            check_partition_count(count, partitions_max)
        partitions = []
        for _ in range(partition_count):
            (index,) = INT32.unpack_from(data, at)
            size, at = read_uvarint32(data, at + 4)
            records = None
            if size:
                end = at + size - 1
                if end > len(data):
                    raise RemoteWireError(
                        f"records at {at} have {size - 1} bytes, data has {len(data)} bytes"
                    )
                records = data[at:end]
                at = end
            partitions.append(new_tuple(PartitionProduceData, (index, records)))
            at = skip_tags(data, at) if data[at] else at + 1
        topics.append(new_tuple(TopicProduceData, (name, tuple(partitions))))
        at = skip_tags(data, at) if data[at] else at + 1
    skip_tags(data, at)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=tuple(topics),
    )


PARTITION: Final = struct.Struct(">ihqqqBBB")
FLEXIBLE_SINCE: Final = 9


def encode_produce_response(
    version: int,
    responses: Sequence[TopicProduceResponse],
    throttle_time_ms: int = 0,
    node_endpoints: tuple[NodeEndpoint, ...] = (),
) -> bytes:
    if node_endpoints or version not in ProduceResponse.VERSIONS:
        return encode(
            ProduceResponse(
                responses=tuple(responses),
                throttle_time_ms=throttle_time_ms,
                node_endpoints=node_endpoints,
            ),
            version,
        )
    flexible = version >= FLEXIBLE_SINCE
    pack_size = compact_size if flexible else INT32.pack
    try:
        parts = [pack_size(len(responses))]
        for name, partitions in responses:
            parts += (pack_name(name, flexible), pack_size(len(partitions)))
            for partition in partitions:
                if flexible and not has_details(partition):
                    parts.append(pack_without_details(partition))
                else:
                    parts += encode_struct(partition, version, flexible)
            if flexible:
                parts.append(b"\x00")
        if version >= 1:
            parts.append(INT32.pack(throttle_time_ms))
        if flexible:
            parts.append(b"\x00")
        return b"".join(parts)
    except (struct.error, UnicodeEncodeError, AttributeError, TypeError, ValueError) as error:
        raise LocalWireError(f"ProduceResponse v{version}: {error}") from error


def has_details(partition: PartitionProduceResponse) -> bool:
    return (
        partition.record_errors != ()
        or partition.error_message is not None
        or partition.current_leader != LEADER_UNKNOWN
    )


def pack_without_details(partition: PartitionProduceResponse) -> bytes:
    no_errors, no_message, no_tags = 1, 0, 0
    return PARTITION.pack(
        partition.index,
        partition.error_code,
        partition.base_offset,
        partition.log_append_time_ms,
        partition.log_start_offset,
        no_errors,
        no_message,
        no_tags,
    )
