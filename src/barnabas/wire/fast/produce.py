"""Produce by hand: one request and one answer for every few batches."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from barnabas.errors import LocalWireError, RemoteWireError
from barnabas.wire.codec import (
    builder,
    encode,
    encode_struct,
)
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
    blob,
    compact_size,
    packed_name,
    read_count,
    skip_tags,
    string,
)

new_tuple: Callable[..., Any] = tuple.__new__

read_plain_string = string(flexible=False, nullable=False).read
read_compact_string = string(flexible=True, nullable=False).read
read_plain_nullable = string(flexible=False, nullable=True).read
read_compact_nullable = string(flexible=True, nullable=True).read
read_plain_records = blob(flexible=False, nullable=True).read
read_compact_records = blob(flexible=True, nullable=True).read

ACKS_TIMEOUT = struct.Struct(">hi")

build_produce = builder(ProduceRequest, ["transactional_id", "acks", "timeout_ms", "topic_data"])


def decode_produce(version: int, data: memoryview, at: int = 0) -> ProduceRequest:
    """Records are views into `data`."""
    if version not in ProduceRequest.VERSIONS:
        raise RemoteWireError(f"ProduceRequest has no version {version}")
    try:
        return read_produce(version, data, at)
    except (struct.error, IndexError) as error:
        raise RemoteWireError(f"ProduceRequest v{version} ends too early") from error
    except UnicodeDecodeError as error:
        raise RemoteWireError(f"ProduceRequest v{version}: not UTF-8") from error


def read_produce(version: int, data: memoryview, at: int) -> ProduceRequest:
    flexible = version >= 9
    read_string = read_compact_string if flexible else read_plain_string
    read_records = read_compact_records if flexible else read_plain_records
    topic_minimum, partition_minimum = (3, 6) if flexible else (6, 8)
    transactional_id = None
    if flexible:
        transactional_id, at = read_compact_nullable(data, at) if data[at] else (None, at + 1)
    elif version >= 3:
        transactional_id, at = read_plain_nullable(data, at)
    acks, timeout_ms = ACKS_TIMEOUT.unpack_from(data, at)
    topic_count, at = read_count(data, at + 6, flexible, topic_minimum)
    topics = []
    for _ in range(topic_count):
        name, at = read_string(data, at)
        partition_count, at = read_count(data, at, flexible, partition_minimum)
        partitions = []
        for _ in range(partition_count):
            (index,) = INT32.unpack_from(data, at)
            records, at = read_records(data, at + 4)
            partitions.append(new_tuple(PartitionProduceData, (index, records)))
            if flexible:
                at = skip_tags(data, at)
        topics.append(new_tuple(TopicProduceData, (name, tuple(partitions))))
        if flexible:
            at = skip_tags(data, at)
    if flexible:
        skip_tags(data, at)
    made: ProduceRequest = build_produce([transactional_id, acks, timeout_ms, tuple(topics)])
    return made


PRODUCED = {
    2: struct.Struct(">ihq"),
    5: struct.Struct(">ihqq"),
    8: struct.Struct(">ihqqq"),
    9: struct.Struct(">ihqqqih"),  # no record errors, no error message
    12: struct.Struct(">ihqqqBBB"),  # the same, compact, and no tags
}


@cache
def pack_produced(version: int) -> Callable[[PartitionProduceResponse], bytes]:
    """How a partition without record errors, error message and leader hint is packed."""
    pack = next(shape for below, shape in PRODUCED.items() if version < below).pack
    if version < 2:
        return lambda partition: pack(*partition[:3])
    if version < 5:
        return lambda partition: pack(*partition[:4])
    if version < 8:
        return lambda partition: pack(*partition[:5])
    if version < 9:
        return lambda partition: pack(*partition[:5], 0, -1)
    return lambda partition: pack(*partition[:5], 1, 0, 0)


PLAIN_PRODUCED = ((), None, LEADER_UNKNOWN)


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
    flexible = version >= 9
    pack_size = compact_size if flexible else INT32.pack
    pack = pack_produced(version)
    try:
        parts = [pack_size(len(responses))]
        for name, partitions in responses:
            parts += (packed_name(name, flexible), pack_size(len(partitions)))
            for partition in partitions:
                if partition[5:] == PLAIN_PRODUCED:
                    parts.append(pack(partition))
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
