"""Ledger of a run: records acknowledged, records read, and the contradictions between them. Pure; thread-safe.

A value names its writer, its partition and its number there: `rdkafka-3-17`. So the log alone shows whether a record
is missing, duplicated or out of order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

SHOWN_MAX = 10
UNKNOWN_OFFSET = -1
"""The offset of a batch that the leader already had: the response to the first attempt was lost."""


class Ack(NamedTuple):
    sent_at: float
    acked_at: float


def value_of(writer: str, partition: int, number: int) -> bytes:
    return b"%s-%d-%d" % (writer.encode(), partition, number)


@dataclass
class WriterRecords:
    """The records of one writer in one partition."""

    acks: list[Ack] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    """Offsets of the acknowledged records, by number."""


class Ledger:
    def __init__(self) -> None:
        self.written: dict[tuple[str, int], WriterRecords] = {}
        self.failed: list[str] = []
        self.unknown: set[tuple[str, int, int]] = set()
        """Writer, partition and number of records whose producer gave up. Each may be stored at most once."""
        self.seen: dict[tuple[int, int], bytes] = {}
        """Values by partition and offset, from all readers."""
        self.contradictions: list[str] = []
        self.reads: dict[str, int] = defaultdict(int)

    # ---- writers

    def begin(self, writer: str, partitions: int) -> None:
        """Register a writer, before any thread runs."""
        for partition in range(partitions):
            self.written[writer, partition] = WriterRecords()

    def acknowledge(
        self,
        writer: str,
        partition: int,
        number: int,
        *,
        offset: int,
        sent_at: float,
        acked_at: float,
    ) -> None:
        written = self.written[writer, partition]
        written.offsets[number] = offset
        written.acks.append(Ack(sent_at, acked_at))

    @property
    def acknowledged(self) -> int:
        return sum(len(written.offsets) for written in self.written.values())

    def seconds_until_writing_again(self, writer: str, since: float) -> float | None:
        """Seconds until a record sent after `since` was acknowledged in every partition; None if not yet."""
        slowest = 0.0
        for (name, _), written in self.written.items():
            if name != writer:
                continue
            acked = first_ack_time(written.acks, since)
            if acked is None:
                return None
            slowest = max(slowest, acked - since)
        return slowest

    def longest_silence(
        self, partition: int, begin: float, end: float, writer: str | None = None
    ) -> float:
        """The longest time without an acknowledgement in this partition, for one writer or all: its unavailability."""
        ack_times = sorted(
            ack.acked_at
            for (name, index), written in self.written.items()
            if index == partition and writer in (None, name)
            for ack in list(written.acks)
            if begin <= ack.acked_at <= end
        )
        return max(later - earlier for earlier, later in pairwise([begin, *ack_times, end]))

    # ---- readers

    def see(self, reader: str, partition: int, offset: int, value: bytes) -> None:
        self.reads[reader] += 1
        known = self.seen.setdefault((partition, offset), value)
        if known != value:
            self.contradictions.append(
                f"{partition}@{offset} was {known!r}, but {value!r} for {reader}"
            )

    def report_contradiction(self, reader: str, what: str) -> None:
        self.contradictions.append(f"{reader}: {what}")

    # ---- the end

    def faults(self, logs: Mapping[int, Sequence[bytes]]) -> list[str]:
        """All faults, given the final logs: values by partition, the first at offset 0."""
        found = [f"failed: {each}" for each in self.failed[:SHOWN_MAX]]
        found += [f"contradiction: {each}" for each in self.contradictions[:SHOWN_MAX]]
        for partition, values in logs.items():
            found += self.faults_in(partition, values)
        wrong = [
            f"seen at {partition}@{offset} but missing: {value!r}"
            for (partition, offset), value in list(self.seen.items())
            if not holds(logs.get(partition, ()), offset, value)
        ]
        return found + wrong[:SHOWN_MAX]

    def faults_in(self, partition: int, values: Sequence[bytes]) -> list[str]:
        found: list[str] = []
        places: dict[bytes, list[int]] = defaultdict(list)
        for offset, value in enumerate(values):
            places[value].append(offset)
        found += [
            f"twice in {partition}: {value!r} at {offsets}"
            for value, offsets in places.items()
            if len(offsets) > 1
        ]
        for (writer, index), written in self.written.items():
            if index == partition:
                unknown = {each[2] for each in self.unknown if each[:2] == (writer, index)}
                found += faults_of(writer, partition, written.offsets, places, unknown)
        # All writers have finished, so no more acknowledgements can arrive.
        found += [f"in {partition} and never acknowledged: {value!r}" for value in places]
        return found[:SHOWN_MAX]


def faults_of(
    writer: str,
    partition: int,
    offsets: Mapping[int, int],
    places: dict[bytes, list[int]],
    unknown: Set[int] = frozenset(),
) -> list[str]:
    """Check one writer's records; removes the records it finds from `places`."""
    found: list[str] = []
    last = -1
    for number in range(max((*offsets, *unknown), default=-1) + 1):
        value = value_of(writer, partition, number)
        if number in unknown:
            places.pop(value, None)
        elif number not in offsets:
            found.append(f"skipped: {value!r}")
        if number not in offsets:
            continue
        offset = offsets[number]
        at = places.pop(value, None)
        if at is None:
            found.append(f"lost: {value!r}, acknowledged at {partition}@{offset}")
            continue
        if offset not in (UNKNOWN_OFFSET, at[0]):
            found.append(f"acknowledged at {partition}@{offset}, is at {at[0]}: {value!r}")
        if at[0] < last:
            found.append(f"out of order in {partition}: {value!r} at {at[0]}")
        last = at[0]
    return found


def first_ack_time(acks: Sequence[Ack], since: float) -> float | None:
    """Search from the end: the time asked for is always recent."""
    first = None
    for index in range(len(acks) - 1, -1, -1):
        sent_at, acked_at = acks[index]
        if acked_at < since:
            break
        if sent_at >= since:
            first = acked_at
    return first


def holds(values: Sequence[bytes], offset: int, value: bytes) -> bool:
    return offset < len(values) and values[offset] == value
