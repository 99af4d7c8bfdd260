"""Event loop on its own thread: halting, as by SIGSTOP, continuing and ending."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from barnabas.world.loop_thread import LoopThread

DEADLINE_S = 30.0


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    running = LoopThread("test")
    yield running
    running.end()


def is_halted(thread: LoopThread) -> bool:
    return thread.is_halted


async def now() -> float:
    return asyncio.get_running_loop().time()


def test_work_runs_on_the_thread_and_returns_its_result(thread: LoopThread) -> None:
    assert thread.call(threading.current_thread).name == "test"
    assert thread.run(now()) > 0
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 // 0)


def test_halted_loop_runs_nothing_until_it_continues(thread: LoopThread) -> None:
    done = threading.Event()
    thread.halt()
    thread.halt()
    assert is_halted(thread)
    thread.loop.call_soon_threadsafe(done.set)
    assert not done.wait(0.05)
    thread.resume()
    assert not is_halted(thread)
    assert done.wait(DEADLINE_S)


def test_due_timers_fire_when_loop_continues(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired = threading.Event()
    # No time passes for the loop before it is halted.
    at = thread.loop.time()
    monkeypatch.setattr(thread.loop, "time", lambda: at)
    thread.call(lambda: thread.loop.call_later(0.01, fired.set))
    thread.halt()
    monkeypatch.undo()
    assert not fired.wait(0.05)
    thread.resume()
    assert fired.wait(DEADLINE_S)


def test_first_callback_runs_before_waiting_ones(thread: LoopThread) -> None:
    order: list[str] = []
    thread.halt()
    thread.loop.call_soon_threadsafe(order.append, "waiting")
    thread.resume(first=lambda: order.append("first"))
    thread.call(lambda: None)
    assert order == ["first", "waiting"]


def test_loop_can_be_halted_repeatedly(thread: LoopThread) -> None:
    for _ in range(3):
        thread.halt()
        thread.resume()
    assert thread.call(lambda: 1) == 1


def test_cancel_all_cancels_and_cleans_up(thread: LoopThread) -> None:
    waiting = thread.submit(asyncio.sleep(3600))
    stubborn = threading.Event()

    async def clean_up() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            stubborn.set()

    begun = thread.submit(clean_up())
    thread.call(lambda: None)
    thread.cancel_all()
    assert waiting.cancelled()
    assert begun.cancelled()
    assert stubborn.is_set()
    assert thread.call(lambda: 1) == 1


def test_halted_loop_can_be_ended() -> None:
    thread = LoopThread("test")
    thread.halt()
    thread.end()
    assert not thread.thread.is_alive()
