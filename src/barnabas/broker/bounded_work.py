"""Request handlers that run in bounded turns of the event loop.

A handler whose work grows with its request is a generator:

    yield None              after each item: other requests may run now
    value = yield call      run `call` in the worker thread; its result or exception comes back here
    value = yield future    wait for the future, likewise
    return response         the response, or an awaitable of it

A small request finishes in its first turn, without a task. The rest of a larger one runs in the background, where all
such requests together get one turn per pass of the loop. So a flood of large requests slows down large requests only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from barnabas.tasks import SMALL_MAX, in_thread

T = TypeVar("T")

TURN_SECONDS = 0.005
BUSY_FIRST_TURN_SECONDS = 0.0005
"""Length of the first turn of a request while other requests run in the background."""
RELEASED_AT_ONCE = 1000
LARGE_AT_ONCE = 2
"""Maximum number of large requests in a lane at a time. Decoding one may take 50 times its size in memory."""

Call = Callable[[], Any] | asyncio.Future[Any]  # to run in the worker thread, or to wait for
Work = Generator[Call | None, Any, T]
Resume = Callable[[], Call | None]  # resumes a generator and returns what it yields next


class TurnResult(NamedTuple):
    """The state of a generator after a turn."""

    is_done: bool
    value: Any
    """The result if it is done; otherwise the call to make in the worker thread, the future to wait for, or None."""


NOT_STARTED = TurnResult(False, None)


def run_turn(
    work: Work[Any], resume: Resume, seconds: float, now: Callable[[], float]
) -> TurnResult:
    """Resume the generator, and run it until it ends, yields a call or has run for `seconds`."""
    deadline = now() + seconds
    try:
        call = resume()
        while call is None and now() < deadline:
            call = next(work)
    except StopIteration as end:
        return TurnResult(True, end.value)
    return TurnResult(False, call)


def run_to_end(work: Work[T]) -> T:
    """Run small work that yields no calls, and return its result."""
    try:
        while True:
            next(work)
    except StopIteration as end:
        result: T = end.value
        return result


def call_in_thread_if_large(size: int, work: Callable[..., T], *arguments: Any) -> Work[T]:
    """Call a pure function, in the worker thread if `size` > SMALL_MAX. Meanwhile the arguments must not change."""
    if size <= SMALL_MAX:
        return work(*arguments)
    result: T = yield partial(work, *arguments)
    return result


def release(items: list[Any]) -> Work[None]:
    """Release the items and everything in them, piece by piece. Python frees a message with a million items at once,
    which takes tens of milliseconds. The caller must not keep another reference to the items."""
    while items:
        released = items[-RELEASED_AT_ONCE:]
        del items[-RELEASED_AT_ONCE:]
        for item in released:
            if isinstance(item, tuple):
                items.extend(item)
        yield None


async def run_in_turns(work: Work[T]) -> T:
    """Run work that yields no calls, in turns, and return its result. The caller must run in its own task."""
    turn = NOT_STARTED
    while not turn.is_done:
        await asyncio.sleep(0)
        turn = run_turn(work, partial(next, work), TURN_SECONDS, asyncio.get_running_loop().time)
    result: T = turn.value
    return result


class RequestLane:
    """Limits on one group of large requests.

    The group shares one thread: more threads would compete with the event loop for the GIL.
    """

    def __init__(self) -> None:
        self.large = asyncio.Semaphore(LARGE_AT_ONCE)
        self.thread = asyncio.Lock()


class Background:
    """Turns of the event loop and worker threads, shared by all unfinished requests of a broker."""

    def __init__(self) -> None:
        self.now = asyncio.get_running_loop().time
        self.unfinished = 0
        self.turn = asyncio.Lock()
        self.clients = RequestLane()
        self.brokers = RequestLane()
        """For requests that only brokers send, and for Fetch. They are decoded and encoded in their own thread."""

    def start(self, work: Work[Any]) -> TurnResult:
        """Run the first turn of a handler."""
        seconds = BUSY_FIRST_TURN_SECONDS if self.unfinished else TURN_SECONDS
        return run_turn(work, partial(next, work), seconds, self.now)

    async def finish(self, work: Work[Any], turn: TurnResult) -> Any:
        """Run the remaining turns and return the result. Cancellation ends the work after its current turn."""
        self.unfinished += 1
        try:
            while not turn.is_done:
                resume: Resume = partial(next, work)
                if turn.value is not None:
                    resume = await self.call(work, turn.value)
                async with self.turn:
                    await asyncio.sleep(0)
                    turn = run_turn(work, resume, TURN_SECONDS, self.now)
        finally:
            self.unfinished -= 1
            work.close()
        return turn.value

    async def call(self, work: Work[Any], call: Call) -> Resume:
        """Run `call` in the worker thread, or wait for it if it is a future. Return the function that resumes the
        generator with the result or error."""
        try:
            if isinstance(call, asyncio.Future):
                return partial(work.send, await call)
            async with self.clients.thread:
                result = await in_thread(call)
        except Exception as error:  # noqa: BLE001 (the generator handles it)
            return partial(work.throw, error)
        return partial(work.send, result)
