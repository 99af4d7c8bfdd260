"""Base of the member scripts: they read commands and print events as JSON lines.

    {"do": "join", "member": "m1", "servers": …, "group": …, "topic": …, …}     start a member in this process
    {"do": "close", "member": "m1"}                                             leave the group like the library does

    {"member": "m1", "event": "owns", "partitions": [0, 1]}                     all its partitions, after every change
    {"member": "m1", "event": "read", "partition": 0, "first": 5, "count": 3}
    {"member": "m1", "event": "committed", "offsets": {"0": 8}}                 acknowledged
    {"member": "m1", "event": "again", "partition": 0}                          its last batch is delivered again
    {"member": "m1", "event": "closed", "seconds": 0.01}
    {"member": "m1", "event": "failed", "why": "…"}

Reads are printed before their commits. `at` is a clock shared by all processes of the machine. A member is a thread;
killing the process kills all its members.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from threading import Event, Lock, Thread
from typing import NamedTuple

POLL_S = 0.1


class MemberOptions(NamedTuple):
    member: str
    servers: str
    group: str
    topic: str
    assignor: str = "range"
    instance: str | None = None
    session_ms: int = 6000
    heartbeat_ms: int = 500
    commits: str = "each"
    """each: commit every batch at once, and before partitions are revoked. auto: as the library does. never."""


class Member:
    """Prints the events of one member. `uncommitted` is the next offset by partition, read but not committed."""

    lock = Lock()

    def __init__(self, options: MemberOptions) -> None:
        self.options = options
        self.owned: set[int] = set()
        self.uncommitted: dict[int, int] = {}

    def emit(self, event: str, **what: object) -> None:
        line = json.dumps(
            {"at": time.monotonic(), "member": self.options.member, "event": event, **what}
        )
        with self.lock:
            print(line, flush=True)

    def assigned(self, partitions: Iterable[int]) -> None:
        self.owned |= set(partitions)
        self.emit("owns", partitions=sorted(self.owned))

    def gave_up(self, partitions: Iterable[int]) -> None:
        gone = set(partitions)
        self.owned -= gone
        self.uncommitted = {
            each: offset for each, offset in self.uncommitted.items() if each not in gone
        }
        self.emit("owns", partitions=sorted(self.owned))

    def read(self, partition: int, offsets: list[int]) -> None:
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), offsets
        self.uncommitted[partition] = offsets[-1] + 1
        self.emit("read", partition=partition, first=offsets[0], count=len(offsets))

    def to_commit(self) -> dict[int, int]:
        """The offsets to commit; empty unless this member commits by itself."""
        return dict(self.uncommitted) if self.options.commits == "each" else {}

    def committed(self, offsets: dict[int, int]) -> None:
        self.emit("committed", offsets=offsets)
        for partition, offset in offsets.items():
            if self.uncommitted.get(partition) == offset:
                del self.uncommitted[partition]


Run = Callable[[Member, Event], None]
"""Runs a member until the event is set."""


def serve(run: Run) -> None:
    stops: dict[str, Event] = {}
    for line in sys.stdin:
        what = json.loads(line)
        if what.pop("do") == "join":
            options = MemberOptions(**what)
            stops[options.member] = Event()
            Thread(
                target=run_member, args=(run, Member(options), stops[options.member]), daemon=True
            ).start()
        else:
            stops.pop(what["member"]).set()


def run_member(run: Run, member: Member, stop: Event) -> None:
    try:
        run(member, stop)
    except BaseException:
        member.emit("failed", why=traceback.format_exc())
        raise


def close(member: Member, closing: Callable[[], object]) -> None:
    began = time.monotonic()
    closing()
    member.emit("closed", seconds=time.monotonic() - began)
