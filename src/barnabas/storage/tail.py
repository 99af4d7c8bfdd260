"""Positions of the last batches in the active segment, so that reads at the end of the log need no index and no disk.

Invariant: from the first batch in it to the end of the log, no offset is missing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

BATCHES_MAX = 128


class Tail:
    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")

    def append(self, base_offset: int, position: int) -> None:
        """Add a batch. `base_offset` must be the log end offset before this batch."""
        offsets = self.offsets
        offsets.append(base_offset)
        self.positions.append(position)
        if len(offsets) > BATCHES_MAX:
            del offsets[: BATCHES_MAX // 2]
            del self.positions[: BATCHES_MAX // 2]

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
