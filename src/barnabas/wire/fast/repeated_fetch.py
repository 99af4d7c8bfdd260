"""Fast path for Fetch requests that repeat an earlier one except for correlation id and fetch offsets.

    key, version | correlation id | … topic | partition, epoch | fetch offset | …, bytes | partition … | tags
                   ──────────────                                ────────────
                   set to zero; then the whole request is compared with an earlier one

A repeated request is not decoded again, and most of its response is encoded in advance. This applies to consumers
without a fetch session, which send all their partitions in every request. Requests in a session are short anyway.
This saves a third of the CPU time of librdkafka's fetches.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from barnabas.wire.apis import ApiKey
from barnabas.wire.fast.fetch_request import fetch_shape, read_fetch_topic
from barnabas.wire.fast.fetch_response import FetchedPartition, FetchedTopic, encode_fetch_response
from barnabas.wire.headers import RequestHeader, encode_response_header
from barnabas.wire.messages.fetch import (
    READ_COMMITTED,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from barnabas.wire.primitives import INT32, compact_size, read_count, skip_tags
from barnabas.world.ports import Part

SINCE: Final = 11  # the first version with preferred_read_replica; later ones have the same numbers per partition
FLEXIBLE_SINCE: Final = 12
OFFSET_IN_ROW: Final = 8
PARTITIONS_MAX: Final = 64
FRAME_BYTES_MAX: Final = 8 * 1024
ZERO_CORRELATION_ID: Final = bytes(4)
ZERO_OFFSET: Final = bytes(8)
OFFSET: Final = struct.Struct(">q")


class RepeatedPartition:
    """The fields of a partition that are the same in each request, and the position of its offset in the frame."""

    __slots__ = ("current_leader_epoch", "index", "max_bytes", "offset_at", "topic", "topic_id")

    def __init__(self, topic: FetchTopic, partition: FetchPartition, offset_at: int) -> None:
        self.topic = topic.topic
        self.topic_id = topic.topic_id
        self.index = partition.partition
        self.current_leader_epoch = partition.current_leader_epoch
        self.max_bytes = partition.partition_max_bytes
        self.offset_at = offset_at


class PartitionFetchResult:
    """The fields of a partition that differ in each response. It has no aborted transactions."""

    __slots__ = ("high_watermark", "last_stable_offset", "log_start_offset", "parts", "size")

    def __init__(
        self,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        parts: Sequence[Part],
        size: int,
    ) -> None:
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.parts = parts
        self.size = size


class RepeatedFetch:
    """A masked Fetch request, and its response without the numbers and the records of the partitions."""

    __slots__ = (
        "between",
        "end",
        "masked_frame",
        "max_bytes",
        "min_bytes",
        "no_aborted",
        "pack",
        "pack_size",
        "partitions",
        "reads_committed",
    )

    def __init__(
        self,
        masked_frame: bytes,
        header: RequestHeader,
        request: FetchRequest,
        partitions: list[RepeatedPartition],
    ) -> None:
        self.masked_frame = masked_frame
        self.partitions = partitions
        self.min_bytes = request.min_bytes
        self.max_bytes = request.max_bytes
        version = header.api_version
        flexible = version >= FLEXIBLE_SINCE
        self.pack = struct.Struct(">ihqqqBi" if flexible else ">ihqqqii").pack
        self.pack_size = compact_size if flexible else INT32.pack
        self.reads_committed = request.isolation_level == READ_COMMITTED
        aborted = () if self.reads_committed else None
        self.no_aborted = (0 if flexible else -1) if aborted is None else (1 if flexible else 0)
        # Encode a response with one byte of records per partition, and remove the numbers before that byte.
        topics = [
            FetchedTopic(
                topic.topic,
                topic.topic_id,
                [
                    FetchedPartition(
                        each.partition, parts=(b"?",), size=1, aborted_transactions=aborted
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        parts, _ = encode_fetch_response(version, topics)
        numbers_size = len(self.pack(0, 0, 0, 0, 0, 0, 0)) + len(self.pack_size(1))
        heads = [part for part in parts[0::2] if isinstance(part, bytes)]
        self.between = [head[:-numbers_size] for head in heads[: len(partitions)]]
        self.between[0] = encode_response_header(ApiKey.FETCH, version, 0)[4:] + self.between[0]
        self.end = b"".join(heads[len(partitions) :])

    def offsets(self, frame: memoryview) -> list[int]:
        unpack = OFFSET.unpack_from
        return [unpack(frame, partition.offset_at)[0] for partition in self.partitions]

    def encode_response(self, frame: memoryview, results: list[PartitionFetchResult]) -> list[Part]:
        """Return the parts to send: those of `encode_fetch_response`, with size and response header."""
        pack, pack_size, no_aborted = self.pack, self.pack_size, self.no_aborted
        parts: list[Part] = []
        total = 4 + len(self.end)
        pending = b""
        for partition, between, result in zip(self.partitions, self.between, results, strict=True):
            stable, start, size = result.last_stable_offset, result.log_start_offset, result.size
            pending += between
            pending += pack(
                partition.index, 0, result.high_watermark, stable, start, no_aborted, -1
            )
            pending += pack_size(size)
            if size:
                total += len(pending) + size
                parts.append(pending)
                parts += result.parts
                pending = b""
        if pending or self.end:
            parts.append(pending + self.end)
            total += len(pending)
        first = parts[0]
        assert isinstance(first, bytes)
        parts[0] = INT32.pack(total) + bytes(frame[4:8]) + first
        return parts


class RepeatedFetches:
    """The Fetch request that one connection repeats."""

    __slots__ = ("candidate", "known", "size")

    def __init__(self) -> None:
        self.known: RepeatedFetch | None = None
        self.size = 0
        """Frame size of the last request on the normal path. A request of another size is not compared."""
        self.candidate = b""
        """The last masked request on the normal path. If the next request equals it, that request becomes `known`."""

    def find(self, frame: memoryview) -> RepeatedFetch | None:
        """Return the earlier request that this one repeats, or None."""
        known = self.known
        if known is None or len(frame) != len(known.masked_frame):
            return None
        return known if mask_frame(frame, known.partitions) == known.masked_frame else None

    def learn(
        self, frame: memoryview, at: int, header: RequestHeader, request: FetchRequest
    ) -> None:
        """Store this request if it qualifies for the fast path and repeats the last one. Its body begins at `at`."""
        if len(frame) != self.size or len(frame) > FRAME_BYTES_MAX:
            self.size, self.candidate = len(frame), b""
            return
        if not is_repeatable_fetch(header, request):
            return
        partitions = locate_offsets(frame, at, header.api_version, request)
        masked_frame = mask_frame(frame, partitions)
        if partitions and masked_frame == self.candidate:
            self.known = RepeatedFetch(masked_frame, header, request, partitions)
        self.candidate = masked_frame


def is_repeatable_fetch(header: RequestHeader, request: FetchRequest) -> bool:
    """Return whether a request qualifies for the fast path: from a consumer, without session, rack or duplicates."""
    return (
        header.api_version >= SINCE
        and request.replica_id < 0
        and request.replica_state.replica_id < 0
        and request.max_bytes > 0
        and request.session_id == 0
        and request.session_epoch == -1
        and not request.rack_id
        and not request.forgotten_topics_data
        and 0 < sum(len(topic.partitions) for topic in request.topics) <= PARTITIONS_MAX
        and all(topic.partitions for topic in request.topics)
        and len({(topic.topic, topic.topic_id) for topic in request.topics}) == len(request.topics)
        and all(
            len({each.partition for each in topic.partitions}) == len(topic.partitions)
            for topic in request.topics
        )
        and all(
            each.last_fetched_epoch < 0 for topic in request.topics for each in topic.partitions
        )
    )


def mask_frame(frame: memoryview, partitions: list[RepeatedPartition]) -> bytes:
    """Return the frame with correlation id and fetch offsets set to zero."""
    masked = bytearray(frame)
    masked[4:8] = ZERO_CORRELATION_ID
    for each in partitions:
        masked[each.offset_at : each.offset_at + 8] = ZERO_OFFSET
    return bytes(masked)


def locate_offsets(
    frame: memoryview, at: int, version: int, request: FetchRequest
) -> list[RepeatedPartition]:
    """Return the partitions of a decoded request with the positions of their fetch offsets.

    Returns an empty list if a partition has tags: rows then have different sizes.
    """
    shape, flexible = fetch_shape(version), version >= FLEXIBLE_SINCE
    found = []
    _, at = read_count(frame, at + shape.head.size, flexible, 1)
    for topic in request.topics:
        *_, at = read_fetch_topic(version, frame, at)
        _, at = read_count(frame, at, flexible, 1)
        for each in topic.partitions:
            found.append(RepeatedPartition(topic, each, at + OFFSET_IN_ROW))
            at += shape.row.size
            if flexible and frame[at - 1]:
                return []
        at = skip_tags(frame, at) if flexible else at
    return found
