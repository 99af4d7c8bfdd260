"""The timers of all groups that one broker coordinates.

Most of them never end: a session is put off with every heartbeat. So that costs a look into a table, and no more: what
the loop was asked for stays, and when its time has come it is asked again for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.groups.group import Group
from barnabas.groups.group_turn import Timer


class Timers:
    """`ended(group, timer)` is called once for each timer that is neither set anew nor cancelled."""

    def __init__(self, ended: Callable[[Group, Timer], None]) -> None:
        self.ended = ended
        self.running: dict[Group, dict[Timer, Deadline]] = {}

    def set(self, group: Group, timer: Timer, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + delay_s
        timers = self.running.setdefault(group, {})
        deadline = timers.get(timer)
        if deadline is None:
            timers[timer] = Deadline(at, loop.call_at(at, self.look, group, timer))
            return
        deadline.at = at
        if at < deadline.handle.when():
            deadline.handle.cancel()
            deadline.handle = loop.call_at(at, self.look, group, timer)

    def look(self, group: Group, timer: Timer) -> None:
        loop = asyncio.get_running_loop()
        deadline = self.running[group][timer]
        # What the loop calls may come a little early, by the resolution of its clock.
        if deadline.at > deadline.handle.when():
            deadline.handle = loop.call_at(deadline.at, self.look, group, timer)
            return
        self.forget(group, timer)
        self.ended(group, timer)

    def cancel(self, group: Group, timer: Timer) -> None:
        if timer in self.running.get(group, ()):
            self.running[group][timer].handle.cancel()
            self.forget(group, timer)

    def forget(self, group: Group, timer: Timer) -> None:
        timers = self.running[group]
        del timers[timer]
        if not timers:
            del self.running[group]

    def cancel_all(self, group: Group) -> None:
        for deadline in self.running.pop(group, {}).values():
            deadline.handle.cancel()


class Deadline:
    """When a timer ends, and when the loop looks at it, which may be earlier."""

    __slots__ = ("at", "handle")

    def __init__(self, at: float, handle: asyncio.TimerHandle) -> None:
        self.at = at
        self.handle = handle
