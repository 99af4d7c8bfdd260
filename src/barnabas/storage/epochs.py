"""Leader epochs of one log: pairs (epoch, start offset), both strictly ascending.

A leader compares the last epoch of a follower with its own epochs, and the follower truncates its log where the two
differ. So the epochs must always match the log: they are truncated with it, and their file is on disk before the
recovery point advances past the records.

    leader-epoch-checkpoint      "0", the number of pairs, then one "epoch offset" line each
"""

from __future__ import annotations

from bisect import bisect_right

from barnabas.storage.checkpoints import parse_number, quote

UNDEFINED = -1
EPOCH_MAX = 2**31 - 1
FILE_NAME = "leader-epoch-checkpoint"


class LeaderEpochs:
    __slots__ = ("epochs", "latest", "starts", "unsaved")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.epochs: list[int] = []
        self.starts: list[int] = []
        self.latest = UNDEFINED
        """The last epoch, or -1. A field, because every append compares with it."""
        self.unsaved = False
        for epoch, start in entries or ():
            self.assign(epoch, start)
        self.unsaved = False

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self.epochs, self.starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Start `epoch` at `start_offset`. Removes later epochs, and epochs that start at or after `start_offset`: the
        records of those leaders are no longer in the log."""
        if epoch < 0 or (epoch == self.latest and start_offset >= self.starts[-1]):
            return
        while self.epochs and (self.epochs[-1] >= epoch or self.starts[-1] >= start_offset):
            self.epochs.pop()
            self.starts.pop()
        self.epochs.append(epoch)
        self.starts.append(start_offset)
        self.latest = epoch
        self.unsaved = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch up to `epoch`, or (-1, -1) if `epoch` is -1 or too new.

        Entries (2, 0) (4, 100), log end 150:  4 → (4, 150)   3 → (2, 100)   1 → (1, 0)   5 → (-1, -1).
        """
        if epoch == UNDEFINED or epoch > self.latest:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        after = bisect_right(self.epochs, epoch)
        if after == 0:
            return epoch, self.starts[0]
        return self.epochs[after - 1], self.starts[after]

    def epoch_at(self, offset: int) -> int:
        """Return the epoch in which this offset was written, or -1 if unknown."""
        at = bisect_right(self.starts, offset) - 1
        return self.epochs[at] if at >= 0 else UNDEFINED

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that start at or after `end_offset`."""
        while self.starts and self.starts[-1] >= end_offset:
            self.starts.pop()
            self.epochs.pop()
            self.unsaved = True
        self.latest = self.epochs[-1] if self.epochs else UNDEFINED

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that ended at or before `start_offset`. The epoch of `start_offset` now starts there."""
        keep = bisect_right(self.starts, start_offset) - 1
        if keep < 0:
            return
        if keep > 0 or self.starts[0] < start_offset:
            del self.epochs[:keep]
            del self.starts[:keep]
            self.starts[0] = start_offset
            self.unsaved = True

    def clear(self) -> None:
        self.unsaved = self.unsaved or bool(self.epochs)
        self.epochs.clear()
        self.starts.clear()
        self.latest = UNDEFINED

    def encode(self) -> bytes:
        lines = ["0", str(len(self.epochs))]
        lines += [f"{epoch} {start}" for epoch, start in self.entries]
        return ("\n".join(lines) + "\n").encode()


def decode_epochs(data: bytes) -> LeaderEpochs:
    """Decode a checkpoint. Raises ValueError if it is corrupt. An empty file, as Kafka creates it, has no epochs."""
    if not data:
        return LeaderEpochs()
    lines = data.decode("ascii").split("\n")
    if lines.pop():
        raise ValueError("the last line is incomplete")
    if len(lines) < 2 or lines[0].strip() != "0" or lines[1].strip() != str(len(lines) - 2):
        raise ValueError("not a leader epoch checkpoint")
    entries = []
    for line in lines[2:]:
        epoch, start = map(parse_number, line.split())
        if epoch is None or start is None or epoch > EPOCH_MAX:
            raise ValueError(f"bad line {quote(line)}")
        entries.append((epoch, start))
    epochs = LeaderEpochs(entries)
    if epochs.entries != entries:
        raise ValueError("epochs or start offsets do not ascend")
    return epochs
