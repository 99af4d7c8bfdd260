"""A connection from one broker to another, over the network door.

    connection = await BrokerConnection.open(network, host, port, client_id="broker-1-controller", timeout_s=10)
    answer = await connection.exchange(LeaderAndIsrRequest(...), LeaderAndIsrResponse, timeout_s=30)

Requests are answered in the order they are sent. Brokers of one cluster speak the same versions, so nobody asks for
them first. Whoever has waited in vain closes the connection: a late answer would otherwise meet the next question.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from barnabas.client.core import Conversation, frame_size
from barnabas.errors import RemoteWireError
from barnabas.wire.apis import KNOWN_APIS
from barnabas.wire.codec import Message
from barnabas.world.ports import Network, Stream

R = TypeVar("R", bound=Message)

BUFFER_BYTES = 64 * 1024
SIZE_BYTES = 4
OUR_VERSIONS: dict[int, range] = {api.key: api.versions for api in KNOWN_APIS.values()}


class ExchangeInterrupted(Exception):
    """Our side gave up waiting for the answer to this exchange (`BrokerConnection.interrupt`).

    Not a ConnectionError: nothing failed, and handlers of failures must not see it.
    """


class BrokerConnection:
    """Our end of the stream; implements `Receiver`."""

    def __init__(self, client_id: str) -> None:
        self.conversation = Conversation(client_id)
        self.conversation.versions = OUR_VERSIONS
        self.stream: Stream | None = None
        self.waiting: dict[int, asyncio.Future[Message]] = {}
        self.data = bytearray(BUFFER_BYTES)
        self.end = 0
        self.reason: str | None = None

    @classmethod
    async def open(
        cls, network: Network, host: str, port: int, *, client_id: str, timeout_s: float
    ) -> BrokerConnection:
        """ConnectionError if nobody answers there in time."""
        connection = cls(client_id)

        def accept(stream: Stream) -> BrokerConnection:
            connection.stream = stream
            return connection

        try:
            async with asyncio.timeout(timeout_s):
                await network.connect(host, port, accept)
        except TimeoutError:
            raise ConnectionError(f"{host}:{port}: no answer within {timeout_s:g} s") from None
        return connection

    @property
    def is_open(self) -> bool:
        return self.reason is None

    @property
    def is_receiving(self) -> bool:
        """Part of an answer has come, and the rest is on its way."""
        return self.end > 0

    async def exchange(
        self,
        request: Message,
        response: type[R],
        *,
        timeout_s: float,
        at_most: int | None = None,
        body: bytes | None = None,
    ) -> R:
        """ConnectionError if the connection is or gets lost, TimeoutError if no answer comes; it is closed then.

        `body` is the request in its newest version, for who has encoded it already.
        """
        if self.reason is not None or self.stream is None:
            raise ConnectionError(self.reason or "not connected")
        outgoing = self.conversation.request(request, response, at_most=at_most, body=body)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Message] = loop.create_future()
        self.waiting[outgoing.correlation_id] = future
        self.stream.send([outgoing.data])
        # A tenth of what asyncio.timeout costs, and a follower asks a thousand times a second.
        timer = loop.call_later(timeout_s, time_out, future, timeout_s)
        try:
            answer = await future
        except BaseException:
            self.close("no answer in time, or nobody waits for it any longer")
            raise
        finally:
            timer.cancel()
        assert isinstance(answer, response)
        return answer

    def interrupt(self, reason: str) -> None:
        """End all exchanges in flight with ExchangeInterrupted, and close the connection.

        Does nothing if no answer is awaited, or if one has begun to arrive.
        """
        if not self.waiting or self.is_receiving:
            return
        waiting, self.waiting = self.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ExchangeInterrupted(reason))
        self.close(reason)

    def close(self, reason: str = "closed") -> None:
        if self.stream is not None:
            self.stream.close(reason)

    # ---- Receiver

    def buffer(self) -> memoryview:
        return memoryview(self.data)[self.end :]

    def received(self, size: int) -> None:
        self.end += size
        start = 0
        try:
            while self.end - start >= SIZE_BYTES:
                wanted = SIZE_BYTES + frame_size(self.data[start : start + SIZE_BYTES])
                if self.end - start < wanted:
                    self.make_room(start, wanted)
                    return
                # Records in an answer stay valid when the next one arrives: it is a copy, or the buffer itself.
                frame = memoryview(self.data)[start + SIZE_BYTES : start + wanted]
                if wanted == len(self.data):
                    self.data, self.end = bytearray(BUFFER_BYTES), 0
                else:
                    frame = memoryview(bytes(frame))
                    start += wanted
                self.answered(frame)
        except RemoteWireError as error:
            self.close(str(error))
            return
        self.make_room(start, BUFFER_BYTES)

    def make_room(self, start: int, wanted: int) -> None:
        """So that the frame at `start`, of `wanted` bytes, can go on arriving; a large buffer is given back."""
        capacity = max(wanted, BUFFER_BYTES)
        if not start and capacity == len(self.data):
            return
        rest = self.data[start : self.end]
        if capacity != len(self.data):
            self.data = bytearray(capacity)
        self.data[: len(rest)] = rest
        self.end = len(rest)

    def answered(self, frame: memoryview) -> None:
        incoming = self.conversation.response(frame)
        future = self.waiting.pop(incoming.correlation_id, None)
        if future is not None and not future.done():
            future.set_result(incoming.message)

    def drained(self) -> None:
        """What was sent has left; nobody here waits for that."""

    def closed(self, reason: str) -> None:
        self.reason = reason
        waiting, self.waiting = self.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionError(reason))
                future.exception()  # its owner may be gone


def time_out(future: asyncio.Future[Message], timeout_s: float) -> None:
    if not future.done():
        future.set_exception(TimeoutError(f"no answer within {timeout_s:g} s"))
