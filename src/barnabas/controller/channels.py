"""Connections of the controller to the brokers: one per broker, with one request in flight.

Each broker receives its requests in the order in which they were queued. A request is retried until the broker
responds, leaves the registry, or the controller resigns. So a registered broker misses no request. A response with an
error code is passed on and not retried.
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
from barnabas.tasks import SMALL_MAX, Tasks, in_thread_if_large
from barnabas.wire.codec import Message, encode
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.world.ports import Network

logger = logging.getLogger("barnabas.controller")

RETRY_SECONDS = (0.02, 0.2)
BROKER_EPOCH_OFFSET = 9
ATTEMPTS_PER_WARNING = 20
"""About every 3 s. A broker that stops cleanly leaves the registry sooner, so nothing is logged."""

OnResponse = Callable[[SentRequest, Message], None]
RESPONSES: dict[type[Message], type[Message]] = {
    LeaderAndIsrRequest: LeaderAndIsrResponse,
    UpdateMetadataRequest: UpdateMetadataResponse,
    StopReplicaRequest: StopReplicaResponse,
}


class Sender:
    """Sends queued requests to one broker."""

    def __init__(self, broker: Broker, channels: Channels) -> None:
        self.broker = broker
        self.channels = channels
        self.requests: deque[SentRequest] = deque()
        self.wakeup = asyncio.Event()
        self.tasks = Tasks()
        self.connection: BrokerConnection | None = None
        self.backoff = Backoff(
            *RETRY_SECONDS, random=Random(f"{channels.controller_id}-{broker.id}")
        )

    def send(self, sent: SentRequest) -> None:
        self.requests.append(sent)
        self.wakeup.set()

    async def run(self) -> None:
        try:
            while True:
                while not self.requests:
                    self.wakeup.clear()
                    await self.wakeup.wait()
                await self.send_next()
        finally:
            if self.connection is not None:
                self.connection.close("the controller stopped sending")

    async def send_next(self) -> None:
        """Send the first request in the queue and pass on the response.

        The caller has no reference to them, so a large request and its response are freed on return.
        """
        response = await self.deliver(self.requests[0].request)
        sent = self.requests.popleft()
        self.channels.drop_encoded_metadata()
        try:
            self.channels.on_response(sent, response)
        except Exception:
            logger.exception("cannot handle a response broker=%d", self.broker.id)

    async def deliver(self, request: Request) -> Message:
        """Send a request, with retries until the broker responds."""
        while True:
            try:
                response = await self.exchange(request)
                self.backoff.reset()
                return response
            except (OSError, TimeoutError, WireError) as error:
                if self.connection is not None:
                    self.connection.close("lost")
                    self.connection = None
                await self.backoff.wait()
                if self.backoff.failures % ATTEMPTS_PER_WARNING == 0:
                    logger.warning(
                        "cannot reach broker=%d request=%s error=%s; retrying",
                        *(self.broker.id, type(request).__name__, reason(error)),
                    )

    async def exchange(self, request: Request) -> Message:
        """Send a request once and return the response. Raises OSError, TimeoutError or WireError."""
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
            body=await channels.encode_request(request),
        )


class Channels:
    """A sender for every registered broker, including the controller's own."""

    def __init__(
        self,
        network: Network,
        controller_id: BrokerId,
        *,
        listener: str,
        timeout_s: float,
        on_response: OnResponse,
    ) -> None:
        self.network = network
        self.controller_id = controller_id
        self.listener = listener
        self.timeout_s = timeout_s
        self.on_response = on_response
        self.senders: dict[BrokerId, Sender] = {}
        self.encoded_metadata: tuple[object, asyncio.Future[bytes]] | None = None
        """Topic states of the last large UpdateMetadata, and the body that was encoded from them."""

    def start(self, brokers: Iterable[Broker]) -> None:
        for broker in brokers:
            if broker.id not in self.senders:
                sender = self.senders[broker.id] = Sender(broker, self)
                sender.tasks.start(f"sender-{broker.id}", sender.run())

    async def stop(self, brokers: Iterable[BrokerId]) -> list[SentRequest]:
        """Stop the senders of these brokers. Returns the dropped requests: those without a response."""
        dropped: list[SentRequest] = []
        for broker in brokers:
            sender = self.senders.pop(broker, None)
            if sender is not None:
                await sender.tasks.stop()
                dropped += sender.requests
        return dropped

    async def reconnect(self, broker: Broker) -> None:
        """Send the pending and all later requests to the new endpoint of this broker."""
        waiting = await self.stop((broker.id,))
        self.start((broker,))
        for sent in waiting:
            self.send(sent)

    async def stop_all(self) -> None:
        await self.stop(tuple(self.senders))

    def send(self, sent: SentRequest) -> bool:
        """Queue a request. Returns False if the broker has no sender, because it left the registry."""
        sender = self.senders.get(sent.broker)
        if sender is None:
            logger.warning(
                "request not sent, the broker left the registry broker=%d request=%s",
                *(sent.broker, type(sent.request).__name__),
            )
            return False
        sender.send(sent)
        return True

    async def encode_request(self, request: Request) -> bytes:
        """Encode a request in the latest version.

        A large UpdateMetadata is encoded once for all brokers. Only the broker epoch differs.
        """
        version, size = request.VERSIONS[-1], count_partitions(request)
        if not isinstance(request, UpdateMetadataRequest) or size <= SMALL_MAX:
            return await in_thread_if_large(size, encode, request, version)
        if self.encoded_metadata is None or self.encoded_metadata[0] is not request.topic_states:
            encoding = asyncio.ensure_future(in_thread_if_large(size, encode, request, version))
            self.encoded_metadata = (request.topic_states, encoding)
        body = await asyncio.shield(self.encoded_metadata[1])
        return with_broker_epoch(body, request.broker_epoch)

    def drop_encoded_metadata(self) -> None:
        """Free the encoded metadata if no request is pending."""
        if not any(sender.requests for sender in self.senders.values()):
            self.encoded_metadata = None

    def has_pending(self, broker: BrokerId) -> bool:
        """Return whether a request to this broker has no response yet."""
        sender = self.senders.get(broker)
        return sender is not None and bool(sender.requests)


def count_partitions(request: Request) -> int:
    return sum(len(topic.partition_states) for topic in request.topic_states)


def with_broker_epoch(body: bytes, epoch: int) -> bytes:
    """Replace the broker epoch in an encoded UpdateMetadata.

    Before it are the controller id (4 bytes), the KRaft flag (1 byte) and the controller epoch (4 bytes).
    """
    return body[:BROKER_EPOCH_OFFSET] + struct.pack(">q", epoch) + body[BROKER_EPOCH_OFFSET + 8 :]
