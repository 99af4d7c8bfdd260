"""Encoder of Fetch responses: a list of parts, in which record data is neither joined nor copied."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas.errors import LocalWireError
from barnabas.wire.codec import build_struct_layout, encode, make_tags_writer
from barnabas.wire.messages.current_leader import LEADER_UNKNOWN, LeaderIdAndEpoch, NodeEndpoint
from barnabas.wire.messages.fetch import (
    NO_DIVERGENCE,
    NO_SNAPSHOT,
    AbortedTransaction,
    DivergingEpoch,
    FetchResponse,
    PartitionData,
    SnapshotId,
)
from barnabas.wire.primitives import INT32, Append, compact_size, pack_name
from barnabas.world.ports import Part


class FetchedPartition(NamedTuple):
    """PartitionData whose records are parts to send unchanged: buffers, or slices of files.

    `size` is the number of bytes in all `parts`. The encoder does not check it.
    """

    partition_index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    parts: Sequence[Part] = ()
    size: int = 0
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: DivergingEpoch = NO_DIVERGENCE
    current_leader: LeaderIdAndEpoch = LEADER_UNKNOWN
    snapshot_id: SnapshotId = NO_SNAPSHOT


class FetchedTopic(NamedTuple):
    """`topic` is sent up to version 12, `topic_id` from version 13 on."""

    topic: str
    topic_id: UUID
    partitions: Sequence[FetchedPartition]


def encode_fetch_response(
    version: int,
    responses: Sequence[FetchedTopic],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: tuple[NodeEndpoint, ...] = (),
) -> tuple[list[Part], int]:
    """Return the parts to send, in order, and their total bytes. Record data is never joined or copied."""
    if version not in FetchResponse.VERSIONS:
        raise LocalWireError(f"FetchResponse has no version {version}")
    if session_id and version < 7:
        raise LocalWireError(f"FetchResponse v{version} has no session_id")
    flexible = version >= 12
    pack_size = compact_size if flexible else INT32.pack
    pack_head = partition_head_packer(version)
    parts: list[Part] = []
    total = 0
    pending = bytearray()  # bytes between the records of one partition and those of the next
    try:
        if version >= 7:
            pending += struct.pack(">ihi", throttle_time_ms, error_code, session_id)
        elif version >= 1:
            pending += INT32.pack(throttle_time_ms)
        pending += pack_size(len(responses))
        for topic, topic_id, partitions in responses:
            pending += topic_id.bytes if version >= 13 else pack_name(topic, flexible)
            pending += pack_size(len(partitions))
            for partition in partitions:
                pending += pack_head(partition)
                if partition.parts:
                    total += len(pending) + partition.size
                    parts.append(bytes(pending))
                    parts += partition.parts
                    pending = bytearray()
                elif partition.size:
                    raise LocalWireError(f"partition has {partition.size} bytes but no parts")
                if flexible:
                    pending += pack_partition_tags(version, partition)
            if flexible:
                pending += b"\x00"
        if flexible:
            pending += pack_response_tags(version, node_endpoints)
    except (struct.error, UnicodeEncodeError, AttributeError, TypeError, ValueError) as error:
        raise LocalWireError(f"FetchResponse v{version}: {error}") from error
    if pending:
        parts.append(bytes(pending))
    return parts, total + len(pending)


@cache
def partition_head_packer(version: int) -> Callable[[FetchedPartition], bytes]:
    """Return the encoder of a partition up to and including the size of its records."""
    flexible = version >= 12
    offset_count = 1 if version < 4 else 2 if version < 5 else 3
    pack = struct.Struct(">ih" + "q" * offset_count).pack
    pack_size = compact_size if flexible else INT32.pack

    def pack_head(partition: FetchedPartition) -> bytes:
        offsets = (
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_start_offset,
        )
        head = pack(partition.partition_index, partition.error_code, *offsets[:offset_count])
        if version >= 4:
            head += pack_aborted(partition.aborted_transactions, flexible)
        if version >= 11:
            head += INT32.pack(partition.preferred_read_replica)
        elif partition.preferred_read_replica != -1:
            raise LocalWireError(f"FetchResponse v{version} has no preferred_read_replica")
        return head + pack_size(partition.size)

    return pack_head


def pack_aborted(aborted: tuple[AbortedTransaction, ...] | None, flexible: bool) -> bytes:
    if aborted is None:
        return b"\x00" if flexible else b"\xff\xff\xff\xff"
    row, size = (">qqx", compact_size) if flexible else (">qq", INT32.pack)
    return size(len(aborted)) + b"".join([struct.pack(row, *each) for each in aborted])


NO_TAGS: Final = (NO_DIVERGENCE, LEADER_UNKNOWN, NO_SNAPSHOT)


def pack_partition_tags(version: int, partition: FetchedPartition) -> bytes:
    tags = partition.diverging_epoch, partition.current_leader, partition.snapshot_id
    if tags == NO_TAGS:
        return b"\x00"
    parts: list[bytes] = []
    partition_tags_writer(version)(partition, parts.append)
    return b"".join(parts)


@cache
def partition_tags_writer(version: int) -> Callable[[Any, Append], None]:
    return make_tags_writer(build_struct_layout(PartitionData, version, flexible=True).tagged)


def pack_response_tags(version: int, node_endpoints: tuple[NodeEndpoint, ...]) -> bytes:
    if version < 16 or not node_endpoints:
        return b"\x00"
    # A response without topics is a head of 4 + 2 + 4 bytes, a count of one byte, and these tags.
    return encode(FetchResponse(node_endpoints=node_endpoints), version)[11:]
