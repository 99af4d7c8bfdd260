"""Connection of a client: framing, response order, backpressure and memory limits."""

from __future__ import annotations

import asyncio
import gc
import struct
import weakref
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker import connection
from barnabas.broker.connection import (
    BUSY_BUFFER_BYTES,
    IDLE_BUFFER_BYTES,
    PENDING_MAX,
    QUEUED_BYTES_MAX,
    REQUEST_BYTES_MAX,
    CloseConnection,
    Connection,
    EncodedResponse,
    PendingResponse,
    ServeResult,
)
from barnabas.broker.memory_budget import MemoryBudget
from barnabas.broker.request_metrics import RequestMetrics
from barnabas.errors import RemoteWireError
from barnabas.world.ports import Part


@pytest.fixture(autouse=True)
def _long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Avoid turns that end between two frames on a busy machine."""
    monkeypatch.setattr(connection, "WORK_SECONDS_MAX", 60.0)


class MemoryStream:
    """Stream whose peer is the test. `is_writable` is False while the peer does not read."""

    peer_certificate: bytes | None = None

    def __init__(self) -> None:
        self.peer = ("10.0.0.1", 1234)
        self.sent: list[Part] = []
        self.is_writable = True
        self.is_reading = True
        self.reason: str | None = None
        self.connection: Connection | None = None

    def send(self, parts: Sequence[Part]) -> bool:
        self.sent += parts
        return self.is_writable

    def pause(self) -> None:
        self.is_reading = False

    def resume(self) -> None:
        self.is_reading = True

    def close(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            assert self.connection is not None
            self.connection.closed(reason)

    def deliver(self, data: bytes) -> None:
        """Copy data into the connection's buffer, as the network does: in parts that fit, only
        while reading is on.
        """
        connection = self.connection
        assert connection is not None
        while data and self.reason is None:
            assert self.is_reading, "delivered to a paused stream"
            room = connection.buffer()
            assert len(room) > 0
            size = min(len(room), len(data))
            room[:size] = data[:size]
            connection.received(size)
            data = data[size:]


class EchoConnection:
    """Connection that answers each frame with itself, or late or not at all for some payloads."""

    def __init__(self, *, frame_bytes_max: int = 100 << 20, budget: int = 1 << 30) -> None:
        self.stream = MemoryStream()
        self.frames: list[bytes] = []
        self.later: list[asyncio.Future[EncodedResponse]] = []
        self.is_late = False
        self.memory = MemoryBudget(budget)
        self.metrics = RequestMetrics()
        self.connection = Connection(
            self.stream,
            listener_name="PLAINTEXT",
            serve=self.serve,
            on_closed=lambda _: None,
            memory=self.memory,
            frame_bytes_max=frame_bytes_max,
            metrics=self.metrics,
        )
        self.stream.connection = self.connection

    def serve(self, frame: memoryview, _: Connection) -> ServeResult:
        data = bytes(frame)
        self.frames.append(data)
        if data == b"refuse":
            raise CloseConnection("refused")
        if data == b"malformed":
            raise RemoteWireError("malformed")
        if data == b"bug":
            raise KeyError("bug")
        if data == b"silent":
            return None
        if self.is_late or data.startswith(b"promise"):
            future: asyncio.Future[EncodedResponse] = asyncio.get_running_loop().create_future()
            self.later.append(future)
            return future if self.is_late else PendingResponse(future, lambda answer: answer)
        return [data]


def frames_of(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


def is_paused(echo: EchoConnection) -> bool:
    return not echo.stream.is_reading


async def run_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_rejected_request_is_freed_without_garbage_collection() -> None:
    class Request:
        """Stands for the objects a handler holds."""

    requests: list[weakref.ref[Request]] = []

    async def handle() -> EncodedResponse:
        request = Request()
        requests.append(weakref.ref(request))
        await asyncio.sleep(0)
        raise CloseConnection("the response is too large")

    echo = EchoConnection()
    echo.connection.serve = lambda *_: handle()
    gc.disable()
    try:
        echo.stream.deliver(frames_of(b"request"))
        await run_loop()
        assert echo.stream.reason == "the response is too large"
        assert requests[0]() is None
    finally:
        gc.enable()


@settings(max_examples=60)
@given(
    payloads=st.lists(st.binary(max_size=3000), min_size=1, max_size=20),
    cuts=st.lists(st.integers(1, 5000), min_size=1, max_size=30),
)
def test_frames_are_reassembled_from_any_chunks(payloads: list[bytes], cuts: list[int]) -> None:
    async def run() -> None:
        echo = EchoConnection()
        data = frames_of(*payloads)
        index = 0
        while data:
            size = cuts[index % len(cuts)]
            echo.stream.deliver(data[:size])
            data = data[size:]
            index += 1
        await run_loop()
        kept = [p for p in payloads if p not in (b"refuse", b"malformed", b"bug", b"silent")]
        assert echo.frames == payloads
        assert echo.stream.sent == kept

    asyncio.run(run())


async def test_buffer_grows_for_large_frame_and_shrinks_when_idle() -> None:
    echo = EchoConnection()
    payload = bytes(range(256)) * 16_000
    echo.stream.deliver(frames_of(b"\x00\x00" + payload))
    assert echo.frames == [b"\x00\x00" + payload]
    assert echo.connection.capacity >= len(payload)
    assert echo.memory.used_bytes > 0
    echo.connection.shrink_when_idle()
    assert echo.connection.capacity == IDLE_BUFFER_BYTES
    assert echo.memory.used_bytes == 0
    echo.stream.deliver(frames_of(b"again"))
    assert echo.frames[-1] == b"again"


async def test_announced_length_allocates_nothing_before_data_arrives() -> None:
    echo = EchoConnection()
    echo.stream.deliver(struct.pack(">i", 90 << 20) + b"\x00\x00")
    assert echo.connection.capacity <= BUSY_BUFFER_BYTES
    assert echo.stream.reason is None


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
async def test_invalid_frame_length_closes_connection(size: int) -> None:
    echo = EchoConnection(frame_bytes_max=1000)
    echo.stream.deliver(frames_of(b"fine") + struct.pack(">i", size))
    assert echo.stream.sent == [b"fine"]
    assert echo.stream.reason is not None
    assert "socket.request.max.bytes" in echo.stream.reason


async def test_only_produce_may_exceed_control_size_limit() -> None:
    for api_key, refused in ((0, False), (3, True), (-1, True)):
        echo = EchoConnection()
        echo.stream.deliver(struct.pack(">ih", REQUEST_BYTES_MAX + 1, api_key))
        assert (echo.stream.reason is not None) == refused


async def test_requests_are_handled_one_by_one_and_answered_in_order() -> None:
    echo = EchoConnection()
    echo.is_late = True
    echo.stream.deliver(frames_of(b"one", b"two"))
    assert echo.frames == [b"one"]
    echo.later[0].set_result([b"answer one"])
    await run_loop()
    assert echo.frames == [b"one", b"two"]
    echo.later[1].set_result([b"answer two"])
    await run_loop()
    assert echo.stream.sent == [b"answer one", b"answer two"]


async def test_reading_pauses_while_client_does_not_read() -> None:
    echo = EchoConnection()
    echo.stream.is_writable = False
    echo.stream.deliver(frames_of(b"one"))
    assert is_paused(echo)
    assert echo.frames == [b"one"]
    echo.stream.is_writable = True
    echo.connection.drained()
    assert echo.stream.is_reading
    echo.stream.deliver(frames_of(b"two"))
    assert echo.stream.sent == [b"one", b"two"]


async def test_full_buffer_pauses_reading_while_request_waits() -> None:
    echo = EchoConnection()
    echo.is_late = True
    echo.stream.deliver(frames_of(b"wait"))
    echo.stream.deliver(bytes(len(echo.connection.buffer())))
    assert is_paused(echo)
    echo.connection.start = echo.connection.end  # skip the zeros: they would be empty frames
    echo.later[0].set_result([b"done"])
    await run_loop()
    assert echo.stream.is_reading


@pytest.mark.parametrize("payload", [b"refuse", b"malformed", b"bug"])
async def test_failure_closes_connection_after_earlier_responses(payload: bytes) -> None:
    echo = EchoConnection()
    echo.stream.deliver(frames_of(b"before", payload, b"after"))
    assert echo.frames == [b"before", payload]
    assert echo.stream.sent == [b"before"]
    assert echo.stream.reason is not None


async def test_close_cancels_pending_request() -> None:
    echo = EchoConnection()
    echo.is_late = True
    echo.stream.deliver(frames_of(b"one"))
    echo.stream.close("gone")
    await run_loop()
    assert echo.later[0].cancelled()


async def test_frames_over_the_budget_wait_for_memory() -> None:
    first, second = EchoConnection(budget=1 << 20), EchoConnection()
    second.memory = second.connection.memory = first.memory
    large = b"\x00\x00" + bytes(900_000)
    first.is_late = True
    first.stream.deliver(frames_of(large))
    assert first.frames == [large]
    announced = frames_of(large)
    second.stream.deliver(announced[:IDLE_BUFFER_BYTES])
    assert is_paused(second), "the budget is used up"
    first.later[0].set_result([b"done"])
    await run_loop()
    assert second.stream.is_reading
    second.stream.deliver(announced[IDLE_BUFFER_BYTES:])
    assert second.frames == [large]


# ---- promises: responses that are not ready yet


async def test_later_frames_are_served_while_promise_is_pending() -> None:
    echo = EchoConnection()
    echo.stream.deliver(frames_of(b"first", b"promise 1", b"second", b"promise 2", b"third"))
    assert echo.frames == [b"first", b"promise 1", b"second", b"promise 2", b"third"]
    assert echo.stream.sent == [b"first"], "responses keep the order of their requests"
    echo.later[1].set_result([b"kept 2"])
    await run_loop()
    assert echo.stream.sent == [b"first"]
    echo.later[0].set_result([b"kept 1"])
    await run_loop()
    assert echo.stream.sent == [b"first", b"kept 1", b"second", b"kept 2", b"third"]
    echo.stream.deliver(frames_of(b"fourth"))
    assert echo.stream.sent[-1] == b"fourth"


async def test_connection_pauses_at_promise_limit() -> None:
    echo = EchoConnection()
    echo.stream.deliver(frames_of(*[b"promise"] * 31, b"last"))
    for _ in range(3):
        echo.stream.deliver(frames_of(*[b"promise"] * 20))
    await run_loop()
    assert len(echo.frames) == PENDING_MAX
    for future in echo.later[:30]:
        future.set_result([b"kept"])
    await run_loop()
    assert len(echo.frames) == 32 + 60
    assert echo.stream.sent == [b"kept"] * 30


async def test_global_promise_limit_leaves_one_per_connection() -> None:
    greedy, modest = EchoConnection(), EchoConnection()
    greedy.memory.pending_responses_max = 10
    modest.connection.memory = greedy.memory
    greedy.stream.deliver(frames_of(*[b"promise"] * 20))
    modest.stream.deliver(frames_of(*[b"promise"] * 3))
    await run_loop()
    assert (len(greedy.frames), len(modest.frames)) == (10, 1)
    modest.later[0].set_result([b"kept"])
    await run_loop()
    assert len(modest.frames) == 2, "a connection does not wait for the promises of others"
    for future in greedy.later[:10]:
        future.set_result([b"kept"])
    await run_loop()
    assert len(greedy.frames) == 19
    greedy.stream.close("gone")
    modest.stream.close("gone")
    await run_loop()
    assert greedy.memory.pending_responses == 0


async def test_large_responses_do_not_accumulate_after_a_promise() -> None:
    echo = EchoConnection()
    large = bytes(QUEUED_BYTES_MAX // 2)
    echo.stream.deliver(frames_of(b"promise", large, large))
    for _ in range(2):
        echo.stream.deliver(frames_of(b"small"))
    await run_loop()
    assert len(echo.frames) == 3
    echo.later[0].set_result([b"kept"])
    await run_loop()
    assert echo.stream.sent == [b"kept", large, large, b"small", b"small"]
    assert echo.connection.queued_bytes == 0


async def test_async_response_is_sent_after_earlier_promise() -> None:
    echo = EchoConnection()
    echo.stream.deliver(frames_of(b"promise"))
    echo.is_late = True
    echo.stream.deliver(frames_of(b"wait", b"next"))
    echo.is_late = False
    echo.later[1].set_result([b"waited"])
    await run_loop()
    assert echo.frames == [b"promise", b"wait", b"next"]
    assert echo.stream.sent == []
    echo.later[0].set_result([b"kept"])
    await run_loop()
    assert echo.stream.sent == [b"kept", b"waited", b"next"]


@pytest.mark.parametrize("bad", [b"refuse", b"malformed", b"bug"])
async def test_pending_promises_are_sent_before_connection_closes(bad: bytes) -> None:
    echo = EchoConnection()
    echo.stream.deliver(frames_of(b"first", b"promise", b"second", bad, b"never"))
    assert echo.stream.sent == [b"first"]
    assert is_paused(echo)
    echo.later[0].set_result([b"kept"])
    await run_loop()
    assert echo.stream.sent == [b"first", b"kept", b"second"]
    assert echo.stream.reason is not None
    assert b"never" not in echo.frames


async def test_failed_promise_closes_connection_after_earlier_responses() -> None:
    echo = EchoConnection()
    echo.stream.deliver(frames_of(b"promise 1", b"promise 2", b"second"))
    echo.later[1].set_exception(KeyError("bug"))
    echo.later[0].set_result([b"kept"])
    await run_loop()
    assert echo.stream.sent == [b"kept"]
    assert echo.stream.reason == "internal error"


async def test_failed_promise_cancels_later_promises() -> None:
    echo = EchoConnection()
    echo.stream.deliver(frames_of(b"promise 1", b"promise 2"))
    echo.later[0].set_exception(KeyError("bug"))
    await run_loop()
    assert echo.stream.reason == "internal error"
    assert echo.later[1].cancelled()
    assert echo.memory.pending_responses == 0


async def test_close_cancels_pending_promise() -> None:
    echo = EchoConnection()
    echo.stream.deliver(frames_of(b"promise"))
    echo.stream.close("gone")
    await run_loop()
    assert echo.later[0].cancelled()
    assert echo.stream.sent == []


async def test_throttled_connection_serves_the_next_frame_after_the_wait() -> None:
    echo = EchoConnection()
    echo.is_late = True
    echo.stream.deliver(frames_of(b"first", b"second"))
    echo.is_late = False
    echo.connection.throttle_seconds = 0.2
    began = asyncio.get_running_loop().time()
    echo.later[0].set_result([b"answer"])
    await run_loop()
    assert echo.stream.sent == [b"answer"], "the response is sent before the wait"
    assert echo.frames == [b"first"]
    echo.stream.deliver(frames_of(b"third"))
    async with asyncio.timeout(30):
        while len(echo.frames) < 3:
            await asyncio.sleep(0.01)
    assert asyncio.get_running_loop().time() - began >= 0.19
    assert echo.stream.sent == [b"answer", b"second", b"third"]
    assert echo.connection.throttle_seconds == 0


async def test_throttled_connection_can_be_closed() -> None:
    echo = EchoConnection()
    echo.is_late = True
    echo.stream.deliver(frames_of(b"first", b"second"))
    echo.connection.throttle_seconds = 3600.0
    echo.later[0].set_result([b"answer"])
    await run_loop()
    echo.stream.close("bye")
    await run_loop()
    assert echo.frames == [b"first"]
    assert echo.connection.in_progress is None
