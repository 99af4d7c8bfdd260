"""Where the last batches of the active segment begin, so that whoever reads at the tail needs no look at the disk.

Consecutive batches only: from the first one remembered up to the end of the log, no offset is missing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

REMEMBERED_MAX = 128


class Tail:
    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")

    def append(self, base_offset: int, position: int) -> None:
        offsets = self.offsets
        offsets.append(base_offset)
        self.positions.append(position)
        if len(offsets) > REMEMBERED_MAX:
            del offsets[: REMEMBERED_MAX // 2]
            del self.positions[: REMEMBERED_MAX // 2]

    def holds(self, offset: int) -> bool:
        offsets = self.offsets
        return bool(offsets) and offset >= offsets[0]

    def batch_of(self, offset: int, end_position: int) -> tuple[int, int]:
        """Begin and end of the batch with this offset; the last one ends at `end_position`."""
        after = bisect_right(self.offsets, offset)
        positions = self.positions
        end = positions[after] if after < len(positions) else end_position
        return positions[after - 1], end

    def clear(self) -> None:
        del self.offsets[:]
        del self.positions[:]
