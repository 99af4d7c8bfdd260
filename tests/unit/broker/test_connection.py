"""Frames in, answers out: however the bytes are cut, whoever answers late, whatever lies about its length."""

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
    CONTROL_BYTES_MAX,
    HELD_BYTES_MAX,
    IDLE_BUFFER_BYTES,
    PENDING_MAX,
    CloseConnection,
    Connection,
    EncodedResponse,
    MemoryBudget,
    PendingResponse,
    ServeResult,
)
from barnabas.errors import RemoteWireError
from barnabas.world.ports import Part


@pytest.fixture(autouse=True)
def _patient_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a turn may otherwise end between any two frames."""
    monkeypatch.setattr(connection, "WORK_SECONDS_MAX", 60.0)


class MemoryStream:
    """A stream whose other end is the test. `takes` says whether it accepts answers at once."""

    def __init__(self) -> None:
        self.peer = ("10.0.0.1", 1234)
        self.sent: list[Part] = []
        self.takes = True
        self.is_reading = True
        self.reason: str | None = None
        self.connection: Connection | None = None

    def send(self, parts: Sequence[Part]) -> bool:
        self.sent += parts
        return self.takes

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
        """As the network door does: into the buffer, as much as fits, only while reading is on."""
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


class Echo:
    """A connection that answers each frame with itself, or as `answers` says."""

    def __init__(self, *, frame_bytes_max: int = 100 << 20, budget: int = 1 << 30) -> None:
        self.stream = MemoryStream()
        self.frames: list[bytes] = []
        self.later: list[asyncio.Future[EncodedResponse]] = []
        self.is_late = False
        self.memory = MemoryBudget(budget)
        self.connection = Connection(
            self.stream,
            listener_name="PLAINTEXT",
            serve=self.serve,
            on_closed=lambda _: None,
            memory=self.memory,
            frame_bytes_max=frame_bytes_max,
        )
        self.stream.connection = self.connection

    def serve(self, frame: memoryview, _: Connection) -> ServeResult:
        data = bytes(frame)
        self.frames.append(data)
        if data == b"refuse":
            raise CloseConnection("as you wish")
        if data == b"lie":
            raise RemoteWireError("a lie")
        if data == b"bug":
            raise KeyError("bug")
        if data == b"silent":
            return None
        if self.is_late or data.startswith(b"promise"):
            future: asyncio.Future[EncodedResponse] = asyncio.get_running_loop().create_future()
            self.later.append(future)
            return future if self.is_late else PendingResponse(future, lambda answer: answer)
        return [data]


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


def is_paused(echo: Echo) -> bool:
    return not echo.stream.is_reading


async def some_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_refused_request_is_freed_without_a_garbage_collection() -> None:
    class Request:
        """Stands for what a handler holds."""

    requests: list[weakref.ref[Request]] = []

    async def handle() -> EncodedResponse:
        request = Request()
        requests.append(weakref.ref(request))
        await asyncio.sleep(0)
        raise CloseConnection("the response is too large")

    echo = Echo()
    echo.connection.serve = lambda *_: handle()
    gc.disable()
    try:
        echo.stream.deliver(framed(b"request"))
        await some_turns()
        assert echo.stream.reason == "the response is too large"
        assert requests[0]() is None
    finally:
        gc.enable()


@settings(max_examples=60)
@given(
    payloads=st.lists(st.binary(max_size=3000), min_size=1, max_size=20),
    cuts=st.lists(st.integers(1, 5000), min_size=1, max_size=30),
)
def test_frames_come_whole_however_they_are_cut(payloads: list[bytes], cuts: list[int]) -> None:
    async def run() -> None:
        echo = Echo()
        data = framed(*payloads)
        index = 0
        while data:
            size = cuts[index % len(cuts)]
            echo.stream.deliver(data[:size])
            data = data[size:]
            index += 1
        await some_turns()
        kept = [p for p in payloads if p not in (b"refuse", b"lie", b"bug", b"silent")]
        assert echo.frames == payloads
        assert echo.stream.sent == kept

    asyncio.run(run())


async def test_a_large_frame_grows_the_buffer_and_idleness_takes_it_back() -> None:
    echo = Echo()
    payload = bytes(range(256)) * 16_000
    echo.stream.deliver(framed(b"\x00\x00" + payload))
    assert echo.frames == [b"\x00\x00" + payload]
    assert echo.connection.capacity >= len(payload)
    assert echo.memory.used_bytes > 0
    echo.connection.shrink_when_idle()
    assert echo.connection.capacity == IDLE_BUFFER_BYTES
    assert echo.memory.used_bytes == 0
    echo.stream.deliver(framed(b"again"))
    assert echo.frames[-1] == b"again"


async def test_an_announced_length_costs_nothing_until_its_bytes_arrive() -> None:
    echo = Echo()
    echo.stream.deliver(struct.pack(">i", 90 << 20) + b"\x00\x00")
    assert echo.connection.capacity <= BUSY_BUFFER_BYTES
    assert echo.stream.reason is None


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
async def test_an_impossible_length_ends_the_connection(size: int) -> None:
    echo = Echo(frame_bytes_max=1000)
    echo.stream.deliver(framed(b"fine") + struct.pack(">i", size))
    assert echo.stream.sent == [b"fine"]
    assert echo.stream.reason is not None
    assert "socket.request.max.bytes" in echo.stream.reason


async def test_only_produce_may_be_large() -> None:
    for api_key, refused in ((0, False), (3, True), (-1, True)):
        echo = Echo()
        echo.stream.deliver(struct.pack(">ih", CONTROL_BYTES_MAX + 1, api_key))
        assert (echo.stream.reason is not None) == refused


async def test_one_request_at_a_time_and_answers_in_order() -> None:
    echo = Echo()
    echo.is_late = True
    echo.stream.deliver(framed(b"one", b"two"))
    assert echo.frames == [b"one"]
    echo.later[0].set_result([b"answer one"])
    await some_turns()
    assert echo.frames == [b"one", b"two"]
    echo.later[1].set_result([b"answer two"])
    await some_turns()
    assert echo.stream.sent == [b"answer one", b"answer two"]


async def test_who_does_not_read_is_not_read() -> None:
    echo = Echo()
    echo.stream.takes = False
    echo.stream.deliver(framed(b"one"))
    assert is_paused(echo)
    assert echo.frames == [b"one"]
    echo.stream.takes = True
    echo.connection.drained()
    assert echo.stream.is_reading
    echo.stream.deliver(framed(b"two"))
    assert echo.stream.sent == [b"one", b"two"]


async def test_a_full_buffer_pauses_reading_while_a_request_waits() -> None:
    echo = Echo()
    echo.is_late = True
    echo.stream.deliver(framed(b"wait"))
    echo.stream.deliver(bytes(len(echo.connection.buffer())))
    assert is_paused(echo)
    echo.connection.start = echo.connection.end  # the zeroes were four-byte frames of nothing
    echo.later[0].set_result([b"done"])
    await some_turns()
    assert echo.stream.is_reading


@pytest.mark.parametrize("payload", [b"refuse", b"lie", b"bug"])
async def test_a_failure_ends_the_connection_after_the_answers_before_it(payload: bytes) -> None:
    echo = Echo()
    echo.stream.deliver(framed(b"before", payload, b"after"))
    assert echo.frames == [b"before", payload]
    assert echo.stream.sent == [b"before"]
    assert echo.stream.reason is not None


async def test_a_closed_connection_gives_up_what_it_waited_for() -> None:
    echo = Echo()
    echo.is_late = True
    echo.stream.deliver(framed(b"one"))
    echo.stream.close("gone")
    await some_turns()
    assert echo.later[0].cancelled()


async def test_frames_over_the_budget_wait_for_each_other() -> None:
    first, second = Echo(budget=1 << 20), Echo()
    second.memory = second.connection.memory = first.memory
    large = b"\x00\x00" + bytes(900_000)
    first.is_late = True
    first.stream.deliver(framed(large))
    assert first.frames == [large]
    announced = framed(large)
    second.stream.deliver(announced[:IDLE_BUFFER_BYTES])
    assert is_paused(second), "the budget is used up"
    first.later[0].set_result([b"done"])
    await some_turns()
    assert second.stream.is_reading
    second.stream.deliver(announced[IDLE_BUFFER_BYTES:])
    assert second.frames == [large]


# ---- promises


async def test_the_next_frames_are_served_while_a_promise_is_not_kept_yet() -> None:
    echo = Echo()
    echo.stream.deliver(framed(b"first", b"promise 1", b"second", b"promise 2", b"third"))
    assert echo.frames == [b"first", b"promise 1", b"second", b"promise 2", b"third"]
    assert echo.stream.sent == [b"first"], "answers keep the order of their requests"
    echo.later[1].set_result([b"kept 2"])
    await some_turns()
    assert echo.stream.sent == [b"first"]
    echo.later[0].set_result([b"kept 1"])
    await some_turns()
    assert echo.stream.sent == [b"first", b"kept 1", b"second", b"kept 2", b"third"]
    echo.stream.deliver(framed(b"fourth"))
    assert echo.stream.sent[-1] == b"fourth"


async def test_who_has_many_promises_waits_with_them() -> None:
    echo = Echo()
    echo.stream.deliver(framed(*[b"promise"] * 31, b"last"))
    for _ in range(3):
        echo.stream.deliver(framed(*[b"promise"] * 20))
    await some_turns()
    assert len(echo.frames) == PENDING_MAX
    for future in echo.later[:30]:
        future.set_result([b"kept"])
    await some_turns()
    assert len(echo.frames) == 32 + 60
    assert echo.stream.sent == [b"kept"] * 30


async def test_with_very_many_promises_everywhere_each_connection_has_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("barnabas.broker.connection.PENDING_TOTAL_MAX", 10)
    greedy, modest = Echo(), Echo()
    modest.connection.memory = greedy.memory
    greedy.stream.deliver(framed(*[b"promise"] * 20))
    modest.stream.deliver(framed(*[b"promise"] * 3))
    await some_turns()
    assert (len(greedy.frames), len(modest.frames)) == (10, 1)
    modest.later[0].set_result([b"kept"])
    await some_turns()
    assert len(modest.frames) == 2, "nobody waits for what others were promised"
    for future in greedy.later[:10]:
        future.set_result([b"kept"])
    await some_turns()
    assert len(greedy.frames) == 19
    greedy.stream.close("gone")
    modest.stream.close("gone")
    await some_turns()
    assert greedy.memory.pending_responses == 0


async def test_large_answers_do_not_pile_up_behind_a_promise() -> None:
    echo = Echo()
    large = bytes(HELD_BYTES_MAX // 2)
    echo.stream.deliver(framed(b"promise", large, large))
    for _ in range(2):
        echo.stream.deliver(framed(b"small"))
    await some_turns()
    assert len(echo.frames) == 3
    echo.later[0].set_result([b"kept"])
    await some_turns()
    assert echo.stream.sent == [b"kept", large, large, b"small", b"small"]
    assert echo.connection.held_bytes == 0


async def test_what_waits_in_another_way_comes_after_what_was_promised() -> None:
    echo = Echo()
    echo.stream.deliver(framed(b"promise"))
    echo.is_late = True
    echo.stream.deliver(framed(b"wait", b"next"))
    echo.is_late = False
    echo.later[1].set_result([b"waited"])
    await some_turns()
    assert echo.frames == [b"promise", b"wait", b"next"]
    assert echo.stream.sent == []
    echo.later[0].set_result([b"kept"])
    await some_turns()
    assert echo.stream.sent == [b"kept", b"waited", b"next"]


@pytest.mark.parametrize("bad", [b"refuse", b"lie", b"bug"])
async def test_promises_are_kept_before_a_connection_ends(bad: bytes) -> None:
    echo = Echo()
    echo.stream.deliver(framed(b"first", b"promise", b"second", bad, b"never"))
    assert echo.stream.sent == [b"first"]
    assert is_paused(echo)
    echo.later[0].set_result([b"kept"])
    await some_turns()
    assert echo.stream.sent == [b"first", b"kept", b"second"]
    assert echo.stream.reason is not None
    assert b"never" not in echo.frames


async def test_a_promise_that_is_broken_ends_the_connection_after_what_came_before() -> None:
    echo = Echo()
    echo.stream.deliver(framed(b"promise 1", b"promise 2", b"second"))
    echo.later[1].set_exception(KeyError("bug"))
    echo.later[0].set_result([b"kept"])
    await some_turns()
    assert echo.stream.sent == [b"kept"]
    assert echo.stream.reason == "internal error"


async def test_a_promise_that_is_broken_ends_those_behind_it() -> None:
    echo = Echo()
    echo.stream.deliver(framed(b"promise 1", b"promise 2"))
    echo.later[0].set_exception(KeyError("bug"))
    await some_turns()
    assert echo.stream.reason == "internal error"
    assert echo.later[1].cancelled()
    assert echo.memory.pending_responses == 0


async def test_nobody_waits_for_what_was_promised_to_who_is_gone() -> None:
    echo = Echo()
    echo.stream.deliver(framed(b"promise"))
    echo.stream.close("gone")
    await some_turns()
    assert echo.later[0].cancelled()
    assert echo.stream.sent == []
