from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from barnabas.broker.bounded_work import (
    NOT_STARTED,
    RELEASED_AT_ONCE,
    TURN_SECONDS,
    Background,
    Work,
    release,
    run_in_turns,
    run_to_end,
    run_turn,
)


def count_to(number: int, steps: list[int]) -> Work[str]:
    for step in range(number):
        steps.append(step)
        yield None
    return "done"


def slow_clock() -> Callable[[], float]:
    """Clock that advances by a tenth of a turn at each reading."""
    ticks = iter(range(1_000_000))
    return lambda: next(ticks) * TURN_SECONDS / 10


def test_turn_ends_after_its_time() -> None:
    steps: list[int] = []
    work = count_to(100, steps)
    turn = run_turn(work, lambda: next(work), TURN_SECONDS, slow_clock())
    assert not turn.is_done
    assert 5 < len(steps) < 15


async def test_small_work_finishes_in_first_turn() -> None:
    turn = Background().start(count_to(3, []))
    assert turn == (True, "done")


async def test_event_loop_runs_between_turns() -> None:
    background = Background()
    background.now = slow_clock()
    steps: list[int] = []
    seen: list[int] = []

    def watch() -> None:
        seen.append(len(steps))
        asyncio.get_running_loop().call_soon(watch)

    watch()
    work = count_to(100, steps)
    assert await background.finish(work, NOT_STARTED) == "done"
    longest = max(after - before for before, after in pairwise(seen))
    assert longest < 20


async def test_background_work_gets_one_turn_per_loop_pass() -> None:
    background = Background()
    background.now = slow_clock()
    steps: list[int] = []
    seen: list[int] = []

    def watch() -> None:
        seen.append(len(steps))
        asyncio.get_running_loop().call_soon(watch)

    watch()
    works = [background.finish(count_to(30, steps), NOT_STARTED) for _ in range(50)]
    await asyncio.gather(*works)
    longest = max(after - before for before, after in pairwise(seen))
    assert longest < 20
    assert background.unfinished == 0


async def test_call_runs_in_thread_and_returns_its_result() -> None:
    def work() -> Work[Any]:
        return (yield threading.current_thread)

    background = Background()
    handler = work()
    turn = background.start(handler)
    assert not turn.is_done
    thread = await background.finish(handler, turn)
    assert thread is not threading.current_thread()


async def test_exception_of_call_is_raised_in_handler() -> None:
    def fail() -> None:
        raise KeyError("broken")

    def work() -> Work[str]:
        try:
            yield fail
        except KeyError:
            return "handled"
        return "not raised"

    assert await Background().finish(work(), NOT_STARTED) == "handled"


async def test_cancellation_closes_handler() -> None:
    closed: list[bool] = []
    started = asyncio.Event()

    def endless() -> Work[None]:
        try:
            while True:
                started.set()
                yield None
        finally:
            closed.append(True)

    background = Background()
    task = asyncio.ensure_future(background.finish(endless(), NOT_STARTED))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == [True]
    assert background.unfinished == 0


async def test_run_to_end_and_run_in_turns_return_result() -> None:
    assert run_to_end(count_to(5, [])) == "done"
    assert await run_in_turns(count_to(5, [])) == "done"


def test_message_is_released_piece_by_piece() -> None:
    class Item:
        alive = 0

        def __init__(self) -> None:
            Item.alive += 1

        def __del__(self) -> None:
            Item.alive -= 1

    number = 5 * RELEASED_AT_ONCE
    held = [("topic", tuple((index, Item()) for index in range(number))), 1]
    alive = [Item.alive]
    for _ in release(held):
        alive.append(Item.alive)
    assert alive[0] == number
    assert Item.alive == 0
    assert all(before - after <= RELEASED_AT_ONCE for before, after in pairwise(alive))
