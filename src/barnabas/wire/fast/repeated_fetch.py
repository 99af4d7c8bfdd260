"""Consumers repeat themselves: fetch after fetch is the same but for its correlation id and the offsets it begins at.

    key, version | correlation id | … topic | partition, epoch | fetch offset | …, bytes | partition … | tags
                   ──────────────                                ────────────
                        set to zero, the rest is compared with that of an earlier request

What was read of one is therefore not read again of the next, and most of the answer is known beforehand, too. Only of
consumers without a session, who name all their partitions in every request; with a session there is little to read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from barnabas.wire.apis import ApiKey
from barnabas.wire.fast.fetch_request import fetch_shape, read_topic
from barnabas.wire.fast.fetch_response import FetchedPartition, FetchedTopic, encode_fetch_response
from barnabas.wire.headers import RequestHeader, encode_response_header
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.primitives import INT32, compact_size, read_count, skip_tags
from barnabas.world.ports import Part

SINCE = 11  # from here on a consumer may read of any replica, and a partition has all its numbers
FLEXIBLE_SINCE = 12
OFFSET_IN_ROW = 8
PARTITIONS_MAX = 64
FRAME_BYTES_MAX = 8 * 1024
NO_NUMBER = bytes(4)
NO_OFFSET = bytes(8)
OFFSET = struct.Struct(">q")


class Wanted(NamedTuple):
    """Of one partition, what stays the same."""

    topic: str
    topic_id: UUID
    partition: int
    current_leader_epoch: int
    max_bytes: int
    offset_at: int
    """Where in the frame its fetch offset stands."""


class Told(NamedTuple):
    """Of one partition, what is news."""

    high_watermark: int
    log_start_offset: int
    parts: Sequence[Part]
    size: int


class RepeatedFetch:
    __slots__ = (
        "between",
        "end",
        "max_bytes",
        "min_bytes",
        "no_aborted",
        "pack",
        "pack_size",
        "template",
        "wanted",
    )

    def __init__(
        self, template: bytes, header: RequestHeader, request: FetchRequest, wanted: list[Wanted]
    ) -> None:
        self.template = template
        self.wanted = wanted
        self.min_bytes = request.min_bytes
        self.max_bytes = request.max_bytes
        version = header.api_version
        flexible = version >= FLEXIBLE_SINCE
        self.pack = struct.Struct(">ihqqqBi" if flexible else ">ihqqqii").pack
        self.pack_size = compact_size if flexible else INT32.pack
        aborted = () if request.isolation_level == 1 else None
        self.no_aborted = (0 if flexible else -1) if aborted is None else (1 if flexible else 0)
        # What the ordinary way makes of one byte for each partition, without the numbers in front of that byte.
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
        numbers = len(self.pack(0, 0, 0, 0, 0, 0, 0)) + len(self.pack_size(1))
        heads = [part for part in parts[0::2] if isinstance(part, bytes)]
        self.between = [head[:-numbers] for head in heads[: len(wanted)]]
        self.between[0] = encode_response_header(ApiKey.FETCH, version, 0)[4:] + self.between[0]
        self.end = b"".join(heads[len(wanted) :])

    def offsets(self, frame: memoryview) -> list[int]:
        unpack = OFFSET.unpack_from
        return [unpack(frame, wanted[5])[0] for wanted in self.wanted]

    def encode_answer(self, frame: memoryview, told: list[Told]) -> list[Part]:
        """The parts to send: what `encode_fetch_response` gives, framed."""
        pack, pack_size, no_aborted = self.pack, self.pack_size, self.no_aborted
        parts: list[Part] = []
        total = 4 + len(self.end)
        pending = b""
        for wanted, between, (high_watermark, start, slices, size) in zip(
            self.wanted, self.between, told, strict=True
        ):
            pending += between
            pending += pack(wanted[2], 0, high_watermark, high_watermark, start, no_aborted, -1)
            pending += pack_size(size)
            if size:
                total += len(pending) + size
                parts.append(pending)
                parts += slices
                pending = b""
        if pending or self.end:
            parts.append(pending + self.end)
            total += len(pending)
        first = parts[0]
        assert isinstance(first, bytes)
        parts[0] = INT32.pack(total) + bytes(frame[4:8]) + first
        return parts


class RepeatedFetches:
    """The last shape of one connection's fetches, once it has come twice."""

    __slots__ = ("candidate", "known", "size")

    def __init__(self) -> None:
        self.known: RepeatedFetch | None = None
        self.size = 0
        """Of the last fetch that went the ordinary way: one of another size has another shape, and is not compared."""
        self.candidate = b""

    def find(self, frame: memoryview) -> RepeatedFetch | None:
        known = self.known
        if known is None or len(frame) != len(known.template):
            return None
        return known if masked(frame, known.wanted) == known.template else None

    def learn(
        self, frame: memoryview, at: int, header: RequestHeader, request: FetchRequest
    ) -> None:
        """Remember this request's shape, if it has one and it is not the first of it. Its fields begin at `at`."""
        if len(frame) != self.size or len(frame) > FRAME_BYTES_MAX:
            self.size, self.candidate = len(frame), b""
            return
        if not may_be_repeated(header, request):
            return
        wanted = wanted_of(frame, at, header.api_version, request)
        template = masked(frame, wanted)
        if wanted and template == self.candidate:
            self.known = RepeatedFetch(template, header, request, wanted)
        self.candidate = template


def may_be_repeated(header: RequestHeader, request: FetchRequest) -> bool:
    """A consumer's, of any partitions, without a session, and none that may be sent elsewhere."""
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


def masked(frame: memoryview, wanted: list[Wanted]) -> bytes:
    template = bytearray(frame)
    template[4:8] = NO_NUMBER
    for each in wanted:
        at = each[5]
        template[at : at + 8] = NO_OFFSET
    return bytes(template)


def wanted_of(frame: memoryview, at: int, version: int, request: FetchRequest) -> list[Wanted]:
    """The partitions of a request that was read, and where their offsets stand; none if one has tags, and so another
    size."""
    shape, flexible = fetch_shape(version), version >= FLEXIBLE_SINCE
    found = []
    _, at = read_count(frame, at + shape.head.size, flexible, 1)
    for topic in request.topics:
        *_, at = read_topic(version, frame, at)
        _, at = read_count(frame, at, flexible, 1)
        for each in topic.partitions:
            found.append(
                Wanted(
                    topic.topic,
                    topic.topic_id,
                    each.partition,
                    each.current_leader_epoch,
                    each.partition_max_bytes,
                    at + OFFSET_IN_ROW,
                )
            )
            at += shape.row.size
            if flexible and frame[at - 1]:
                return []
        at = skip_tags(frame, at) if flexible else at
    return found
