"""Journal: files on the broker with the events of its controllers, from which the publisher reads.

    <first log dir>/state-changes-0000000007-000000000001.jsonl      named by its first event: epoch, sequence
    <first log dir>/state-changes-published.json                     published up to: file and position
    <first log dir>/coordinator-events-1777622400123-….jsonl         events of coordinators: run of the broker, sequence

Events of coordinators have a journal of their own, so that many groups cannot displace the events of a controller.

The files have no subdirectory: Kafka treats every directory in a log directory as a partition, and refuses to start if
it is not one. A new file begins at each start, after a day and at FILE_BYTES. Files are deleted after a week, published
or not. If the files exceed FILES_MAX or ALL_BYTES, the oldest are deleted first.

A line is in the page cache when `append` returns: it survives a crash of the process, but not a power failure. A line
that a power failure cut off is the last of its file and is not published.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.errors import StorageError
from barnabas.history.recorder import EventLine
from barnabas.log_rate_limiter import LogRateLimiter
from barnabas.storage.files import PROPERTIES_MAX, read_head
from barnabas.world.ports import Clock, Disk, File

logger = logging.getLogger("barnabas.history")

PREFIX = "state-changes-"
COORDINATOR_PREFIX = "coordinator-events-"
SUFFIX = ".jsonl"
PUBLISHED_SUFFIX = "published.json"

FILE_BYTES = 16 << 20
ALL_BYTES = 256 << 20
COORDINATOR_BYTES = 64 << 20
FILES_MAX = 200
DAY_MS = 24 * 60 * 60 * 1000
KEPT_MS = 7 * DAY_MS
WARNING_INTERVAL_S = 60.0


class Position(NamedTuple):
    """Position in the journal: a file, and a byte offset in it. Positions compare in the order of writing."""

    file: str
    offset: int


BEGINNING = Position("", 0)


class Chunk(NamedTuple):
    """Lines to publish, and the position after them."""

    lines: list[bytes]
    end: Position


class Journal:
    """Files of events. `published` is the position up to which the publisher has published them."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        clock: Clock,
        *,
        prefix: str = PREFIX,
        bytes_max: int = ALL_BYTES,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.clock = clock
        self.prefix = prefix
        self.bytes_max = bytes_max
        self.names: list[str] = []
        self.published = BEGINNING
        self.current: File | None = None
        self.current_since_ms = 0
        self.lost_events = 0
        self.warnings = LogRateLimiter(WARNING_INTERVAL_S)

    def open(self) -> None:
        """Find the files of earlier runs. If they cannot be read, the journal starts empty."""
        try:
            found = self.disk.list(self.directory) if self.disk.exists(self.directory) else []
            self.names = [n for n in found if n.startswith(self.prefix) and n.endswith(SUFFIX)]
            if self.prefix + PUBLISHED_SUFFIX in found:
                saved = read_head(
                    self.disk, self.path(self.prefix + PUBLISHED_SUFFIX), PROPERTIES_MAX
                )
                self.published = parse_position(saved)
            self.trim()
        except StorageError as error:
            logger.error("cannot read the state changes of earlier runs error=%s", error)

    def append(self, events: Sequence[EventLine]) -> None:
        """Append events. Never raises: events that cannot be written are lost, and a rate-limited error is logged."""
        lines = [*(event.line for event in events), ""]
        data = "\n".join(lines).encode()
        try:
            if self.current is None or self.is_full_or_old(self.current):
                self.begin_file(events[0])
            assert self.current is not None
            self.current.append([data])
        except StorageError as error:
            self.lost_events += len(events)
            if self.warnings.is_due(self.clock.now_ms() / 1000):
                logger.error("cannot write state changes lost=%d error=%s", self.lost_events, error)
            return
        if self.lost_events:
            logger.warning("writing state changes works again lost=%d", self.lost_events)
            self.lost_events = 0

    def is_full_or_old(self, file: File) -> bool:
        return file.size() >= FILE_BYTES or self.clock.now_ms() - self.current_since_ms >= DAY_MS

    def begin_file(self, first: EventLine) -> None:
        self.close()
        self.trim()
        name = f"{self.prefix}{first.epoch:010d}-{first.sequence:012d}{SUFFIX}"
        self.current = self.disk.open(self.path(name), create=True)
        self.current_since_ms = self.clock.now_ms()
        self.names.append(name)

    def next_epoch(self, at_least: int) -> int:
        """Return a number for the first part of new names, so that they follow those of earlier runs."""
        last = max([*self.names, self.published.file]).removeprefix(self.prefix).partition("-")[0]
        return max(at_least, int(last) + 1) if last.isdecimal() else at_least

    # ---- publishing

    def next_chunk(self, bytes_max: int) -> Chunk | None:
        """Return the next complete lines, of one file and about `bytes_max` bytes. None if all are published."""
        for name in list(self.names):
            if name < self.published.file or not self.disk.exists(self.path(name)):
                continue
            position = self.published.offset if name == self.published.file else 0
            data = self.read(name, position, bytes_max)
            whole = data[: data.rfind(b"\n") + 1]
            if whole:
                return Chunk(whole.splitlines(), Position(name, position + len(whole)))
        return None

    def read(self, name: str, position: int, bytes_max: int) -> bytes:
        """Read up to `bytes_max`, but at least one complete line."""
        current = self.current
        is_current = current is not None and current.path == self.path(name)
        file = current if is_current and current is not None else self.disk.open(self.path(name))
        try:
            data = file.read(position, bytes_max)
            while b"\n" not in data and position + len(data) < file.size():
                data += file.read(position + len(data), bytes_max)
            return data
        finally:
            if not is_current:
                file.close()

    def advance(self, end: Position) -> None:
        """Save the position up to which events are published. After a crash before that, events are published again."""
        self.published = end
        data = json.dumps({"file": end.file, "position": end.offset}).encode()
        self.disk.replace_bytes(self.path(self.prefix + PUBLISHED_SUFFIX), data, sync=False)

    # ---- files

    def trim(self) -> None:
        """Delete files that are too old, and the oldest files if there are too many or they are too large."""
        oldest_ms = self.clock.now_ms() - KEPT_MS
        self.names = [name for name in self.names if self.disk.exists(self.path(name))]
        sizes = {name: self.disk.size(self.path(name)) for name in self.names}
        total = sum(sizes.values())
        for name in list(self.names):
            is_old = self.disk.modified_ms(self.path(name)) < oldest_ms
            if not (is_old or total > self.bytes_max or len(self.names) >= FILES_MAX):
                break
            is_published = Position(name, sizes[name]) <= self.published
            logger.info("removing old state changes file=%s published=%s", name, is_published)
            self.disk.remove(self.path(name))
            self.names.remove(name)
            total -= sizes[name]

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def close(self) -> None:
        if self.current is not None:
            self.current.close()
            self.current = None


def parse_position(data: bytes) -> Position:
    """Parse the saved position. If it is invalid, return BEGINNING: events are published again, as duplicates."""
    try:
        saved = json.loads(data)
        return Position(str(saved["file"]), int(saved["position"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return BEGINNING
