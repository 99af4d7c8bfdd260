"""One client connection: bytes become frames, frames are served one at a time, answers leave in order.

    received ─► [ frame | frame | part of a fr… ]  ─► serve(frame) ─► parts ─► stream.send
                  ▲ start                  ▲ end

A frame is a view of this connection's buffer, not a copy: a produced batch goes from here into its file. The buffer is
therefore left alone while a request is being answered, which also keeps responses ordered and makes a client that does
not read its answers stop being read itself.

A Promise is an answer whose request has been carried out: a batch that is in its log, and waits for its replicas. It
needs its frame no longer, so the next ones are served meanwhile, and followers copy several batches at a time. Answers
keep the order of their requests. How many may wait is limited, here and for all connections together.

The buffer starts small, grows to hold the frame at hand (only as its bytes arrive: a lying length costs nothing), and
is given back when the connection falls idle. Whatever it has beyond its small size counts against `MemoryBudget`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from struct import Struct
from types import CoroutineType
from typing import Any

from barnabas.errors import RemoteWireError
from barnabas.wire.apis import ApiKey
from barnabas.wire.fast import RepeatedFetches, RepeatedProduces
from barnabas.world.ports import FileSlice, Part, Stream

logger = logging.getLogger("barnabas.network")

IDLE_BUFFER_BYTES = 16 * 1024
BUSY_BUFFER_BYTES = 256 * 1024  # several pipelined requests in one read
CONTROL_BYTES_MAX = 1024 * 1024
FRAMES_PER_TURN = 32
PROMISES_MAX = 64  # answers that wait; then the connection waits with them
PROMISES_OF_ALL_MAX = 10_000  # of all connections; then each has one at a time, some kilobytes each
HELD_BYTES_MAX = 256 * 1024  # of answers that stand behind a promise
ARRIVAL_SECONDS_MAX = 30.0  # for a large frame, when others wait for its memory
STALLED_SECONDS_MAX = 1.0  # without a byte of it
RELIEF_SECONDS = 0.05  # between two searches for memory that others can have
WORK_SECONDS_MAX = 0.005  # on the frames of one connection, before others are served
UNSENT_BYTES_MAX = 64 << 20  # of responses that clients have not read yet, on all connections
LARGE_RESPONSE_BYTES = 64 * 1024  # such responses are sent one by one
CONTROLLER_REQUESTS = frozenset(
    {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
)
"""Requests that only the controller sends."""
BETWEEN_BROKERS = CONTROLLER_REQUESTS | {ApiKey.CONTROLLED_SHUTDOWN, ApiKey.ALTER_PARTITION}
"""Requests that only brokers send."""
MAY_BE_LARGE = CONTROLLER_REQUESTS | {ApiKey.PRODUCE}
"""Requests that may have more than CONTROL_BYTES_MAX."""

SIZE = Struct(">i")
KEY = Struct(">h")

Answer = list[Part] | None  # None: nothing is sent back (acks=0)


class CloseConnection(Exception):
    """The request cannot be answered; the connection ends with this one line."""


class Promise:
    """A response that comes later, to a request that has been carried out. Cancelled when the client disconnects."""

    __slots__ = ("encode", "future", "waiting")

    def __init__(self, waiting: Awaitable[Any], encode: Callable[[Any], Answer]) -> None:
        self.waiting = waiting
        self.encode = encode
        """What came of it, as it is sent."""
        self.future: asyncio.Future[Any] | None = None

    def forget(self) -> None:
        """Nobody waits for it: the client disconnected before it was promised."""
        if isinstance(self.waiting, CoroutineType):
            self.waiting.close()


Serve = Callable[[memoryview, "Connection"], Answer | Awaitable[Answer | Promise] | Promise]


class MemoryBudget:
    """Bounds on the memory of all connections together: large request buffers, and responses not yet read.

    A frame that does not fit waits, unread, until others are done. A connection is given its whole frame or nothing,
    so that two half-received frames never wait for each other. If too many bytes of responses are unsent, the
    connection whose client has not read for the longest time is closed.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.holders: dict[Connection, None] = {}
        self.waiting: dict[Connection, int] = {}
        """Bytes wanted by connection, the one that waits longest first."""
        self.promises = 0
        """Answers that wait, on all connections."""
        self.relief: asyncio.TimerHandle | None = None
        self.shrunk_at = -RELIEF_SECONDS
        self.unsent: dict[Connection, int] = {}
        """Bytes of responses by connection, the one that waits longest first."""
        self.unsent_bytes = 0

    def add_unsent(self, connection: Connection, size_bytes: int) -> None:
        self.unsent[connection] = self.unsent.get(connection, 0) + size_bytes
        self.unsent_bytes += size_bytes
        while self.unsent_bytes > UNSENT_BYTES_MAX and len(self.unsent) > 1:
            slowest = next(iter(self.unsent))
            self.remove_unsent(slowest)
            slowest.close("the client does not read its responses")

    def remove_unsent(self, connection: Connection) -> None:
        self.unsent_bytes -= self.unsent.pop(connection, 0)

    def take(self, size_bytes: int, connection: Connection, *, may_wait: bool = True) -> bool:
        """Whether the connection has the memory now. If not, and it may wait, it is granted later, in turn."""
        if connection in self.waiting:
            return False
        if may_wait and not self.fits(size_bytes):
            self.shrink_idle_holders()
        if self.waiting or not self.fits(size_bytes):
            if may_wait:
                self.waiting[connection] = size_bytes
                self.relieve_later()
            return False
        self.used_bytes += size_bytes
        self.holders[connection] = None
        return True

    def relieve_later(self) -> None:
        if self.relief is None:
            loop = asyncio.get_running_loop()
            self.relief = loop.call_later(RELIEF_SECONDS, self.relieve)

    def shrink_idle_holders(self) -> None:
        """Once in a while only: thousands of connections may ask for memory in one pass of the loop."""
        now = asyncio.get_running_loop().time()
        if now >= self.shrunk_at + RELIEF_SECONDS:
            self.shrunk_at = now
            for holder in list(self.holders):
                holder.shrink_when_idle()

    def relieve(self) -> None:
        """While others wait, close connections that have been promised memory and do not fill it. A few at a time."""
        self.relief = None
        self.shrink_idle_holders()
        loop = asyncio.get_running_loop()
        now = loop.time()
        for holder in list(self.holders):
            if self.waiting and holder.hoards_memory(now):
                holder.refuse([], "a large request is too slow (queued.max.request.bytes)")
            if loop.time() > now + WORK_SECONDS_MAX:
                self.relief = loop.call_later(0, self.relieve)
                return
        if self.waiting:
            self.relieve_later()

    def fits(self, size_bytes: int) -> bool:
        return not self.used_bytes or self.used_bytes + size_bytes <= self.limit_bytes

    def give_back(self, size_bytes: int, connection: Connection) -> None:
        self.used_bytes -= size_bytes
        del self.holders[connection]
        while self.waiting:
            waiter, wanted = next(iter(self.waiting.items()))
            if not self.fits(wanted):
                break
            del self.waiting[waiter]
            self.used_bytes += wanted
            self.holders[waiter] = None
            waiter.memory_granted(wanted)


class Connection:
    """The broker's end of a stream; implements `Receiver`."""

    __slots__ = (
        "active_at",
        "answering",
        "capacity",
        "client_software",
        "data",
        "end",
        "fetches",
        "frame_bytes_last",
        "frame_bytes_max",
        "held_bytes",
        "is_closed",
        "is_draining",
        "listener_name",
        "loop",
        "memory",
        "on_closed",
        "produces",
        "promised",
        "refusal",
        "reserved_at",
        "reserved_bytes",
        "room",
        "serve",
        "start",
        "stream",
        "view",
        "waits_for_memory",
        "was_filled",
    )

    def __init__(
        self,
        stream: Stream,
        *,
        listener_name: str,
        serve: Serve,
        on_closed: Callable[[Connection], None],
        memory: MemoryBudget,
        frame_bytes_max: int,
    ) -> None:
        self.stream = stream
        self.listener_name = listener_name
        self.serve = serve
        self.on_closed = on_closed
        self.memory = memory
        self.frame_bytes_max = frame_bytes_max
        self.loop = asyncio.get_running_loop()
        self.active_at = self.loop.time()
        self.capacity = IDLE_BUFFER_BYTES
        self.data = bytearray(self.capacity)
        self.view = memoryview(self.data)
        self.start = 0
        self.end = 0
        self.room = 0
        self.frame_bytes_last = 4
        self.reserved_bytes = 0
        self.reserved_at = 0.0
        self.client_software = ("", "")
        self.produces = RepeatedProduces()
        self.fetches = RepeatedFetches()
        self.answering: asyncio.Future[Answer | Promise] | None = None
        self.promised: deque[Promise | list[Part]] = deque()
        """What was promised, and the answers to later requests, which wait behind it."""
        self.held_bytes = 0
        self.refusal: str | None = None
        """Why the connection ends as soon as all promises are kept."""
        self.is_draining = False
        self.waits_for_memory = False
        self.was_filled = False
        self.is_closed = False

    # ---- Receiver

    def buffer(self) -> memoryview:
        """Room for as many whole frames as fit, taking them to be as large as the last one: a producer's often are, and
        what was read of a frame that does not fit has to be moved."""
        last = self.frame_bytes_last
        stop = self.start + (self.capacity - self.start) // last * last
        if stop <= self.end:
            stop = self.capacity
        self.room = stop - self.end
        return self.view[self.end : stop]

    def received(self, size: int) -> None:
        self.active_at = self.loop.time()
        self.end += size
        self.was_filled = size == self.room
        if self.answering is None and not self.is_draining:
            self.work()
        elif self.was_filled:
            self.stream.pause()

    def drained(self) -> None:
        self.is_draining = False
        self.memory.remove_unsent(self)
        self.active_at = self.loop.time()
        self.work()

    def closed(self, reason: str) -> None:
        self.is_closed = True
        if self.answering is not None:
            self.answering.cancel()
        self.forget_promises()
        self.memory.remove_unsent(self)
        self.memory.waiting.pop(self, None)
        self.release_memory()
        self.data, self.view, self.capacity = bytearray(), memoryview(b""), 0
        self.start = self.end = 0
        self.on_closed(self)

    # ---- frames

    def work(self) -> None:
        """Serve the frames that stand complete in the buffer, until one has to wait."""
        if self.is_closed or self.answering is not None or self.is_draining or self.refusal:
            return
        answers: list[Part] = []
        served = 0
        promised = self.promised
        deadline = self.loop.time() + WORK_SECONDS_MAX
        try:
            while not (promised and self.must_wait()) and (frame := self.next_frame()) is not None:
                answer = self.serve(frame, self)
                if isinstance(answer, list):
                    if promised:
                        self.hold(answer)
                    else:
                        answers += answer
                elif isinstance(answer, Promise):
                    self.promise(answer)
                elif answer is not None:
                    self.wait_for(answer)
                    break
                served += 1
                if self.start == self.end:
                    self.make_room(4)
                    break
                if served == FRAMES_PER_TURN or self.loop.time() > deadline or is_large(answers):
                    self.loop.call_soon(self.work)
                    break
        except (CloseConnection, RemoteWireError) as error:
            self.refuse(answers, str(error))
            return
        except Exception:
            logger.exception("request failed peer=%s:%s", *self.stream.peer)
            self.refuse(answers, "internal error")
            return
        self.send(answers)
        self.pause_or_resume()

    def send(self, answers: list[Part]) -> None:
        if answers and not self.stream.send(answers):
            self.is_draining = True
            self.memory.add_unsent(self, size_in_memory(answers))

    def next_frame(self) -> memoryview | None:
        start = self.start
        available = self.end - start
        if available < 4:
            self.make_room(4)
            return None
        size: int = SIZE.unpack_from(self.data, start)[0]
        if size < 0 or size > self.frame_bytes_max:
            raise RemoteWireError(
                f"frame of {size} bytes; allowed are 0 to {self.frame_bytes_max} "
                "(socket.request.max.bytes)"
            )
        if available - 4 < size:
            if size > CONTROL_BYTES_MAX and available >= 6:
                self.require_large(start + 4, size)
            self.make_room(4 + size)
            return None
        self.frame_bytes_last = 4 + size
        self.reserved_at = self.active_at
        self.start = start + 4 + size
        return self.view[start + 4 : start + 4 + size]

    def require_large(self, at: int, size: int) -> None:
        """Only batches are large, and what a controller says of ten thousand partitions. Any other request of that size
        is made of many small things, and decoding those would take a multiple of its bytes."""
        api_key: int = KEY.unpack_from(self.data, at)[0]
        if api_key not in MAY_BE_LARGE:
            raise RemoteWireError(
                f"request of {size} bytes with api key {api_key}; only Produce may have more than "
                f"{CONTROL_BYTES_MAX}"
            )

    def make_room(self, wanted: int) -> None:
        """So that the frame at `start`, of `wanted` bytes, can go on arriving."""
        have = self.end - self.start
        if have == 0:
            self.start = self.end = 0
        must_grow = wanted > IDLE_BUFFER_BYTES
        if must_grow and not self.reserve(max(wanted, BUSY_BUFFER_BYTES)):
            return
        # A buffer that was filled to its end has a peer that sends faster than we read. It doubles, whatever length was
        # announced: that may be a lie.
        larger = min(2 * self.capacity, max(wanted, BUSY_BUFFER_BYTES))
        may_grow = (self.was_filled or self.end == self.capacity) and larger > self.capacity
        if may_grow and self.reserve(larger, may_wait=must_grow):
            self.replace_buffer(larger)
        elif self.start and self.start + wanted > self.capacity:
            self.view[:have] = self.view[self.start : self.end]
            self.start, self.end = 0, have

    def replace_buffer(self, capacity: int) -> None:
        data = bytearray(capacity)
        have = self.end - self.start
        self.was_filled = have == capacity
        data[:have] = self.view[self.start : self.end]
        self.data, self.view, self.capacity = data, memoryview(data), capacity
        self.start, self.end = 0, have

    def reserve(self, size: int, *, may_wait: bool = True) -> bool:
        """Take memory for a buffer of this size. If there is none, wait for it, or do without."""
        if size <= self.reserved_bytes:
            return True
        # What an earlier frame left goes first: two who hold a part and wait for the rest would wait for each other.
        if self.reserved_bytes and may_wait:
            self.replace_buffer(max(IDLE_BUFFER_BYTES, self.end - self.start))
            self.release_memory()
        size = max(size, BUSY_BUFFER_BYTES)
        if self.reserved_bytes or not self.memory.take(size, self, may_wait=may_wait):
            self.waits_for_memory = may_wait
            return False
        self.reserved_bytes = size
        self.reserved_at = self.loop.time()
        return True

    def hoards_memory(self, now: float) -> bool:
        """Others wait for what a frame here has been promised, and it does not come."""
        return (
            bool(self.reserved_bytes and self.memory.waiting)
            and self.answering is None
            and (
                now - self.active_at > STALLED_SECONDS_MAX
                or now - self.reserved_at > ARRIVAL_SECONDS_MAX
            )
        )

    def memory_granted(self, size: int) -> None:
        self.waits_for_memory = False
        self.reserved_bytes = size
        self.reserved_at = self.loop.time()
        self.loop.call_soon(self.work)

    def release_memory(self) -> None:
        reserved, self.reserved_bytes = self.reserved_bytes, 0
        if reserved:
            self.memory.give_back(reserved, self)

    def shrink_when_idle(self) -> None:
        """Give a large buffer back: when nothing came for a while, or others need it."""
        if self.start == self.end and self.answering is None and not self.is_draining:
            if self.capacity > IDLE_BUFFER_BYTES:
                self.replace_buffer(IDLE_BUFFER_BYTES)
            self.release_memory()

    # ---- answers

    def wait_for(self, answer: Awaitable[Answer | Promise]) -> None:
        self.answering = asyncio.ensure_future(answer)
        self.answering.add_done_callback(self.answered)

    def answered(self, future: asyncio.Future[Answer | Promise]) -> None:
        self.answering = None
        if self.is_closed:
            if not future.cancelled() and future.exception() is None:
                result = future.result()
                if isinstance(result, Promise):
                    result.forget()
            return
        try:
            answer = future.result()
        except asyncio.CancelledError:
            self.stream.close("request cancelled")
            return
        except (CloseConnection, RemoteWireError) as error:
            # Future, error, traceback and this frame refer to each other, and the frames hold the whole request.
            error.__traceback__ = None
            self.refuse([], str(error))
            return
        except Exception:
            logger.exception("request failed peer=%s:%s", *self.stream.peer)
            self.refuse([], "internal error")
            return
        self.active_at = self.loop.time()
        if isinstance(answer, Promise):
            self.promise(answer)
        elif answer and self.promised:
            self.hold(answer)
        elif answer:
            self.send(answer)
        if self.is_draining:
            self.pause_or_resume()
        else:
            self.work()

    def promise(self, promise: Promise) -> None:
        promise.future = asyncio.ensure_future(promise.waiting)
        promise.future.add_done_callback(self.promise_kept)
        self.promised.append(promise)
        self.memory.promises += 1

    def hold(self, answer: list[Part]) -> None:
        """Until what was promised before has been sent."""
        self.promised.append(answer)
        self.held_bytes += size_in_memory(answer)

    def must_wait(self) -> bool:
        """No more is to wait behind what was promised."""
        return (
            len(self.promised) >= PROMISES_MAX
            or self.held_bytes >= HELD_BYTES_MAX
            or self.memory.promises >= PROMISES_OF_ALL_MAX
        )

    def forget_promises(self) -> None:
        promised, self.promised = self.promised, deque()
        self.held_bytes = 0
        for answer in promised:
            if isinstance(answer, Promise) and answer.future is not None:
                answer.future.cancel()

    def promise_kept(self, future: asyncio.Future[Any]) -> None:
        """Send all that need not wait any longer, up to the next promise."""
        self.memory.promises -= 1
        if self.is_closed:
            if not future.cancelled():
                future.exception()
            return
        answers: list[Part] = []
        promised = self.promised
        try:
            while promised:
                first = promised[0]
                if isinstance(first, Promise):
                    assert first.future is not None
                    if not first.future.done():
                        break
                    answers += first.encode(first.future.result()) or ()
                else:
                    answers += first
                    self.held_bytes -= size_in_memory(first)
                promised.popleft()
        except (asyncio.CancelledError, CloseConnection, RemoteWireError) as error:
            self.forget_promises()
            self.refuse(answers, str(error) or "request cancelled")
            return
        except Exception:
            logger.exception("request failed peer=%s:%s", *self.stream.peer)
            self.forget_promises()
            self.refuse(answers, "internal error")
            return
        self.active_at = self.loop.time()
        self.send(answers)
        if self.refusal is not None and not promised:
            self.refuse([], self.refusal)
        elif not self.is_draining:
            self.work()
        else:
            self.pause_or_resume()

    def refuse(self, answers: list[Part], why: str) -> None:
        """Send what was answered before, say why in one line, and end the connection."""
        if answers:
            self.stream.send(answers)
        if self.promised:
            self.refusal = why
            self.stream.pause()
            return
        self.close(why)

    def close(self, why: str) -> None:
        logger.warning("closing connection peer=%s:%s reason=%s", *self.stream.peer, why)
        self.stream.close(why)

    def pause_or_resume(self) -> None:
        """Read on only when there is room to put it and nobody is waiting for us."""
        if self.is_closed:
            return
        if self.reserved_bytes and self.memory.waiting:
            self.shrink_when_idle()
        full = self.end == self.capacity
        if self.is_draining or self.waits_for_memory or full or self.refusal is not None:
            self.stream.pause()
        else:
            self.stream.resume()


def is_large(answers: list[Part]) -> bool:
    """Whether the last response is to be sent before the next one is made."""
    last = answers[-1] if answers else b""
    return not isinstance(last, FileSlice) and len(last) > LARGE_RESPONSE_BYTES


def size_in_memory(answer: list[Part]) -> int:
    """What comes from files is read when it is sent."""
    return sum(len(part) for part in answer if not isinstance(part, FileSlice))
