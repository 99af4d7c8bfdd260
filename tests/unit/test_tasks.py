"""Tasks stop in order, and stopping can be cancelled."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.tasks import Tasks

DEADLINE_S = 30


async def test_tasks_end_in_start_order() -> None:
    ended: list[int] = []

    async def run(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(number)

    tasks = Tasks()
    for number in range(5):
        tasks.start(str(number), run(number))
    await asyncio.sleep(0)
    await tasks.stop()
    assert ended == [0, 1, 2, 3, 4]


async def test_cancelled_stop_is_cancelled_after_all_tasks_ended() -> None:
    """A lost cancellation would leave its task running forever."""
    gate = asyncio.Event()
    ended: list[int] = []

    async def slow(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await gate.wait()
            ended.append(number)

    tasks = Tasks()
    for number in range(2):
        tasks.start(str(number), slow(number))
    await asyncio.sleep(0)
    stopping = asyncio.create_task(tasks.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.sleep(0)
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(DEADLINE_S):
            await stopping
    assert ended == [0, 1]
