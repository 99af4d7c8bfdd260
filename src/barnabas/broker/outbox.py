"""The local files of the state-change history: written at once, published from, and kept for a week.

    <first log dir>/state-changes-0000000007-000000000001.jsonl      named after its first event: epoch, sequence
    <first log dir>/state-changes-published.json                     how far it has been published: file and position

Plain files, not a directory: Kafka takes every directory in there for a partition and refuses to start over one that is
none. A new file is begun after a start, after a day and at FILE_BYTES. Whole files go when they are a week old,
published or not, and the oldest go first when all of them together become too many or too large.

A line is in the page cache when `append` returns: it survives the process, not the power. A line that was torn by a
power cut ends its file and is not published.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.broker.seldom import Seldom
from barnabas.controller.history import StateChange
from barnabas.errors import StorageError
from barnabas.storage.auxiliary import PROPERTIES_MAX, read_head
from barnabas.world.ports import Clock, Disk, File

logger = logging.getLogger("barnabas.history")

PREFIX = "state-changes-"
SUFFIX = ".jsonl"
PUBLISHED = "state-changes-published.json"

FILE_BYTES = 16 << 20
ALL_BYTES = 256 << 20
FILES_MAX = 200
DAY_MS = 24 * 60 * 60 * 1000
KEPT_MS = 7 * DAY_MS
COMPLAINT_INTERVAL_S = 60.0


class Mark(NamedTuple):
    """Everything before this position of this file, and all files before it, has been dealt with."""

    file: str
    position: int


NOTHING = Mark("", 0)


class Chunk(NamedTuple):
    """Lines that are to be published, and how far one has come with them."""

    lines: list[bytes]
    end: Mark


class Outbox:
    """The history of this broker's controllers, as long as it is kept here."""

    def __init__(self, disk: Disk, directory: str, clock: Clock) -> None:
        self.disk = disk
        self.directory = directory
        self.clock = clock
        self.names: list[str] = []
        self.published = NOTHING
        self.current: File | None = None
        self.begun_ms = 0
        self.lost = 0
        self.complaint = Seldom(COMPLAINT_INTERVAL_S)

    def open(self) -> None:
        """Look what earlier runs left. A disk that cannot tell is as good as an empty one."""
        try:
            found = self.disk.list(self.directory) if self.disk.exists(self.directory) else []
            self.names = [n for n in found if n.startswith(PREFIX) and n.endswith(SUFFIX)]
            if PUBLISHED in found:
                self.published = parse_mark(
                    read_head(self.disk, self.path(PUBLISHED), PROPERTIES_MAX)
                )
            self.trim()
        except StorageError as error:
            logger.error("cannot read the state changes of earlier runs error=%s", error)

    def append(self, changes: Sequence[StateChange]) -> None:
        """Never raises: what cannot be written is lost, and said so once in a while."""
        lines = [change.line for change in changes]
        lines.append("")
        data = "\n".join(lines).encode()
        try:
            if self.current is None or not self.has_room(self.current):
                self.begin(changes[0])
            assert self.current is not None
            self.current.append([data])
        except StorageError as error:
            self.lost += len(changes)
            if self.complaint.due(self.clock.now_ms() / 1000):
                logger.error("state changes are not written count=%d error=%s", self.lost, error)
            return
        if self.lost:
            logger.warning("state changes are written again, missing=%d", self.lost)
            self.lost = 0

    def has_room(self, file: File) -> bool:
        return file.size() < FILE_BYTES and self.clock.now_ms() - self.begun_ms < DAY_MS

    def begin(self, first: StateChange) -> None:
        self.close()
        self.trim()
        name = f"{PREFIX}{first.epoch:010d}-{first.sequence:012d}{SUFFIX}"
        self.current = self.disk.open(self.path(name), create=True)
        self.begun_ms = self.clock.now_ms()
        self.names.append(name)

    # ---- publishing

    def unpublished(self, bytes_max: int) -> Chunk | None:
        """The next whole lines, one at least if there is any. None: all is published."""
        for name in list(self.names):
            if name < self.published.file or not self.disk.exists(self.path(name)):
                continue
            position = self.published.position if name == self.published.file else 0
            data = self.read(name, position, bytes_max)
            whole = data[: data.rfind(b"\n") + 1]
            if whole:
                return Chunk(whole.splitlines(), Mark(name, position + len(whole)))
        return None

    def read(self, name: str, position: int, bytes_max: int) -> bytes:
        """A line longer than `bytes_max` is read whole nevertheless."""
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

    def advance(self, end: Mark) -> None:
        """Up to here it is published. After a crash before this is written, the same is published again."""
        self.published = end
        data = json.dumps({"file": end.file, "position": end.position}).encode()
        self.disk.replace_bytes(self.path(PUBLISHED), data, sync=False)

    # ---- files

    def trim(self) -> None:
        """What is too old or too much goes."""
        oldest_ms = self.clock.now_ms() - KEPT_MS
        self.names = [name for name in self.names if self.disk.exists(self.path(name))]
        sizes = {name: self.disk.size(self.path(name)) for name in self.names}
        total = sum(sizes.values())
        for name in list(self.names):
            too_old = self.disk.modified_ms(self.path(name)) < oldest_ms
            if not (too_old or total > ALL_BYTES or len(self.names) >= FILES_MAX):
                break
            is_published = Mark(name, sizes[name]) <= self.published
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


def parse_mark(data: bytes) -> Mark:
    """Where it cannot be understood, everything is published again; readers take no harm from it."""
    try:
        mark = json.loads(data)
        return Mark(str(mark["file"]), int(mark["position"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return NOTHING
