"""Watchdog of an event loop: a thread that reports a blocked loop, and ends the process if the loop stays blocked.

A broker whose loop is stuck serves no requests but keeps its partitions, because the thread of the ZooKeeper client
still sends heartbeats. Only the end of the process ends the session, so that other brokers take over the partitions.

At every tick the thread posts a heartbeat to the loop, unless the last one is still unanswered. It counts only time
during which the thread itself ran: SIGSTOP, a suspended machine and a starved container stop both threads. So the time
before a late tick is ignored.

Limit: a C call that holds the interpreter lock also stops this thread, which looks like SIGSTOP. The timer of
`faulthandler` would still run, but it is not used: it also counts the time of a SIGSTOP and would end a resumed process
immediately. Its exit code is always 1, and a process has only one such timer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from enum import Enum, auto

logger = logging.getLogger("barnabas.watchdog")

TICK_SECONDS = 0.5
STALL_SECONDS = 1.0
LATE_TICK_SECONDS = 1.0  # after a longer pause, this thread itself was stopped
STUCK_SECONDS_MIN = 2 * STALL_SECONDS
LAST_LOG_SECONDS = 1.0  # time to write the log line before the process ends
STUCK_EXIT_CODE = 75
"""EX_TEMPFAIL of sysexits.h: a temporary failure; the supervisor should restart the process. No other exit uses it."""


class Verdict(Enum):
    """Result of a tick."""

    RUNNING = auto()
    STALLED = auto()  # no answer for STALL_SECONDS
    RECOVERED = auto()  # answered after a stall
    STUCK = auto()  # no answer for `stuck_s`


class StallMeter:
    """Measures stalls from the times of ticks and of answered heartbeats. Times are seconds of a monotonic clock."""

    def __init__(self, stuck_s: float, now: float) -> None:
        self.stuck_s = max(stuck_s, STUCK_SECONDS_MIN)
        self.last_tick = now
        self.silent_s = 0.0
        """Time for which the current heartbeat has been unanswered."""
        self.is_stalled = False
        self.is_stuck = False
        self.stalls = 0
        """Number of heartbeats that were unanswered for STALL_SECONDS or longer."""
        self.last_stall_s = 0.0
        self.longest_stall_s = 0.0
        """Longest time until a heartbeat was answered, also if it is shorter than a stall."""

    def tick(self, now: float, answered_at: float | None) -> Verdict:
        """Return the state of the loop. STALLED, STUCK and RECOVERED are returned once per stall.

        `answered_at` is None while the heartbeat is unanswered.
        """
        until = now if answered_at is None else answered_at
        # If the tick is late, this thread did not run either.
        if now - self.last_tick <= LATE_TICK_SECONDS:
            self.silent_s += max(until - self.last_tick, 0.0)
        self.last_tick = now
        self.longest_stall_s = max(self.longest_stall_s, self.silent_s)
        verdict = Verdict.RUNNING
        if self.silent_s >= STALL_SECONDS and not self.is_stalled:
            self.is_stalled = True
            self.stalls += 1
            verdict = Verdict.STALLED
        elif self.silent_s >= self.stuck_s and not self.is_stuck:
            self.is_stuck = True
            verdict = Verdict.STUCK
        if answered_at is not None:
            if self.is_stalled:
                self.last_stall_s = self.silent_s
                verdict = Verdict.RECOVERED
            self.restart(now)
        return verdict

    def restart(self, now: float) -> None:
        self.last_tick = now
        self.silent_s = 0.0
        self.is_stalled = self.is_stuck = False


class LoopWatchdog:
    """Watches the loop it is started on until `stop()`. It may be started again; the counts continue.

    With `ends_process` it ends this process with STUCK_EXIT_CODE when a heartbeat has been unanswered for `stuck_s`.
    Otherwise it only logs and counts.
    """

    def __init__(self, broker_id: int, *, stuck_s: float, ends_process: bool) -> None:
        self.broker_id = broker_id
        self.ends_process = ends_process
        self.meter = StallMeter(stuck_s, time.monotonic())
        self.answered_at: float | None = None
        self.is_suspended = False
        self.thread: threading.Thread | None = None
        self.stopping = threading.Event()

    @property
    def stalls(self) -> int:
        return self.meter.stalls

    @property
    def longest_stall_s(self) -> float:
        return self.meter.longest_stall_s

    def start(self) -> None:
        """Start watching. Must be called on the loop."""
        assert self.thread is None
        self.stopping.clear()
        self.answered_at = time.monotonic()
        self.meter.restart(self.answered_at)
        arguments = (asyncio.get_running_loop(), threading.get_ident())
        self.thread = threading.Thread(
            target=self.run, args=arguments, name=f"barnabas-watchdog-{self.broker_id}", daemon=True
        )
        self.thread.start()

    def stop(self) -> None:
        """Stop watching. Idempotent."""
        thread, self.thread = self.thread, None
        if thread is not None:
            self.stopping.set()
            thread.join()

    def suspend(self) -> None:
        """Ignore the loop until `resume()`, because it is halted on purpose."""
        self.is_suspended = True

    def resume(self) -> None:
        self.is_suspended = False

    # ---- on the loop

    def answer(self) -> None:
        self.answered_at = time.monotonic()

    # ---- on the watchdog's thread

    def run(self, loop: asyncio.AbstractEventLoop, loop_thread_id: int) -> None:
        while not self.stopping.wait(TICK_SECONDS):
            now = time.monotonic()
            answered_at = self.answered_at
            if self.is_suspended or not loop.is_running():
                self.meter.restart(now)
            else:
                self.handle_verdict(self.meter.tick(now, answered_at), loop_thread_id)
            if answered_at is not None:
                self.answered_at = None
                try:
                    loop.call_soon_threadsafe(self.answer)
                except RuntimeError:  # the loop is closed
                    return

    def handle_verdict(self, verdict: Verdict, loop_thread_id: int) -> None:
        if verdict is Verdict.STALLED:
            log(
                logging.WARNING,
                f"event loop stalled broker={self.broker_id} seconds={self.meter.silent_s:.1f}",
                stack_of(loop_thread_id),
            )
        elif verdict is Verdict.RECOVERED:
            log(
                logging.WARNING,
                f"event loop recovered broker={self.broker_id} seconds={self.meter.last_stall_s:.1f} "
                f"stalls={self.stalls} longest_s={self.longest_stall_s:.1f}",
            )
        elif verdict is Verdict.STUCK and self.ends_process:
            log_thread = log(
                logging.CRITICAL,
                f"event loop stuck broker={self.broker_id} seconds={self.meter.silent_s:.1f} "
                f"limit_s={self.meter.stuck_s:g} exit_code={STUCK_EXIT_CODE}: ending this process, so that other "
                "brokers take over its partitions",
                stack_of(loop_thread_id),
            )
            log_thread.join(LAST_LOG_SECONDS)
            os._exit(STUCK_EXIT_CODE)


def stack_of(thread_id: int) -> str:
    """Return the Python stack of a running thread, innermost call last."""
    frame = sys._current_frames().get(thread_id)
    return "" if frame is None else "".join(traceback.format_stack(frame)).rstrip()


def log(level: int, message: str, stack: str | None = None) -> threading.Thread:
    """Log from a new thread and return it. The stuck loop may hold the lock of a log handler whose pipe is full."""
    record = logger.makeRecord(logger.name, level, "", 0, message, (), None, sinfo=stack)
    thread = threading.Thread(target=emit, args=(record,), daemon=True)
    thread.start()
    return thread


def emit(record: logging.LogRecord) -> None:
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)
