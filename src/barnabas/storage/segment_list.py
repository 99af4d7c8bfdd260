"""The segments of one log, by base offset, and the deleted ones whose files still exist.

    deleted            closed                     active
    [···] [···]        [▓▓▓▓] [▓▓▓▓▓▓] [▓▓▓▓]     [▓▓▓───►

Reads at the end of the log find their batch in `tail`, others with a binary search in `bases` and the index of the
segment. A deleted segment leaves the list at once. Its files remain for file.delete.delay.ms, because responses may
still be sent from them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from barnabas.storage import checking
from barnabas.storage.segment import BatchPosition, Segment
from barnabas.world.ports import FileSlice

NO_BOUND = -1

TAIL_BATCHES_MAX = 128


class LogRead(NamedTuple):
    """Bytes to send. `first_incomplete`: the size limit cuts even the first batch, so none can be decoded."""

    slices: tuple[FileSlice, ...]
    size: int
    first_incomplete: bool = False
    unchecked: Segment | None = None
    """Set if these bytes were not verified since the start. They must not be sent before `checking.verify_batches`."""


NOTHING = LogRead((), 0)


class Tail:
    """Positions of the last batches in the active segment: reads at the end of the log need no index and no disk.

    Invariant: from the first batch in it to the end of the log, no offset is missing.
    """

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")

    def append(self, base_offset: int, position: int) -> None:
        """Add a batch. `base_offset` must be the log end offset before this batch."""
        offsets = self.offsets
        offsets.append(base_offset)
        self.positions.append(position)
        if len(offsets) > TAIL_BATCHES_MAX:
            del offsets[: TAIL_BATCHES_MAX // 2]
            del self.positions[: TAIL_BATCHES_MAX // 2]

    def find(self, offset: int, end_position: int) -> tuple[int, int] | None:
        """Start and end position of the batch that holds `offset`; None if it is before the first batch in here.

        `end_position` is the end of the last batch.
        """
        after = bisect_right(self.offsets, offset)
        if after == 0:
            return None
        positions = self.positions
        return positions[after - 1], positions[after] if after < len(positions) else end_position

    def clear(self) -> None:
        del self.offsets[:]
        del self.positions[:]


class SegmentList(Sequence[Segment]):
    """Never empty. Invariants: `bases` are the base offsets, ascending; `active` is the last segment; `closed_bytes`
    is the size of all others."""

    __slots__ = (
        "active",
        "bases",
        "bound_offset",
        "bound_position",
        "closed_bytes",
        "deleted",
        "segments",
        "tail",
    )

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.closed_bytes = sum(segment.size for segment in segments[:-1])
        self.deleted: list[tuple[int, Segment]] = []
        """(time in ms from which its files may be removed, segment), in order of deletion."""
        self.tail = Tail()
        """Of the active segment."""
        # The last result of `limit_of`. Valid until segments are added, removed, replaced or truncated.
        self.bound_offset = NO_BOUND
        self.bound_position = 0

    @overload
    def __getitem__(self, at: int) -> Segment: ...

    @overload
    def __getitem__(self, at: slice) -> list[Segment]: ...

    def __getitem__(self, at: int | slice) -> Segment | list[Segment]:
        return self.segments[at]

    def __len__(self) -> int:
        return len(self.segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    @property
    def size_bytes(self) -> int:
        return self.closed_bytes + self.active.size

    # ---- reading ----------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, bound: int | None, at_least_one: bool = True
    ) -> LogRead:
        """Read as `Log.read` does. `offset` is in the log; `bound` is None if it is at or after the log end offset."""
        segment = self.active
        in_tail = self.tail.find(offset, segment.size)
        if in_tail is not None:
            position, batch_end = in_tail
        else:
            found = self.find(offset)
            if found is None:
                return NOTHING
            segment, (position, header) = found
            batch_end = position + header.size
        limit = segment.size if bound is None else self.limit_of(segment, bound)
        wanted = max_bytes
        if wanted < batch_end - position and at_least_one:
            wanted = batch_end - position
        size = min(wanted, limit - position)
        if size <= 0:
            return NOTHING
        unchecked = None
        if position < segment.unchecked_to:
            size, unchecked = checking.sendable(segment, position, size)
        part = FileSlice(segment.log, position, size)
        return LogRead((part,), size, position + size < batch_end, unchecked)

    def find(self, offset: int) -> tuple[Segment, BatchPosition] | None:
        """The first batch whose last offset is `offset` or later."""
        at = bisect_right(self.bases, offset) - 1
        while at < len(self.segments):
            segment = self.segments[at]
            found = segment.find(offset)
            if found is not None:
                return segment, found
            at += 1
        return None

    def limit_of(self, segment: Segment, bound: int) -> int:
        """Position in `segment` of the first batch with records at or after offset `bound`; its size if there is none.

        A lookup in the index is remembered: consumers that wait for new records all pass the same high watermark.
        """
        if bound <= segment.base_offset:
            return 0
        if segment is self.active:
            in_tail = self.tail.find(bound, segment.size)
            if in_tail is not None:
                return in_tail[0]
        elif bound >= self.bases[bisect_right(self.bases, segment.base_offset)]:
            return segment.size
        if bound != self.bound_offset:
            found = segment.find(bound)
            self.bound_position = found.position if found else segment.size
            self.bound_offset = bound
        return self.bound_position

    # ---- changing ---------------------------------------------------------------------------------------------

    def add_active(self, segment: Segment) -> None:
        self.closed_bytes += self.active.size
        self.segments.append(segment)
        self.bases.append(segment.base_offset)
        self.active = segment
        self.tail.clear()
        self.bound_offset = NO_BOUND

    def delete_first(self, count: int, due_ms: int) -> None:
        """Take the first `count` segments, all of them closed, out of the log."""
        for segment in self.segments[:count]:
            self.closed_bytes -= segment.size
            self.deleted.append((due_ms, segment))
        del self.segments[:count]
        del self.bases[:count]
        self.bound_offset = NO_BOUND

    def holds_run(self, run: Sequence[Segment]) -> bool:
        """Whether these segments are closed, and consecutive here."""
        if run[0] not in self.segments:
            return False
        first = self.segments.index(run[0])
        return self.segments[first : first + len(run)] == list(run) and run[-1] is not self.active

    def replace_run(self, run: Sequence[Segment], fresh: Segment, due_ms: int) -> None:
        """Put `fresh` in the place of a run of closed segments. Precondition: `holds_run(run)`."""
        first = self.segments.index(run[0])
        self.segments[first : first + len(run)] = [fresh]
        self.bases[first : first + len(run)] = [fresh.base_offset]
        self.closed_bytes += fresh.size - sum(segment.size for segment in run)
        self.deleted += [(due_ms, segment) for segment in run]
        self.bound_offset = NO_BOUND

    def truncate(self, offset: int, now_ms: int) -> None:
        """Remove the batch that holds `offset` and everything after it, on disk. Needs no room there.

        The segment that holds `offset` becomes the active one, with its indexes in memory. Precondition: the first
        segment begins at or before `offset`.
        """
        keep = bisect_right(self.bases, offset)
        for segment in self.segments[keep:]:
            segment.remove_files()
        del self.segments[keep:]
        del self.bases[keep:]
        self.active = self.segments[-1]
        self.active.truncate(offset, now_ms)
        self.active.remove_index_files()
        self.closed_bytes = sum(segment.size for segment in self.segments[:-1])
        self.tail.clear()
        self.bound_offset = NO_BOUND

    # ---- all files --------------------------------------------------------------------------------------------

    def with_deleted(self) -> list[Segment]:
        """Every segment that has files."""
        return [*self.segments, *(segment for _, segment in self.deleted)]

    def remove_files(self) -> None:
        """Remove every file. The list is invalid until `start_over`."""
        for segment in self.with_deleted():
            segment.remove_files()
        self.deleted.clear()

    def start_over(self, segment: Segment) -> None:
        """Make `segment` the only one. Precondition: `remove_files()` was called."""
        self.segments = [segment]
        self.bases = [segment.base_offset]
        self.active = segment
        self.closed_bytes = 0
        self.tail.clear()
        self.bound_offset = NO_BOUND

    def close(self) -> None:
        for segment in self.with_deleted():
            segment.close()
