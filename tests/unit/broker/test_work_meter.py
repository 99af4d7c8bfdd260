"""Measured time of requests: steps count, waits do not."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.work_meter import MeteredWork, WorkMeter


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds


def test_work_after_the_charge_counts_for_the_next_request() -> None:
    clock = Clock()
    meter = WorkMeter(clock.now)
    meter.resume()
    clock.seconds = 1.0
    assert meter.take() == 1.0
    clock.seconds = 3.0
    meter.pause()
    clock.seconds = 10.0
    assert meter.take() == 2.0
    assert meter.take() == 0.0


async def test_steps_of_a_coroutine_count_and_waits_do_not() -> None:
    clock = Clock()
    meter = WorkMeter(clock.now)
    go_on = asyncio.Event()

    async def work() -> str:
        clock.seconds += 1
        await go_on.wait()
        clock.seconds += 2
        return "done"

    task = asyncio.create_task(MeteredWork(work(), meter))
    await asyncio.sleep(0)
    clock.seconds += 100
    go_on.set()
    assert await task == "done"
    assert meter.take() == 3.0


async def test_cancelled_work_is_measured_until_its_end() -> None:
    clock = Clock()
    meter = WorkMeter(clock.now)

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            clock.seconds += 1

    task = asyncio.create_task(MeteredWork(work(), meter))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert meter.take() == 1.0
