"""Requests to a broker that leads a partition. They end early if another broker takes over.

A paused broker, or one behind a broken network, keeps its connections open and does not respond. Without this check,
the markers of its transactions would wait for request.timeout.ms, long after other brokers lead its partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from barnabas.client.connection import BrokerConnection
from barnabas.metadata.cache import MetadataCache
from barnabas.model import BrokerId
from barnabas.wire.codec import Message
from barnabas.world.ports import Network

LEADER_CHECK_SECONDS = 0.5
CONNECT_SECONDS_MAX = 2.0
"""A host without power does not respond. Its partitions have other leaders soon."""

R = TypeVar("R", bound=Message)


class Channels(Protocol):
    """How this broker connects to others."""

    broker_id: BrokerId
    network: Network
    metadata: MetadataCache
    listener: str
    timeout_s: float


class LeaderConnection:
    """A connection to a broker. It is opened by the first request, and again if it was lost."""

    def __init__(self, broker: BrokerId, channels: Channels) -> None:
        self.broker = broker
        self.channels = channels
        self.connection: BrokerConnection | None = None

    async def exchange(
        self, request: Message, response: type[R], *, is_leader: Callable[[], bool]
    ) -> R:
        """Send a request and return the response. Close the connection if the broker is no longer the leader.

        Raises OSError, TimeoutError or WireError.
        """
        connection = await self.open()
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def check() -> None:
            nonlocal timer
            if is_leader():
                timer = loop.call_later(LEADER_CHECK_SECONDS, check)
            else:
                connection.close("another broker is the leader now")

        timer = loop.call_later(LEADER_CHECK_SECONDS, check)
        try:
            return await connection.exchange(request, response, timeout_s=self.channels.timeout_s)
        finally:
            timer.cancel()

    async def open(self) -> BrokerConnection:
        if self.connection is None or not self.connection.is_open:
            channels = self.channels
            endpoint = channels.metadata.endpoint_of(self.broker, channels.listener)
            if endpoint is None:
                raise ConnectionError(f"broker {self.broker} is not registered")
            self.connection = await BrokerConnection.open(
                channels.network,
                endpoint.host,
                endpoint.port,
                client_id=str(channels.broker_id),
                timeout_s=min(channels.timeout_s, CONNECT_SECONDS_MAX),
            )
        return self.connection

    def close(self, why: str) -> None:
        if self.connection is not None:
            self.connection.close(why)
            self.connection = None
