"""Sends markers to the leaders of partitions, with retries until each is written.

    coordinator ─► MarkerChannels.send ─► one MarkerSender per broker ─► WriteTxnMarkers
         ▲                  ▲                          │
         │ markers_written  └── retry, new leader ─────┤
         └─────────────────────────────────────────────┘

While a request is in flight, further markers wait, and the next request takes all of them. So many small transactions
share a request. Markers of a transaction that another broker coordinates by now are dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from random import Random
from typing import Protocol

from barnabas.errors import WireError, reason
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.topic_names import TRANSACTION_STATE
from barnabas.model import NO_LEADER, BrokerId, Endpoint, TopicPartition
from barnabas.retry import Backoff
from barnabas.tasks import Tasks
from barnabas.transactions.leader_exchange import LeaderConnection
from barnabas.transactions.markers import (
    DELETED,
    UNKNOWN_LEADER,
    MarkerEntry,
    build_markers_request,
    read_marker_results,
    route_markers,
)
from barnabas.transactions.transaction import Transaction
from barnabas.wire.messages.write_txn_markers import WriteTxnMarkersResponse
from barnabas.world.ports import Network

logger = logging.getLogger("barnabas.transactions")

MARKER_RETRY_SECONDS = (0.01, 1.0)
ATTEMPTS_PER_LINE = 20


class MarkerOwner(Protocol):
    """The coordinator, as MarkerChannels uses it."""

    def is_current(self, transaction: Transaction) -> bool:
        """Return whether this broker still coordinates the transaction."""

    def markers_written(
        self, transaction: Transaction, partitions: Collection[TopicPartition]
    ) -> None:
        """The partitions have their marker, or do not exist any more."""


class MarkerChannels:
    def __init__(
        self,
        *,
        broker_id: BrokerId,
        network: Network,
        metadata: MetadataCache,
        listener: str,
        timeout_s: float,
        owner: MarkerOwner,
    ) -> None:
        self.broker_id = broker_id
        self.network = network
        self.metadata = metadata
        self.listener = listener
        self.timeout_s = timeout_s
        self.owner = owner
        self.senders: dict[BrokerId, MarkerSender] = {}
        self.waiting: list[MarkerEntry] = []
        """Markers that failed, or whose partitions have no leader. They are sent again after a delay."""
        self.backoff = Backoff(*MARKER_RETRY_SECONDS, random=Random(broker_id))
        self.tasks = Tasks()
        self.is_retrying = False

    def send(self, entry: MarkerEntry) -> None:
        """Send the markers to the current leaders. Markers of unknown leaders wait."""
        if not self.owner.is_current(entry.transaction):
            return
        routes = route_markers(entry, self.leader_of)
        for broker, part in routes.items():
            if broker == UNKNOWN_LEADER:
                self.retry_later(part)
            elif broker != DELETED:
                self.sender_of(broker).add(part)
        # Last, since it may complete the transaction.
        if DELETED in routes or not routes:
            deleted = routes[DELETED].partitions if DELETED in routes else frozenset()
            self.owner.markers_written(entry.transaction, deleted)

    def leader_of(self, partition: TopicPartition) -> BrokerId:
        topics = self.metadata.topics
        topic = topics.get(partition.topic)
        state = None if topic is None else topic.partitions.get(partition.partition)
        if state is None:
            # A broker that has just started may coordinate before it gets the metadata of the cluster.
            return DELETED if TRANSACTION_STATE in topics else UNKNOWN_LEADER
        if state.leader == NO_LEADER or self.endpoint_of(state.leader) is None:
            return UNKNOWN_LEADER
        return BrokerId(state.leader)

    def endpoint_of(self, broker: int) -> Endpoint | None:
        return self.metadata.endpoint_of(broker, self.listener)

    def sender_of(self, broker: BrokerId) -> MarkerSender:
        sender = self.senders.get(broker)
        if sender is None:
            sender = self.senders[broker] = MarkerSender(broker, self)
            self.tasks.start(f"markers-{broker}", sender.run())
        return sender

    def retry_later(self, entry: MarkerEntry) -> None:
        """Send the markers again after a delay, to the leaders of that time."""
        self.waiting.append(entry)
        if not self.is_retrying:
            self.is_retrying = True
            self.tasks.start("retry-markers", self.retry())

    async def retry(self) -> None:
        await self.backoff.wait()
        if self.backoff.failures % ATTEMPTS_PER_LINE == 0:
            names = sorted({each.transaction.transactional_id for each in self.waiting})
            logger.warning(
                "cannot write markers yet transactions=%d first=%s", len(names), names[0]
            )
        self.is_retrying = False
        waiting, self.waiting = self.waiting, []
        for entry in waiting:
            self.send(entry)

    async def stop(self) -> None:
        await self.tasks.stop()


class MarkerSender:
    """Sends the queued markers of one broker, one request at a time."""

    def __init__(self, broker: BrokerId, channels: MarkerChannels) -> None:
        self.broker = broker
        self.channels = channels
        self.queue: list[MarkerEntry] = []
        self.wakeup = asyncio.Event()
        self.connection = LeaderConnection(broker, channels)

    def add(self, entry: MarkerEntry) -> None:
        self.queue.append(entry)
        self.wakeup.set()

    async def run(self) -> None:
        try:
            while True:
                await self.wakeup.wait()
                self.wakeup.clear()
                entries, self.queue = self.queue, []
                is_current = self.channels.owner.is_current
                entries = [each for each in entries if is_current(each.transaction)]
                try:
                    if entries:
                        await self.deliver(entries)
                except Exception:
                    logger.exception("cannot handle a response to markers broker=%d", self.broker)
                    for entry in entries:
                        self.channels.retry_later(entry)
        finally:
            self.connection.close("the coordinator stopped sending markers")

    async def deliver(self, entries: list[MarkerEntry]) -> None:
        channels = self.channels
        try:
            response = await self.connection.exchange(
                build_markers_request(entries),
                WriteTxnMarkersResponse,
                is_leader=lambda: self.leads_all(entries),
            )
        except (OSError, TimeoutError, WireError) as error:
            self.connection.close("lost")
            logger.debug("cannot send markers broker=%d error=%s", self.broker, reason(error))
            for entry in entries:
                channels.retry_later(entry)
            return
        outcomes = read_marker_results(entries, response)
        if not any(outcome.retried for outcome in outcomes):
            channels.backoff.reset()
        for entry, outcome in zip(entries, outcomes, strict=True):
            if not channels.owner.is_current(entry.transaction):
                continue
            for partition, code in outcome.superseded.items():
                logger.warning(
                    "marker rejected, transaction is not completed transactional_id=%s "
                    "partition=%s error=%s",
                    entry.transaction.transactional_id,
                    partition,
                    code.name,
                )
            if outcome.retried:
                channels.retry_later(entry._replace(partitions=outcome.retried))
            if outcome.written:
                channels.owner.markers_written(entry.transaction, outcome.written)

    def leads_all(self, entries: list[MarkerEntry]) -> bool:
        leader_of = self.channels.leader_of
        return all(leader_of(each) == self.broker for entry in entries for each in entry.partitions)
