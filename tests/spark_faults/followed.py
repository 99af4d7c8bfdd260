"""Where a stream stands, read from outside: from the files of its checkpoint and from what its sink shows.

    offsets/N written ──► tasks read and write ──► the sink shows N ──► commits/N written ──► offsets/N+1 …
          └──────── before the commit ────────────────┘└── during ─────────┘└── after ──────────┘

Parquet shows a batch when Spark's list of files has it, a topic as soon as its log grows.
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


class Standing(NamedTuple):
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
        """From here on `look` is right about every batch that is planned later, and about one that is run again."""
        self.planned_at_mark = last_number(self.checkpoint / "offsets")

    def look(self) -> Standing:
        planned = last_number(self.checkpoint / "offsets")
        if planned <= last_number(self.checkpoint / "commits"):
            return Standing(planned, Moment.AFTER)
        return Standing(planned, Moment.DURING if self.shows(planned) else Moment.BEFORE)

    def shows(self, batch: int) -> bool:
        listed = self.output / "_spark_metadata"
        return (listed / str(batch)).exists() or (listed / f"{batch}.compact").exists()

    def committed(self) -> int:
        return last_number(self.checkpoint / "commits")

    def read_up_to(self) -> dict[str, int]:
        """The offset in every partition up to which all is written and committed."""
        committed = self.committed()
        if committed < 0:
            return {}
        lines = (self.checkpoint / "offsets" / str(committed)).read_text().splitlines()
        [partitions] = json.loads(lines[-1]).values()
        return {partition: int(offset) for partition, offset in partitions.items()}


class TopicStream(Stream):
    """Its output is the broker's directory, and the topic's name the pattern of the partitions in it."""

    def __init__(self, name: str, checkpoint: Path, output: Path, topic: str) -> None:
        super().__init__(name, checkpoint, output)
        self.topic = topic
        self.seen = -1
        self.size_when_seen = 0

    def mark(self) -> None:
        super().mark()
        self.seen = self.planned_at_mark
        self.size_when_seen = self.size()

    def shows(self, batch: int) -> bool:
        size = self.size()
        if batch > self.seen:
            self.seen, self.size_when_seen = batch, size
        return size > self.size_when_seen

    def size(self) -> int:
        logs = self.output.glob(f"{self.topic}-*/*.log")
        return sum(path.stat().st_size for path in logs)


def last_number(directory: Path) -> int:
    """-1 where there is none yet. Names that are more than a number are files still being written."""
    if not directory.exists():
        return -1
    return max((int(path.name) for path in directory.iterdir() if path.name.isdigit()), default=-1)
