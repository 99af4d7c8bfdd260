"""Request memory of connections: granted in order, counted once, released when a connection closes."""

from __future__ import annotations

import asyncio

from barnabas.broker import connection as connections
from barnabas.broker import memory_budget
from barnabas.broker.connection import BUSY_BUFFER_BYTES, Connection, PendingResponse
from barnabas.broker.memory_budget import MemoryBudget
from barnabas.broker.request_metrics import RequestMetrics
from barnabas.world.ports import Part
from tests.unit.broker.test_connection import MemoryStream

LARGE = 10 * BUSY_BUFFER_BYTES
CLIENTS = 3


def open_stream(memory: MemoryBudget) -> MemoryStream:
    stream = MemoryStream()
    stream.connection = Connection(
        stream,
        listener_name="PLAINTEXT",
        serve=lambda frame, _: [bytes(frame)],
        on_closed=lambda _: None,
        memory=memory,
        frame_bytes_max=100 << 20,
        metrics=RequestMetrics(),
    )
    return stream


async def run_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def begin_frame(stream: MemoryStream, size: int) -> Connection:
    """Deliver the first bytes of a frame."""
    stream.deliver(connections.SIZE.pack(size) + bytes(2))
    assert stream.connection is not None
    return stream.connection


async def test_memory_is_granted_in_request_order() -> None:
    memory = MemoryBudget(LARGE + 4)
    first, *others = (begin_frame(open_stream(memory), LARGE) for _ in range(CLIENTS))
    assert first.reserved_bytes == memory.used_bytes == LARGE + 4
    assert list(memory.waiting) == others
    small = begin_frame(open_stream(memory), BUSY_BUFFER_BYTES)
    assert list(memory.waiting) == [*others, small]
    first.stream.close("gone")
    await run_loop()
    assert others[0].reserved_bytes == memory.used_bytes
    assert list(memory.waiting) == [others[1], small]


async def test_closed_connections_release_memory() -> None:
    memory = MemoryBudget(LARGE + 4)
    streams = [open_stream(memory) for _ in range(CLIENTS)]
    for stream in streams:
        begin_frame(stream, LARGE)
    for stream in streams:
        stream.close("gone")
        await run_loop()
    assert (memory.used_bytes, dict(memory.holders), dict(memory.waiting)) == (0, {}, {})


async def test_waiting_connection_is_counted_once() -> None:
    """A connection works again when the response to an earlier produce is ready."""
    memory = MemoryBudget(LARGE + 4)
    holder, waiter = (begin_frame(open_stream(memory), LARGE) for _ in range(2))
    waiter.serve_frames()
    waiter.serve_frames()
    assert list(memory.waiting) == [waiter]
    holder.stream.close("gone")
    waiter.serve_frames()
    await run_loop()
    assert waiter.reserved_bytes == memory.used_bytes == LARGE + 4
    assert not waiter.waits_for_memory
    waiter.stream.close("gone")
    assert memory.used_bytes == 0


async def test_connection_with_oldest_unread_responses_is_closed() -> None:
    memory = MemoryBudget(LARGE)
    streams = [open_stream(memory) for _ in range(CLIENTS)]
    for stream in streams:
        assert stream.connection is not None
        memory.add_unsent(stream.connection, memory_budget.UNSENT_BYTES_MAX // 2)
    assert [stream.reason is not None for stream in streams] == [True, False, False]
    assert memory.unsent_bytes == memory_budget.UNSENT_BYTES_MAX


async def test_promise_is_dropped_if_connection_is_closed() -> None:
    started = []

    async def waiting() -> None:
        started.append(True)

    def encode(_: object) -> list[Part]:
        return []

    async def serve() -> PendingResponse:
        return PendingResponse(waiting(), encode)

    stream = open_stream(MemoryBudget(LARGE))
    assert stream.connection is not None
    stream.connection.await_response(serve())
    answering = stream.connection.in_progress
    assert answering is not None
    answering.remove_done_callback(stream.connection.handle_finished_request)
    await answering
    stream.connection.is_closed = True
    stream.connection.handle_finished_request(
        answering
    )  # a coroutine that is never awaited would fail this test
    assert not started
