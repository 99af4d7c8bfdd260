"""The controller's voice: to every broker one connection, one request at a time, in the order they were decided.

A request that cannot be delivered is tried again until it is, or until nobody wants it delivered: the broker is gone
from the registry, or this controller resigned. So a broker never hears the second decision before the first, and never
misses one while it is registered. An error in an answer is an answer: it is handed over, not tried again.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Iterable
from random import Random

from barnabas.client.connection import BrokerConnection
from barnabas.controller.request_batch import endpoint_of
from barnabas.errors import WireError, reason
from barnabas.history.recorder import Request, SentRequest
from barnabas.model import Broker, BrokerId
from barnabas.retry import Backoff
from barnabas.tasks import SMALL, Tasks, aside
from barnabas.wire.codec import Message, encode
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.world.ports import Network

logger = logging.getLogger("barnabas.controller")

RETRY_SECONDS = (0.02, 0.2)
BROKER_EPOCH_AT = 9
COMPLAINT_ATTEMPTS = 20
"""One that leaves, or has just died, is gone from the registry before anybody needs to hear of it."""

OnAnswer = Callable[[SentRequest, Message], None]
RESPONSES: dict[type[Message], type[Message]] = {
    LeaderAndIsrRequest: LeaderAndIsrResponse,
    UpdateMetadataRequest: UpdateMetadataResponse,
    StopReplicaRequest: StopReplicaResponse,
}


class Sender:
    """What one broker is still to be told."""

    def __init__(self, broker: Broker, channels: Channels) -> None:
        self.broker = broker
        self.channels = channels
        self.requests: deque[SentRequest] = deque()
        self.woken = asyncio.Event()
        self.connection: BrokerConnection | None = None
        self.backoff = Backoff(
            *RETRY_SECONDS, random=Random(f"{channels.controller_id}-{broker.id}")
        )

    def send(self, sent: SentRequest) -> None:
        self.requests.append(sent)
        self.woken.set()

    async def run(self) -> None:
        try:
            while True:
                while not self.requests:
                    self.woken.clear()
                    await self.woken.wait()
                await self.send_next()
        finally:
            if self.connection is not None:
                self.connection.close("the controller is done")

    async def send_next(self) -> None:
        """By itself, so that a request about thousands of partitions is forgotten with its answer."""
        response = await self.deliver(self.requests[0].request)
        sent = self.requests.popleft()
        self.channels.forget_encoded()
        try:
            self.channels.on_answer(sent, response)
        except Exception:
            logger.exception("cannot make sense of an answer broker=%d", self.broker.id)

    async def deliver(self, request: Request) -> Message:
        while True:
            try:
                answer = await self.exchange(request)
                self.backoff.reset()
                return answer
            except (OSError, TimeoutError, WireError) as error:
                if self.connection is not None:
                    self.connection.close("lost")
                    self.connection = None
                await self.backoff.wait()
                if self.backoff.failures % COMPLAINT_ATTEMPTS == 0:
                    logger.warning(
                        "cannot reach broker=%d request=%s error=%s; trying on",
                        *(self.broker.id, type(request).__name__, reason(error)),
                    )

    async def exchange(self, request: Request) -> Message:
        channels = self.channels
        if self.connection is None or not self.connection.is_open:
            endpoint = endpoint_of(self.broker, channels.listener)
            self.connection = await BrokerConnection.open(
                channels.network,
                endpoint.host,
                endpoint.port,
                client_id=str(channels.controller_id),
                timeout_s=channels.timeout_s,
            )
        connection = self.connection
        return await connection.exchange(
            request,
            RESPONSES[type(request)],
            timeout_s=channels.timeout_s,
            body=await channels.encoded(request),
        )


class Channels:
    """A sender for every registered broker, this one included."""

    def __init__(
        self,
        network: Network,
        controller_id: BrokerId,
        *,
        listener: str,
        timeout_s: float,
        on_answer: OnAnswer,
    ) -> None:
        self.network = network
        self.controller_id = controller_id
        self.listener = listener
        self.timeout_s = timeout_s
        self.on_answer = on_answer
        self.senders: dict[BrokerId, tuple[Sender, Tasks]] = {}
        self.metadata: tuple[object, asyncio.Future[bytes]] | None = None
        """What was last encoded for all: the topics, and the request with them."""

    def start(self, brokers: Iterable[Broker]) -> None:
        for broker in brokers:
            if broker.id not in self.senders:
                sender, tasks = Sender(broker, self), Tasks()
                tasks.start(f"sender-{broker.id}", sender.run())
                self.senders[broker.id] = (sender, tasks)

    async def stop(self, brokers: Iterable[BrokerId]) -> list[SentRequest]:
        """What they have not answered is dropped: it is returned."""
        dropped: list[SentRequest] = []
        for broker in brokers:
            found = self.senders.pop(broker, None)
            if found is not None:
                await found[1].stop()
                dropped += found[0].requests
        return dropped

    async def move(self, broker: Broker) -> None:
        """It listens elsewhere now. What it was still to hear it hears there."""
        waiting = await self.stop((broker.id,))
        self.start((broker,))
        for sent in waiting:
            self.send(sent)

    async def stop_all(self) -> None:
        await self.stop(tuple(self.senders))

    def send(self, sent: SentRequest) -> bool:
        """False if there is no such broker any more."""
        found = self.senders.get(sent.broker)
        if found is None:
            name = type(sent.request).__name__
            logger.warning("not sent, the broker is gone broker=%d request=%s", sent.broker, name)
            return False
        found[0].send(sent)
        return True

    async def encoded(self, request: Request) -> bytes:
        """In its newest version. The metadata of thousands of partitions is the same for all brokers but for their
        epochs, and so are its bytes."""
        version, size = request.VERSIONS[-1], partitions_of(request)
        if not isinstance(request, UpdateMetadataRequest) or size <= SMALL:
            return await aside(size, encode, request, version)
        if self.metadata is None or self.metadata[0] is not request.topic_states:
            encoding = asyncio.ensure_future(aside(size, encode, request, version))
            self.metadata = (request.topic_states, encoding)
        body = await asyncio.shield(self.metadata[1])
        return with_broker_epoch(body, request.broker_epoch)

    def forget_encoded(self) -> None:
        """When nobody is to hear of it any more."""
        if not any(sender.requests for sender, _ in self.senders.values()):
            self.metadata = None

    def owes(self, broker: BrokerId) -> bool:
        """Whether something is still on its way to this broker."""
        found = self.senders.get(broker)
        return found is not None and bool(found[0].requests)


def partitions_of(request: Request) -> int:
    return sum(len(topic.partition_states) for topic in request.topic_states)


def with_broker_epoch(body: bytes, epoch: int) -> bytes:
    """An encoded UpdateMetadata, addressed to another broker. Before the epoch stand the controller's id, whether it is
    one of KRaft, and its epoch."""
    return body[:BROKER_EPOCH_AT] + struct.pack(">q", epoch) + body[BROKER_EPOCH_AT + 8 :]
