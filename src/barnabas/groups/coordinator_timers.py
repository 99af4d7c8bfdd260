"""Timers of all groups that a broker coordinates.

Most timers never expire, because each heartbeat restarts a session timer. Therefore a restart only updates the deadline
and keeps the scheduled call. If the deadline has moved when the call runs, the call is scheduled again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.group import Group
from barnabas.groups.group_transition import Timer

AnyGroup = Group | ConsumerGroup


class Timers:
    """Calls `on_expired(group, timer)` once for each timer that is neither restarted nor cancelled in time."""

    def __init__(self, on_expired: Callable[[AnyGroup, Timer], None]) -> None:
        self.on_expired = on_expired
        self.running: dict[AnyGroup, dict[Timer, TimerDeadline]] = {}

    def set(self, group: AnyGroup, timer: Timer, delay_s: float) -> None:
        """Start the timer, or replace its deadline if it is running."""
        loop = asyncio.get_running_loop()
        at = loop.time() + delay_s
        timers = self.running.setdefault(group, {})
        deadline = timers.get(timer)
        if deadline is None:
            timers[timer] = TimerDeadline(at, loop.call_at(at, self.check, group, timer))
            return
        deadline.at = at
        if at < deadline.handle.when():
            deadline.handle.cancel()
            deadline.handle = loop.call_at(at, self.check, group, timer)

    def set_if_stopped(self, group: AnyGroup, timer: Timer, delay_s: float) -> None:
        """Start the timer, unless it is running."""
        if timer not in self.running.get(group, ()):
            self.set(group, timer, delay_s)

    def check(self, group: AnyGroup, timer: Timer) -> None:
        """Expire the timer, or schedule the next check if its deadline was moved."""
        loop = asyncio.get_running_loop()
        deadline = self.running[group][timer]
        # Compares with the scheduled time, not with the clock: the loop may call slightly early.
        if deadline.at > deadline.handle.when():
            deadline.handle = loop.call_at(deadline.at, self.check, group, timer)
            return
        self.remove(group, timer)
        self.on_expired(group, timer)

    def cancel(self, group: AnyGroup, timer: Timer) -> None:
        if timer in self.running.get(group, ()):
            self.running[group][timer].handle.cancel()
            self.remove(group, timer)

    def remove(self, group: AnyGroup, timer: Timer) -> None:
        timers = self.running[group]
        del timers[timer]
        if not timers:
            del self.running[group]

    def cancel_all(self, group: AnyGroup) -> None:
        for deadline in self.running.pop(group, {}).values():
            deadline.handle.cancel()


class TimerDeadline(Struct, eq=False):
    """The deadline of a timer, in loop time, and its scheduled check, which is never later than the deadline."""

    at: float
    handle: asyncio.TimerHandle
