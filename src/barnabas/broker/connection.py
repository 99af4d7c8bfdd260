"""One client connection: splits the received bytes into frames, serves them and sends the responses in order.

    received ─► [ frame | frame | part of a fr… ]  ─► serve(frame) ─► parts ─► stream.send
                  ▲ start                  ▲ end

A frame is a view of the buffer, not a copy: a produced batch is written from the buffer to its file. So the frame stays
in the buffer, and no other frame is served, while its request is in progress. This also keeps the responses in order.
If a client does not read its responses, the broker stops reading its requests.

A PendingResponse belongs to a Produce request whose batches are in their logs and wait for replicas. It does not need
its frame any more, so the next frames are served meanwhile, and followers fetch several batches at a time. The number
of pending responses is limited, for each connection and for all together.

The buffer starts small and grows only as bytes arrive, so a false frame length costs no memory. It shrinks when the
connection is idle. Memory beyond the initial size counts against `MemoryBudget`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.broker_requests import MAY_BE_LARGE
from barnabas.broker.frame_errors import bad_frame_length
from barnabas.broker.memory_budget import WORK_SECONDS_MAX, MemoryBudget
from barnabas.broker.request_metrics import RequestMetrics
from barnabas.broker.response_size import ends_with_large_response, size_in_memory
from barnabas.broker.security.session import Session
from barnabas.broker.work_meter import WorkMeter
from barnabas.errors import RemoteWireError
from barnabas.log_rate_limiter import LogRateLimiter
from barnabas.security.principal import ANONYMOUS
from barnabas.wire.fast import RepeatedFetches, RepeatedProduces
from barnabas.world.ports import Part, Stream

if TYPE_CHECKING:
    from mypy_extensions import i64

logger = logging.getLogger("barnabas.network")

IDLE_BUFFER_BYTES: Final = 16 * 1024
BUSY_BUFFER_BYTES: Final = 256 * 1024  # holds several pipelined requests
REQUEST_BYTES_MAX: Final = 1024 * 1024  # except for requests in MAY_BE_LARGE
FRAMES_PER_TURN: Final = 32
PENDING_MAX: Final = 64  # responses of one connection
QUEUED_BYTES_MAX: Final = 256 * 1024  # of responses that wait for an earlier pending one
ARRIVAL_SECONDS_MAX: Final = 30.0  # of a large frame while other connections wait for memory
STALLED_SECONDS_MAX: Final = 1.0
"""Time without a byte of a large frame while other connections wait for memory."""

# Positions in the lists of RequestMetrics.times, and in a histogram (metrics/histogram.py).
TOTAL: Final = 0
QUEUE: Final = 1
LOCAL: Final = 2
REMOTE: Final = 3
LAST_BUCKET: Final = 239
SUM: Final = 240

SIZE: Final = Struct(">i")
API_KEY: Final = Struct(">h")

EncodedResponse = list[Part] | None  # None: no response is sent (acks=0)


class CloseConnection(Exception):
    """The request gets no response: the connection is closed, and the message is logged as the reason."""


class PendingResponse:
    """The response to a request whose batches wait for replicas. Cancelled when the client disconnects."""

    __slots__ = ("api", "encode", "future", "queued_at", "served_at", "waiting")

    def __init__(self, waiting: Awaitable[Any], encode: Callable[[Any], EncodedResponse]) -> None:
        self.waiting = waiting
        self.encode = encode
        """Encodes the result of `waiting`."""
        self.future: asyncio.Future[Any] | None = None
        self.api = 0
        self.queued_at = self.served_at = 0.0

    def discard(self) -> None:
        """Close `waiting` without a response: the client has disconnected."""
        if isinstance(self.waiting, Coroutine):
            self.waiting.close()


ServeResult = EncodedResponse | PendingResponse | Awaitable[EncodedResponse | PendingResponse]
Serve = Callable[[memoryview, "Connection"], ServeResult]


class Connection:
    """The broker's side of a stream. Implements `Receiver`."""

    __slots__ = (
        "active_at",
        "api",
        "capacity",
        "client_software",
        "close_limiter",
        "closing_reason",
        "data",
        "end",
        "fast",
        "fetches",
        "frame_bytes_last",
        "frame_bytes_max",
        "in_progress",
        "is_closed",
        "is_draining",
        "listener_name",
        "loop",
        "memory",
        "meter",
        "metrics",
        "offered_bytes",
        "on_closed",
        "pending",
        "principal",
        "produces",
        "queued_at",
        "queued_bytes",
        "quota_version",
        "remote_s",
        "reserved_at",
        "reserved_bytes",
        "sent_at",
        "serve",
        "served_at",
        "session",
        "slow_s",
        "start",
        "stream",
        "throttle_seconds",
        "times",
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
        metrics: RequestMetrics,
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
        self.start = 0  # of the first frame that is not served yet
        self.end = 0  # of the received bytes
        self.offered_bytes = 0  # size of the last result of buffer()
        self.frame_bytes_last = 4
        self.reserved_bytes = 0
        self.reserved_at = 0.0
        self.client_software = ("", "")
        self.principal = ANONYMOUS
        self.session: Session | None = None  # of a client that has logged in
        self.produces = RepeatedProduces()
        self.fetches = RepeatedFetches()
        self.in_progress: asyncio.Future[EncodedResponse | PendingResponse] | None = None
        self.pending: deque[PendingResponse | list[Part]] = deque()
        """Pending responses, and queued responses to later requests, which wait for the pending ones."""
        self.queued_bytes = 0
        self.close_limiter: LogRateLimiter | None = None  # before a login: limits log lines
        self.closing_reason: str | None = None
        """Why the connection is closed after its pending responses are sent."""
        self.is_draining = False  # responses wait until the client reads
        self.waits_for_memory = self.is_closed = False
        self.was_filled = False  # the last read filled the offered bytes
        self.throttle_seconds = 0.0  # to wait after the response of the current request
        self.meter: WorkMeter | None = None  # if a request_percentage applies to the client
        self.quota_version = 0  # of the quotas for which `produces` and `fetches` were learned
        self.metrics = metrics
        self.times: list[list[list[int]]] = metrics.times
        self.fast: list[list[int]] = metrics.fast
        self.slow_s: float = metrics.slow_s
        self.api = 0  # position of the last request in `times`; its handler sets it
        self.queued_at = self.active_at  # start of the turn that serves the frames
        self.served_at = 0.0  # start of the request in progress; 0 during a throttle
        self.remote_s = 0.0  # waiting time of the request in progress: for brokers or records
        self.sent_at = 0.0  # of the response that the client has not read yet

    # ---- Receiver

    def buffer(self) -> memoryview:
        """Return the free part of the buffer, cut so that it ends with a whole frame if possible.

        This assumes frames as large as the last one, as producers often send. A frame that does not fit must be moved.
        """
        last = self.frame_bytes_last
        stop = self.start + (self.capacity - self.start) // last * last
        if stop <= self.end:
            stop = self.capacity
        self.offered_bytes = stop - self.end
        return self.view[self.end : stop]

    def received(self, size: int) -> None:
        self.active_at = self.loop.time()
        self.end += size
        self.was_filled = size == self.offered_bytes
        if self.in_progress is None and not self.is_draining:
            self.serve_frames(self.active_at)
        elif self.was_filled:
            self.stream.pause()

    def drained(self) -> None:
        self.is_draining = False
        self.memory.remove_unsent(self)
        self.active_at = self.loop.time()
        self.metrics.record_send(self.api, self.active_at - self.sent_at)
        self.serve_frames(self.active_at)

    def closed(self, reason: str) -> None:
        self.is_closed = True
        if self.in_progress is not None:
            self.in_progress.cancel()
        self.cancel_pending()
        self.memory.remove_unsent(self)
        self.memory.waiting.pop(self, None)
        self.release_memory()
        self.data, self.view, self.capacity = bytearray(), memoryview(b""), 0
        self.start = self.end = 0
        self.on_closed(self)

    # ---- frames

    def serve_frames(self, now: float = 0.0) -> None:
        """Serve the complete frames in the buffer until one has to wait. Without `now`, continue an earlier turn."""
        if self.is_closed or self.in_progress or self.is_draining or self.closing_reason:
            return
        responses: list[Part] = []
        served = 0
        pending = self.pending
        if now:
            self.queued_at = now
        else:
            now = self.loop.time()
        deadline = now + WORK_SECONDS_MAX
        try:
            while not (pending and self.is_full()) and (frame := self.next_frame()) is not None:
                self.served_at = now
                response = self.serve(frame, self)
                now = self.loop.time()
                if response is None or isinstance(response, list):
                    self.count_request(now, 0.0)
                    if pending and response:
                        self.queue_response(response)
                    elif response:
                        responses += response
                elif isinstance(response, PendingResponse):
                    self.add_pending(response, now)
                else:
                    self.remote_s = 0.0
                    self.await_response(response)
                    break
                if self.throttle_seconds:
                    self.start_throttle()
                    break
                served += 1
                if self.start == self.end:
                    self.prepare_buffer(4)
                    break
                if (
                    served == FRAMES_PER_TURN
                    or now > deadline
                    or ends_with_large_response(responses)
                ):
                    self.loop.call_soon(self.serve_frames)
                    break
        except (CloseConnection, RemoteWireError) as error:
            self.close_after_sending(responses, str(error))
            return
        except Exception:
            if self.is_log_due():
                logger.exception("request failed peer=%s:%s", *self.stream.peer)
            self.close_after_sending(responses, "internal error")
            return
        self.send(responses)
        self.pause_or_resume()

    def send(self, responses: list[Part]) -> None:
        if responses and not self.stream.send(responses):
            self.is_draining = True
            self.sent_at = self.loop.time()
            self.memory.add_unsent(self, size_in_memory(responses))

    def next_frame(self) -> memoryview | None:
        """Return the next complete frame. If there is none, prepare the buffer for the rest of it and return None."""
        start = self.start
        available = self.end - start
        if available < 4:
            self.prepare_buffer(4)
            return None
        size: int = SIZE.unpack_from(self.data, start)[0]
        if size < 0 or size > self.frame_bytes_max:
            raise bad_frame_length(size, self.frame_bytes_max)
        if available - 4 < size:
            if size > REQUEST_BYTES_MAX and available >= 6:
                self.require_may_be_large(start + 4, size)
            self.prepare_buffer(4 + size)
            return None
        self.frame_bytes_last = 4 + size
        self.reserved_at = self.active_at
        self.start = start + 4 + size
        return self.view[start + 4 : start + 4 + size]

    def require_may_be_large(self, at: int, size: int) -> None:
        """Raise RemoteWireError unless the API may have large requests. Many small items take much memory to decode."""
        api_key: int = API_KEY.unpack_from(self.data, at)[0]
        if api_key not in MAY_BE_LARGE:
            raise RemoteWireError(
                f"request of {size} bytes with api key {api_key}; only Produce and controller requests "
                f"may have more than {REQUEST_BYTES_MAX} bytes"
            )

    def prepare_buffer(self, frame_bytes: int) -> None:
        """Make room for the frame: move the content to the start, or grow the buffer to at most twice its size."""
        received = self.end - self.start
        if received == 0:
            self.start = self.end = 0
        must_grow = frame_bytes > IDLE_BUFFER_BYTES
        if must_grow and not self.reserve(max(frame_bytes, BUSY_BUFFER_BYTES)):
            return
        # A buffer filled to its end shows that the peer sends faster than we read. It doubles at most: the frame length
        # may be false.
        larger = min(2 * self.capacity, max(frame_bytes, BUSY_BUFFER_BYTES))
        may_grow = (self.was_filled or self.end == self.capacity) and larger > self.capacity
        if may_grow and self.reserve(larger, may_wait=must_grow):
            self.replace_buffer(larger)
        elif self.start and self.start + frame_bytes > self.capacity:
            self.view[:received] = self.view[self.start : self.end]
            self.start, self.end = 0, received

    def replace_buffer(self, capacity: int) -> None:
        data = bytearray(capacity)
        received = self.end - self.start
        self.was_filled = received == capacity
        data[:received] = self.view[self.start : self.end]
        self.data, self.view, self.capacity = data, memoryview(data), capacity
        self.start, self.end = 0, received

    def reserve(self, size: int, *, may_wait: bool = True) -> bool:
        """Reserve memory for a buffer of this size. Return False if there is none now."""
        if size <= self.reserved_bytes:
            return True
        # Release the memory of an earlier frame first: two connections that have some and wait for more would deadlock.
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

    def is_too_slow(self, now: float) -> bool:
        """Whether the connection holds reserved memory without progress while other connections wait for memory."""
        return (
            bool(self.reserved_bytes and self.memory.waiting)
            and self.in_progress is None
            and (
                now - self.active_at > STALLED_SECONDS_MAX
                or now - self.reserved_at > ARRIVAL_SECONDS_MAX
            )
        )

    def use_granted_memory(self, size: int) -> None:
        self.waits_for_memory = False
        self.reserved_bytes = size
        self.reserved_at = self.loop.time()
        self.loop.call_soon(self.serve_frames)

    def release_memory(self) -> None:
        reserved, self.reserved_bytes = self.reserved_bytes, 0
        if reserved:
            self.memory.release(reserved, self)

    def shrink_when_idle(self) -> None:
        """Release a large buffer that is empty. Called if the connection is idle or others need the memory."""
        if self.start == self.end and self.in_progress is None and not self.is_draining:
            if self.capacity > IDLE_BUFFER_BYTES:
                self.replace_buffer(IDLE_BUFFER_BYTES)
            self.release_memory()

    # ---- responses

    def await_response(self, response: Awaitable[EncodedResponse | PendingResponse]) -> None:
        self.in_progress = asyncio.ensure_future(response)
        self.in_progress.add_done_callback(self.handle_finished_request)

    def handle_finished_request(
        self, future: asyncio.Future[EncodedResponse | PendingResponse]
    ) -> None:
        self.in_progress = None
        if self.is_closed:
            if not future.cancelled() and future.exception() is None:
                result = future.result()
                if isinstance(result, PendingResponse):
                    result.discard()
            return
        try:
            response = future.result()
        except asyncio.CancelledError:
            self.stream.close("request cancelled")
            return
        except (CloseConnection, RemoteWireError) as error:
            # Future, error, traceback and stack frame refer to each other, and would keep the whole request in memory.
            error.__traceback__ = None
            self.close_after_sending([], str(error))
            return
        except Exception:
            if self.is_log_due():
                logger.exception("request failed peer=%s:%s", *self.stream.peer)
            self.close_after_sending([], "internal error")
            return
        now = self.active_at = self.loop.time()
        if isinstance(response, PendingResponse):
            self.add_pending(response, now)
        elif self.served_at:
            self.count_request(now, self.remote_s)
            if response and self.pending:
                self.queue_response(response)
            elif response:
                self.send(response)
        if self.throttle_seconds:
            self.start_throttle()
        if self.is_draining or self.in_progress is not None:
            self.pause_or_resume()
        else:
            self.serve_frames(now)

    def start_throttle(self) -> None:
        """Serve no further frame for `throttle_seconds`."""
        seconds, self.throttle_seconds = self.throttle_seconds, 0.0
        self.served_at = 0.0
        self.metrics.record_throttle(self.api, seconds, self.last_frame())
        self.await_response(asyncio.sleep(seconds, None))

    def add_pending(self, pending: PendingResponse, now: float) -> None:
        pending.api, pending.queued_at, pending.served_at = self.api, self.queued_at, now
        self.count_work(now - self.served_at, 0.0)
        pending.future = asyncio.ensure_future(pending.waiting)
        pending.future.add_done_callback(self.send_ready_responses)
        self.pending.append(pending)
        self.memory.pending_responses += 1

    def queue_response(self, response: list[Part]) -> None:
        """Queue a response until the earlier pending ones are sent."""
        self.pending.append(response)
        self.queued_bytes += size_in_memory(response)

    def is_full(self) -> bool:
        """Whether no further frame may be served before a pending response is sent."""
        return (
            len(self.pending) >= PENDING_MAX
            or self.queued_bytes >= QUEUED_BYTES_MAX
            or self.memory.pending_responses >= self.memory.pending_responses_max
        )

    def cancel_pending(self) -> None:
        pending, self.pending = self.pending, deque()
        self.queued_bytes = 0
        for response in pending:
            if isinstance(response, PendingResponse) and response.future is not None:
                response.future.cancel()

    def send_ready_responses(self, future: asyncio.Future[Any]) -> None:
        """Send all responses up to the next one that is still pending."""
        self.memory.pending_responses -= 1
        if self.is_closed:
            if not future.cancelled():
                future.exception()
            return
        responses: list[Part] = []
        pending = self.pending
        now = self.loop.time()
        try:
            while pending:
                first = pending[0]
                if isinstance(first, PendingResponse):
                    assert first.future is not None
                    if not first.future.done():
                        break
                    responses += first.encode(first.future.result()) or ()
                    times = self.times[first.api]
                    record_time(times[REMOTE], now - first.served_at)
                    record_time(times[TOTAL], now - first.queued_at)
                else:
                    responses += first
                    self.queued_bytes -= size_in_memory(first)
                pending.popleft()
        except (asyncio.CancelledError, CloseConnection, RemoteWireError) as error:
            self.cancel_pending()
            self.close_after_sending(responses, str(error) or "request cancelled")
            return
        except Exception:
            if self.is_log_due():
                logger.exception("request failed peer=%s:%s", *self.stream.peer)
            self.cancel_pending()
            self.close_after_sending(responses, "internal error")
            return
        self.active_at = now
        self.send(responses)
        if self.closing_reason is not None and not pending:
            self.close_after_sending([], self.closing_reason)
        elif not self.is_draining:
            self.serve_frames(now)
        else:
            self.pause_or_resume()

    def close_after_sending(self, responses: list[Part], why: str) -> None:
        """Send these responses, and the pending ones when they are done. Then log the reason and close."""
        if responses:
            self.stream.send(responses)
        if self.pending:
            self.closing_reason = why
            self.stream.pause()
            return
        self.close(why)

    def is_log_due(self) -> bool:
        """Whether to log a failure. Before a login, log lines are rate-limited."""
        return self.close_limiter is None or self.close_limiter.is_due(self.loop.time())

    def close(self, why: str) -> None:
        if self.is_log_due():
            logger.warning("closing connection peer=%s:%s reason=%s", *self.stream.peer, why)
        self.stream.close(why)

    def pause_or_resume(self) -> None:
        """Read unless the buffer is full, the connection closes, or it waits for memory or for the client to read."""
        if self.is_closed:
            return
        if self.reserved_bytes and self.memory.waiting:
            self.shrink_when_idle()
        is_full = self.end == self.capacity
        if self.is_draining or self.waits_for_memory or is_full or self.closing_reason is not None:
            self.stream.pause()
        else:
            self.stream.resume()

    def count_request(self, now: float, remote_s: float) -> None:
        """Count a request that is answered now."""
        total_s = now - self.queued_at
        if total_s < 0.001 and remote_s == 0.0 and (fast := self.fast[self.api]):
            fast[int(total_s * 125_000.0)] += 1
            return
        times = self.count_work(now - self.served_at - remote_s, remote_s)
        record_time(times[TOTAL], total_s)
        if remote_s > 0.0:
            record_time(times[REMOTE], remote_s)

    def count_work(self, local_s: float, remote_s: float) -> list[list[int]]:
        times = self.times[self.api] or self.metrics.create_times(self.api)
        queue_s = self.served_at - self.queued_at
        if queue_s > 0.0:
            record_time(times[QUEUE], queue_s)
        record_time(times[LOCAL], local_s)
        if queue_s + local_s + remote_s > self.slow_s:
            self.metrics.log_slow(self.last_frame(), queue_s, local_s, remote_s)
        return times

    def last_frame(self) -> memoryview:
        """Return the frame of the last request. It is in the buffer until the next one is served."""
        return self.view[self.start - self.frame_bytes_last + 4 : self.start]


def record_time(buckets: list[int], seconds: float) -> None:
    """Add a duration to a histogram. The compiled twin of `add_seconds` in metrics/histogram.py."""
    micros: i64 = int(seconds * 1e6)
    rest: i64 = micros
    bucket: i64 = 0
    while rest >= 16:
        rest >>= 1
        bucket += 8
    bucket += rest
    buckets[min(LAST_BUCKET, bucket)] += 1
    buckets[SUM] += micros
