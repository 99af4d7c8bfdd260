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

    def holds(self, offset: int) -> bool:
        offsets = self.offsets
        return bool(offsets) and offset >= offsets[0]

    def batch_of(self, offset: int, end_position: int) -> tuple[int, int]:
        """Start and end position of the batch that holds `offset`; the last batch ends at `end_position`."""
        after = bisect_right(self.offsets, offset)
        positions = self.positions
        end = positions[after] if after < len(positions) else end_position
        return positions[after - 1], end

    def clear(self) -> None:
        del self.offsets[:]
        del self.positions[:]
