"""Tasks are stopped in order, and stopping can itself be stopped."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.tasks import Tasks

DEADLINE_S = 30


async def test_they_end_in_the_order_they_were_started() -> None:
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


async def test_who_is_cancelled_while_stopping_others_is_cancelled_when_they_have_ended() -> None:
    """A cancellation that got lost would leave its task running for ever."""
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
