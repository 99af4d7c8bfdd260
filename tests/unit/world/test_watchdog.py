"""Watchdog of an event loop: verdicts from ticks, real loops, and processes that exit."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator

import pytest

from barnabas.world.loop_thread import LoopThread
from barnabas.world.watchdog import STUCK_EXIT_CODE, TICK_SECONDS, LoopWatchdog, StallMeter, Verdict
from support import python_process
from support.waiting import eventually

RUNNING, STALLED, RECOVERED, STUCK = Verdict


def verdicts(meter: StallMeter, *ticks: tuple[float, float | None]) -> list[Verdict]:
    return [meter.tick(now, answered_at) for now, answered_at in ticks]


# ---- verdicts from ticks


def test_answered_heartbeats_are_no_stall() -> None:
    meter = StallMeter(6.0, now=0.0)
    assert verdicts(meter, (0.5, 0.01), (1.0, 0.53), (1.5, 1.45)) == [RUNNING] * 3
    assert meter.stalls == 0
    assert meter.longest_stall_s == pytest.approx(0.45)


def test_each_verdict_is_returned_once_per_stall() -> None:
    meter = StallMeter(3.0, now=0.0)
    silent = [(tick / 2, None) for tick in range(1, 9)]
    assert verdicts(meter, *silent) == [
        *(RUNNING, STALLED, RUNNING, RUNNING, RUNNING, STUCK),
        *(RUNNING, RUNNING),
    ]
    assert meter.longest_stall_s == 4.0, "the stall is not over yet"
    assert meter.tick(4.5, 4.2) is RECOVERED
    assert meter.stalls == 1
    assert meter.last_stall_s == pytest.approx(4.2)
    assert verdicts(meter, (5.0, None), (5.5, None), (6.0, 5.6)) == [RUNNING, STALLED, RECOVERED]
    assert meter.stalls == 2
    assert meter.longest_stall_s == pytest.approx(4.2)


def test_stall_that_ends_between_two_ticks_is_counted() -> None:
    meter = StallMeter(6.0, now=0.0)
    assert verdicts(meter, (0.6, None), (1.2, 1.1), (1.7, 1.3)) == [RUNNING, RECOVERED, RUNNING]
    assert meter.stalls == 1
    assert meter.last_stall_s == pytest.approx(1.1)


def test_time_before_a_late_tick_is_ignored() -> None:
    """The process was stopped, or the machine suspended, while a heartbeat was unanswered."""
    meter = StallMeter(6.0, now=0.0)
    assert verdicts(meter, (0.5, None), (3600.0, None), (3600.4, None)) == [RUNNING] * 3
    assert meter.tick(3600.9, 3600.5) is RECOVERED
    assert meter.last_stall_s == pytest.approx(1.0)
    assert verdicts(meter, (7200.0, 7199.0)) == [RUNNING]
    assert meter.longest_stall_s == pytest.approx(1.0)


def test_stuck_is_never_the_first_verdict_of_a_stall() -> None:
    meter = StallMeter(0.0, now=0.0)
    silent = [(float(tick), None) for tick in range(1, 4)]
    assert verdicts(meter, *silent) == [STALLED, STUCK, RUNNING]


# ---- real loops


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    running = LoopThread("watched")
    yield running
    running.end()


@pytest.fixture
def watchdog(thread: LoopThread) -> Iterator[LoopWatchdog]:
    watching = LoopWatchdog(7, stuck_s=2.0, ends_process=False)
    thread.call(watching.start)
    yield watching
    watching.stop()


def blocking_function(release: threading.Event) -> None:
    release.wait()


def test_stall_is_logged_once_with_the_stack_and_counted(
    thread: LoopThread, watchdog: LoopWatchdog, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()
    thread.loop.call_soon_threadsafe(blocking_function, release)
    eventually(lambda: watchdog.longest_stall_s > 2.5, "longer than the limit")
    release.set()
    eventually(lambda: len(caplog.records) == 2, "stalled, turns again")
    stalled, recovered = caplog.records
    assert stalled.levelno == recovered.levelno == logging.WARNING
    assert "event loop stalled broker=7 seconds=1." in stalled.getMessage()
    assert "blocking_function" in str(stalled.stack_info)
    assert "event loop recovered broker=7 seconds=" in recovered.getMessage()
    assert watchdog.stalls == 1


def test_deliberately_halted_loop_is_ignored(
    thread: LoopThread, watchdog: LoopWatchdog, caplog: pytest.LogCaptureFixture
) -> None:
    watchdog.suspend()
    thread.halt()
    begin = time.monotonic()
    eventually(lambda: watchdog.meter.last_tick > begin + 3.0, "halted for longer than the limit")
    thread.resume()
    watchdog.resume()
    resumed = time.monotonic()
    eventually(lambda: watchdog.meter.last_tick > resumed + 2 * TICK_SECONDS, "watched again")
    assert watchdog.stalls == 0
    assert not caplog.records


def test_watchdog_of_closed_loop_ends_silently(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = LoopWatchdog(7, stuck_s=2.0, ends_process=False)

    async def start() -> None:
        watchdog.start()

    asyncio.run(start())
    assert watchdog.thread is not None
    watchdog.thread.join(30.0)
    assert not watchdog.thread.is_alive()
    watchdog.stop()
    watchdog.stop()
    assert not caplog.records


async def test_stopped_watchdog_may_be_started_again() -> None:
    watchdog = LoopWatchdog(7, stuck_s=2.0, ends_process=False)
    for _ in range(3):
        watchdog.start()
        begin = time.monotonic()
        while watchdog.meter.last_tick <= begin:
            await asyncio.sleep(0.01)
        watchdog.stop()
    assert watchdog.stalls == 0


# ---- processes that exit

STUCK_PROCESS = """
import asyncio, logging, sys
from barnabas.world.watchdog import LoopWatchdog

logging.basicConfig()

def blocking_function():
    if sys.argv[1] == "logging":
        logging.getLogger().handlers[0].acquire()
    while True:
        pass

async def main():
    LoopWatchdog(7, stuck_s=2.0, ends_process=True).start()
    asyncio.get_running_loop().call_soon(blocking_function)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def test_stuck_process_logs_stack_and_exits() -> None:
    ended = python_process.run(STUCK_PROCESS, "spinning")
    assert ended.returncode == STUCK_EXIT_CODE
    assert ended.stderr.count("event loop stalled broker=7") == 1
    assert ended.stderr.count("event loop stuck broker=7") == 1
    assert "exit_code=75" in ended.stderr
    assert ended.stderr.count("in blocking_function") == 2


def test_process_stuck_in_logging_exits() -> None:
    ended = python_process.run(STUCK_PROCESS, "logging")
    assert ended.returncode == STUCK_EXIT_CODE
