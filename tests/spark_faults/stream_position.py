"""The position of a stream, read from outside: from its checkpoint files and its sink.

    offsets/N written ──► tasks read and write ──► the sink shows N ──► commits/N written ──► offsets/N+1 …
          └──────── before the commit ────────────────┘└── during ─────────┘└── after ──────────┘

Parquet has a batch when Spark's list of files has it, a topic as soon as its log grows.
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class Moment(StrEnum):
    BEFORE = "before the commit"
    DURING = "during the commit"
    AFTER = "after the commit"


class Position(NamedTuple):
    batch: int
    moment: Moment


class Stream:
    """A stream into Parquet, or, as `TopicStream`, into a topic."""

    def __init__(self, name: str, checkpoint: Path, output: Path) -> None:
        self.name = name
        self.checkpoint = checkpoint
        self.output = output
        self.planned_at_mark = -1

    def mark(self) -> None:
        """From here on, `position` is correct for every batch planned later and for repeated batches."""
        self.planned_at_mark = last_number(self.checkpoint / "offsets")

    def position(self) -> Position:
        planned = last_number(self.checkpoint / "offsets")
        if planned <= last_number(self.checkpoint / "commits"):
            return Position(planned, Moment.AFTER)
        return Position(planned, Moment.DURING if self.has_batch(planned) else Moment.BEFORE)

    def has_batch(self, batch: int) -> bool:
        listed = self.output / "_spark_metadata"
        return (listed / str(batch)).exists() or (listed / f"{batch}.compact").exists()

    def committed(self) -> int:
        return last_number(self.checkpoint / "commits")

    def read_up_to(self) -> dict[str, int]:
        """For every partition, the offset up to which everything is written and committed."""
        committed = self.committed()
        if committed < 0:
            return {}
        lines = (self.checkpoint / "offsets" / str(committed)).read_text().splitlines()
        [partitions] = json.loads(lines[-1]).values()
        return {partition: int(offset) for partition, offset in partitions.items()}


class TopicStream(Stream):
    """A stream into a topic. Its output is the broker's log directory."""

    def __init__(self, name: str, checkpoint: Path, output: Path, topic: str) -> None:
        super().__init__(name, checkpoint, output)
        self.topic = topic
        self.seen = -1
        self.size_when_seen = 0

    def mark(self) -> None:
        super().mark()
        self.seen = self.planned_at_mark
        self.size_when_seen = self.size()

    def has_batch(self, batch: int) -> bool:
        size = self.size()
        if batch > self.seen:
            self.seen, self.size_when_seen = batch, size
        return size > self.size_when_seen

    def size(self) -> int:
        logs = self.output.glob(f"{self.topic}-*/*.log")
        return sum(path.stat().st_size for path in logs)


def last_number(directory: Path) -> int:
    """The highest number; -1 if there is none. Other names are files still being written."""
    if not directory.exists():
        return -1
    return max((int(path.name) for path in directory.iterdir() if path.name.isdigit()), default=-1)
