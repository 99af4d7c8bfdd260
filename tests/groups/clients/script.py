"""What the member scripts share: told in JSON lines what to do, they tell in JSON lines what they see.

    {"do": "join", "member": "m1", "servers": …, "group": …, "topic": …, …}     another member of this process
    {"do": "close", "member": "m1"}                                             it leaves as its library leaves

    {"member": "m1", "event": "owns", "partitions": [0, 1]}                     all it has now, after every change
    {"member": "m1", "event": "read", "partition": 0, "first": 5, "count": 3}
    {"member": "m1", "event": "committed", "offsets": {"0": 8}}                 acknowledged
    {"member": "m1", "event": "again", "partition": 0}                          its last batch is given to it once more
    {"member": "m1", "event": "closed", "seconds": 0.01}
    {"member": "m1", "event": "failed", "why": "…"}

What was read is told before it is committed. `at` is the clock that all processes of the machine share. A member is a
thread; killing the process kills all of its members.
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


class Wish(NamedTuple):
    member: str
    servers: str
    group: str
    topic: str
    assignor: str = "range"
    instance: str | None = None
    session_ms: int = 6000
    heartbeat_ms: int = 500
    commits: str = "each"
    """each: whatever was read, at once, and before partitions are given up. auto: as the library does. never."""


class Member:
    """What one member says. `unsaid` is read and not yet committed: the next offset by partition."""

    lock = Lock()

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.owned: set[int] = set()
        self.uncommitted: dict[int, int] = {}

    def say(self, event: str, **what: object) -> None:
        line = json.dumps(
            {"at": time.monotonic(), "member": self.wish.member, "event": event, **what}
        )
        with self.lock:
            print(line, flush=True)

    def assigned(self, partitions: Iterable[int]) -> None:
        self.owned |= set(partitions)
        self.say("owns", partitions=sorted(self.owned))

    def gave_up(self, partitions: Iterable[int]) -> None:
        gone = set(partitions)
        self.owned -= gone
        self.uncommitted = {
            each: offset for each, offset in self.uncommitted.items() if each not in gone
        }
        self.say("owns", partitions=sorted(self.owned))

    def read(self, partition: int, offsets: list[int]) -> None:
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), offsets
        self.uncommitted[partition] = offsets[-1] + 1
        self.say("read", partition=partition, first=offsets[0], count=len(offsets))

    def to_commit(self) -> dict[int, int]:
        """Nothing, unless this member commits by itself."""
        return dict(self.uncommitted) if self.wish.commits == "each" else {}

    def committed(self, offsets: dict[int, int]) -> None:
        self.say("committed", offsets=offsets)
        for partition, offset in offsets.items():
            if self.uncommitted.get(partition) == offset:
                del self.uncommitted[partition]


Run = Callable[[Member, Event], None]
"""Is a member until the event is set."""


def serve(run: Run) -> None:
    stops: dict[str, Event] = {}
    for line in sys.stdin:
        what = json.loads(line)
        if what.pop("do") == "join":
            wish = Wish(**what)
            stops[wish.member] = Event()
            Thread(target=live, args=(run, Member(wish), stops[wish.member]), daemon=True).start()
        else:
            stops.pop(what["member"]).set()


def live(run: Run, member: Member, stop: Event) -> None:
    try:
        run(member, stop)
    except BaseException:
        member.say("failed", why=traceback.format_exc())
        raise


def close(member: Member, closing: Callable[[], object]) -> None:
    began = time.monotonic()
    closing()
    member.say("closed", seconds=time.monotonic() - began)
