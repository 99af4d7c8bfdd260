"""Event queue of the controller: one event at a time, in order, and every waiter is answered."""

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


class RecordingHandler:
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
            raise ValueError("bug")

    async def settle(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not self.queue.is_idle:
                await asyncio.sleep(0)


def alter(answers: list[AlterPartitionResponse | ApiError]) -> AlterPartitionReceived:
    return AlterPartitionReceived(AlterPartitionRequest(broker_id=1), 3, answers.append)


async def test_events_are_handled_in_order_with_cause_names() -> None:
    handler = RecordingHandler()
    handler.queue.put(TopicsChanged())
    handler.queue.put(BrokersChanged())
    await handler.settle()
    assert handler.seen == [
        (TopicsChanged(), "TopicsChanged#1"),
        (BrokersChanged(), "BrokersChanged#2"),
    ]
    await handler.tasks.stop()


async def test_queued_event_is_not_queued_twice() -> None:
    handler = RecordingHandler()
    handler.gate.clear()
    await handler.queue.put(TopicsChanged())
    handler.queue.put(TopicsChanged())
    handler.queue.put(TopicsChanged())
    handler.gate.set()
    await handler.settle()
    assert [event for event, _ in handler.seen] == [TopicsChanged(), TopicsChanged()]
    await handler.tasks.stop()


async def test_failing_handler_does_not_stop_the_queue() -> None:
    handler = RecordingHandler()
    handler.queue.put(PartitionsModified("bad"))
    handler.queue.put(TopicsChanged())
    await handler.settle()
    assert len(handler.seen) == 2
    await handler.tasks.stop()


async def test_clear_answers_waiters_and_puts_event_first() -> None:
    handler = RecordingHandler()
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
