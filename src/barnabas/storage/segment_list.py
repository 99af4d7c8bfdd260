"""The segments of one log, by base offset, and the deleted segments whose files still exist.

    deleted            closed                     active
    [···] [···]        [▓▓▓▓] [▓▓▓▓▓▓] [▓▓▓▓]     [▓▓▓───►

A read at the end of the log finds its batch in `tail`. Other reads use a binary search in `bases` and the index of the
segment. A deleted segment is removed from the list at once. Its files remain for file.delete.delay.ms, because
responses may still be sent from them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, overload

from barnabas.storage import checking
from barnabas.storage.segment import BatchPosition, Segment
from barnabas.world.ports import FileSlice

NO_BOUND: Final = -1

TAIL_BATCHES_MAX: Final = 128


class LogRead(NamedTuple):
    """Bytes to send, in `slices` of files. `first_incomplete`: not even the first batch is complete."""

    slices: tuple[FileSlice, ...]
    size: int
    first_incomplete: bool = False
    unchecked_segment: Segment | None = None
    """Segment of these bytes if they must be verified before they are sent (checking.py), else None."""


NOTHING: Final = LogRead((), 0)


class Tail:
    """Positions of the last batches in the active segment: reads at the end of the log need no index and no disk.

    Invariant: no offset is missing between its first batch and the end of the log.
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
        """Return the start and end position of the batch with `offset`, or None if `offset` is before the tail.

        `end_position` is the end of the last batch. Precondition: `offset` is below the log end offset.
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
    """Segments of one log, ascending by base offset; never empty. Invariants: `bases` are their base offsets, `active`
    is the last segment, `closed_bytes` is the size of all others."""

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
        """Pairs (due_ms, segment) in order of deletion. The files may be removed at `due_ms` or later."""
        self.tail = Tail()
        """Last batches of the active segment."""
        # The last result of `find_limit`. Valid until segments are added, removed, replaced or truncated.
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
        self, offset: int, max_bytes: int, upper_bound: int | None, at_least_one: bool = True
    ) -> LogRead:
        """Read from the batch with `offset`, within one segment, up to `upper_bound` (None: to the end of the segment).

        `max_bytes` may cut the last batch. `at_least_one`: the first batch is complete even if larger than `max_bytes`.
        Precondition: `offset` and `upper_bound` are below the log end offset.
        """
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
        limit = segment.size if upper_bound is None else self.find_limit(segment, upper_bound)
        wanted = max_bytes
        if wanted < batch_end - position and at_least_one:
            wanted = batch_end - position
        size = min(wanted, limit - position)
        if size <= 0:
            return NOTHING
        unchecked_segment = None
        if position < segment.unchecked_to:
            size, unchecked_segment = checking.sendable(segment, position, size)
        part = FileSlice(segment.log, position, size)
        return LogRead((part,), size, position + size < batch_end, unchecked_segment)

    def find(self, offset: int) -> tuple[Segment, BatchPosition] | None:
        """Return the first batch whose last offset is `offset` or later, and its segment, or None."""
        at = bisect_right(self.bases, offset) - 1
        while at < len(self.segments):
            segment = self.segments[at]
            found = segment.find(offset)
            if found is not None:
                return segment, found
            at += 1
        return None

    def find_limit(self, segment: Segment, bound: int) -> int:
        """Return the position in `segment` of the first batch with records at or after offset `bound`, else its size.

        The last index lookup is cached, since consumers that wait for new records all pass the same high watermark.
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
        """Remove the first `count` segments, all closed, from the list. Their files may be removed at `due_ms`."""
        for segment in self.segments[:count]:
            self.closed_bytes -= segment.size
            self.deleted.append((due_ms, segment))
        del self.segments[:count]
        del self.bases[:count]
        self.bound_offset = NO_BOUND

    def has_run(self, run: Sequence[Segment]) -> bool:
        """Return whether these segments are in the list, consecutive and closed."""
        if run[0] not in self.segments:
            return False
        first = self.segments.index(run[0])
        return self.segments[first : first + len(run)] == list(run) and run[-1] is not self.active

    def replace_run(self, run: Sequence[Segment], replacement: Segment, due_ms: int) -> None:
        """Replace a run of closed segments. Precondition: `has_run(run)`."""
        first = self.segments.index(run[0])
        self.segments[first : first + len(run)] = [replacement]
        self.bases[first : first + len(run)] = [replacement.base_offset]
        self.closed_bytes += replacement.size - sum(segment.size for segment in run)
        self.deleted += [(due_ms, segment) for segment in run]
        self.bound_offset = NO_BOUND

    def truncate(self, offset: int, now_ms: int) -> None:
        """Remove the batch with `offset` and everything after it, also on disk. Needs no free disk space.

        The segment with `offset` becomes the active one, with its indexes in memory. Precondition: the first segment
        begins at or before `offset`.
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
        """Return all segments that have files."""
        return [*self.segments, *(segment for _, segment in self.deleted)]

    def remove_files(self) -> None:
        """Remove the files of all segments. The list is invalid until `start_over`."""
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
