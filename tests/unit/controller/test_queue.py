"""Events: one at a time, in order, and nobody waits in vain."""

from __future__ import annotations

import asyncio

from barnabas.controller.events import (
    AlterPartitionReceived,
    BrokersChanged,
    Event,
    PartitionsModified,
    SessionExpired,
    TopicsChanged,
)
from barnabas.controller.queue import EventQueue
from barnabas.errors import ApiError, ErrorCode
from barnabas.tasks import Tasks
from barnabas.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

DEADLINE_S = 30


class Handler:
    def __init__(self) -> None:
        self.seen: list[tuple[Event, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.queue = EventQueue(self.handle)
        self.tasks = Tasks()
        self.tasks.start("queue", self.queue.run())

    async def handle(self, event: Event, cause: str) -> None:
        self.seen.append((event, cause))
        await self.gate.wait()
        if event == PartitionsModified("bad"):
            raise ValueError("a bug")

    async def settle(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not self.queue.is_idle:
                await asyncio.sleep(0)


def alter(answers: list[AlterPartitionResponse | ApiError]) -> AlterPartitionReceived:
    return AlterPartitionReceived(AlterPartitionRequest(broker_id=1), 3, answers.append)


async def test_in_order_and_by_name() -> None:
    handler = Handler()
    handler.queue.put(TopicsChanged())
    handler.queue.put(BrokersChanged())
    await handler.settle()
    assert handler.seen == [
        (TopicsChanged(), "TopicsChanged#1"),
        (BrokersChanged(), "BrokersChanged#2"),
    ]
    await handler.tasks.stop()


async def test_what_waits_already_is_not_queued_again_but_what_is_being_handled_is() -> None:
    handler = Handler()
    handler.gate.clear()
    await handler.queue.put(TopicsChanged())
    handler.queue.put(TopicsChanged())
    handler.queue.put(TopicsChanged())
    handler.gate.set()
    await handler.settle()
    assert [event for event, _ in handler.seen] == [TopicsChanged(), TopicsChanged()]
    await handler.tasks.stop()


async def test_a_failing_handler_stops_nobody() -> None:
    handler = Handler()
    handler.queue.put(PartitionsModified("bad"))
    handler.queue.put(TopicsChanged())
    await handler.settle()
    assert len(handler.seen) == 2
    await handler.tasks.stop()


async def test_clearing_answers_who_waits_and_goes_first() -> None:
    handler = Handler()
    handler.gate.clear()
    await handler.queue.put(BrokersChanged())
    answers: list[AlterPartitionResponse | ApiError] = []
    handler.queue.put(alter(answers))
    handler.queue.put(TopicsChanged())
    began = handler.queue.clear_and_put(SessionExpired())
    assert [error.code for error in answers if isinstance(error, ApiError)] == [
        ErrorCode.NOT_CONTROLLER
    ]
    assert not began.done()
    handler.gate.set()
    async with asyncio.timeout(DEADLINE_S):
        await began
    await handler.settle()
    assert [event for event, _ in handler.seen] == [BrokersChanged(), SessionExpired()]
    await handler.tasks.stop()
