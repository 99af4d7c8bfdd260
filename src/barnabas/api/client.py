"""Client: one connection to a cluster for producers, consumers and an admin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from barnabas.api.admin import Admin
from barnabas.api.connection import Connection
from barnabas.api.consumer import Consumer, ConsumerSettings
from barnabas.api.group_consumer import GroupConsumer, GroupConsumerSettings
from barnabas.api.producer import Producer, ProducerSettings


class Client(Connection):
    """A connection to a cluster, and what is created with it. Closing it closes them all.

        with barnabas.Client("localhost:9092") as client:
            client.producer().send("orders", b"one order").result()

    `bootstrap_servers` is "host:port,host:port", or a list. The client connects on the first request. It retries
    requests that fail for a passing reason, for at most `request_timeout_ms`.

    A client and everything created with it belong to one thread.
    """

    def producer(self, **settings: Unpack[ProducerSettings]) -> Producer:
        """Create a Producer with these settings."""
        return Producer(self, **settings)

    def consumer(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> Consumer:
        """Create a Consumer of these topics."""
        return Consumer(self, *topics, **settings)

    def group_consumer(
        self, group_id: str, topics: Iterable[str], **settings: Unpack[GroupConsumerSettings]
    ) -> GroupConsumer:
        """Create a member of a consumer group."""
        return GroupConsumer(self, group_id, topics, **settings)

    def admin(self) -> Admin:
        """Create an Admin."""
        return Admin(self)
