"""Sends proposed ISR changes to the controller (AlterPartition).

Proposals of the same event loop iteration share a request, and one request is in flight at a time. A proposal is
retried until the controller has answered it or a LeaderAndIsr has made it obsolete. Each attempt goes to the controller
that the metadata cache names at that moment, so a retry after a failover reaches the new controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from random import Random
from typing import NamedTuple, Protocol
from uuid import UUID

from barnabas.client.connection import BrokerConnection
from barnabas.errors import ErrorCode, RemoteWireError, reason
from barnabas.metadata.cache import MetadataCache
from barnabas.model import BrokerEpoch, BrokerId, Endpoint
from barnabas.replication.isr import IsrChange, IsrChangeOutcome
from barnabas.replication.partition import Partition
from barnabas.retry import Backoff
from barnabas.wire.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)
from barnabas.world.ports import Network

logger = logging.getLogger("barnabas.isr")

RETRY_SECONDS = (0.05, 0.2)
"""Minimum and maximum. Short, so that a new controller receives ISR changes soon after a failover."""
CONNECT_TIMEOUT_SECONDS = 10.0
RESPONSE_TIMEOUT_SECONDS = 30.0


class RegisteredBroker(Protocol):
    """This broker, with the epoch of its current registration."""

    broker_epoch: BrokerEpoch


class Proposal(NamedTuple):
    partition: Partition
    change: IsrChange

    @property
    def is_obsolete(self) -> bool:
        """Whether the partition no longer waits for this change."""
        return self.partition.pending is not self.change


class IsrProposals:
    """Proposals that wait for the controller, at most one per partition, and the task that sends them."""

    def __init__(
        self,
        broker_id: BrokerId,
        network: Network,
        metadata: MetadataCache,
        registration: RegisteredBroker,
        listener: str,
    ) -> None:
        self.broker_id = broker_id
        self.network = network
        self.metadata = metadata
        self.registration = registration
        self.listener = listener
        self.waiting: dict[tuple[UUID, int], Proposal] = {}
        self.has_waiting = asyncio.Event()
        self.connection: BrokerConnection | None = None
        self.connected_to: Endpoint | None = None
        self.backoff = Backoff(*RETRY_SECONDS, random=Random(broker_id))
        self.shrinks = self.expansions = self.failures = 0
        """Numbers of changes since the start. Those that the controller decides itself are not included."""

    def submit(self, partition: Partition, change: IsrChange) -> None:
        self.waiting[partition.topic_id, partition.index] = Proposal(partition, change)
        self.has_waiting.set()

    async def run(self) -> None:
        try:
            while True:
                await self.has_waiting.wait()
                await asyncio.sleep(0)  # collects the other proposals of this loop iteration
                is_delivered = await self.deliver()
                if is_delivered:
                    self.backoff.reset()
                if not self.waiting:
                    self.has_waiting.clear()
                elif not is_delivered:
                    await self.backoff.wait()
        finally:
            self.disconnect("stopped")

    async def deliver(self) -> bool:
        """Send the waiting proposals. Return False if some must be retried after a delay."""
        sent = {key: proposal for key, proposal in self.waiting.items() if not proposal.is_obsolete}
        self.waiting = dict(sent)
        if not sent:
            return True
        try:
            connection = await self.connect()
            request = build_alter_partition_request(
                self.broker_id, self.registration.broker_epoch, list(sent.values())
            )
            response = await self.send(connection, request)
        except (ConnectionError, TimeoutError, RemoteWireError) as error:
            logger.info(
                "cannot send proposals to controller=%d reason=%s",
                self.metadata.controller_id,
                reason(error),
            )
            self.disconnect(reason(error))
            return False
        if response.error_code != ErrorCode.NONE:
            logger.info(
                "proposals rejected by controller=%d proposals=%d error=%s",
                *(self.metadata.controller_id, len(sent), ErrorCode(response.error_code).name),
            )
            self.disconnect("the controller may have changed")
            return False
        return self.handle_response(response, sent)

    async def send(
        self, connection: BrokerConnection, request: AlterPartitionRequest
    ) -> AlterPartitionResponse:
        """Send the request, and abort it if the controller changes: the old controller may not respond."""

        async def close_after_change() -> None:
            def has_changed() -> bool:
                return self.endpoint() != self.connected_to

            if await self.metadata.wait_until(has_changed, RESPONSE_TIMEOUT_SECONDS):
                connection.close("the controller changed")

        watch = asyncio.get_running_loop().create_task(close_after_change())
        try:
            return await connection.exchange(
                request, AlterPartitionResponse, timeout_s=RESPONSE_TIMEOUT_SECONDS
            )
        finally:
            watch.cancel()

    def handle_response(
        self, response: AlterPartitionResponse, sent: dict[tuple[UUID, int], Proposal]
    ) -> bool:
        """Remove the answered proposals. Return False if any of `sent` is unanswered or must be retried."""
        is_done = True
        for topic in response.topics:
            for result in topic.partitions:
                key = topic.topic_id, result.partition_index
                proposal = sent.get(key)
                if proposal is None:
                    continue
                before = len(proposal.partition.isr)
                outcome = proposal.partition.complete_isr_change(
                    proposal.change,
                    result.error_code,
                    isr=self.metadata.share(result.isr),
                    leader_epoch=result.leader_epoch,
                    partition_epoch=result.partition_epoch,
                )
                self.count(outcome, len(proposal.partition.isr) - before)
                if outcome is IsrChangeOutcome.RETRY:
                    is_done = False
                elif self.waiting.get(key) is proposal:
                    del self.waiting[key]
        return is_done and not any(self.waiting.get(key) is sent[key] for key in sent)

    def count(self, outcome: IsrChangeOutcome, growth: int) -> None:
        if outcome is IsrChangeOutcome.COMMIT:
            self.shrinks += growth < 0
            self.expansions += growth > 0
        elif outcome is not IsrChangeOutcome.STAY:
            self.failures += 1

    async def connect(self) -> BrokerConnection:
        """Return a connection to the current controller. Raises ConnectionError or TimeoutError if there is none."""
        endpoint = self.endpoint()
        if endpoint is None:
            raise ConnectionError(f"controller {self.metadata.controller_id} has no known address")
        connection = self.connection
        if connection is not None and connection.is_open and self.connected_to == endpoint:
            return connection
        self.disconnect("the controller changed")
        self.connection = await BrokerConnection.open(
            self.network,
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{self.broker_id}-alter-partition",
            timeout_s=CONNECT_TIMEOUT_SECONDS,
        )
        self.connected_to = endpoint
        return self.connection

    def endpoint(self) -> Endpoint | None:
        return self.metadata.endpoint_of(self.metadata.controller_id, self.listener)

    def disconnect(self, why: str) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close(why)


def build_alter_partition_request(
    broker_id: BrokerId, broker_epoch: int, proposals: Sequence[Proposal]
) -> AlterPartitionRequest:
    """Build the request. It has the broker epoch of each replica's last fetch: the controller thus detects restarts."""
    topics: dict[UUID, list[AlterPartitionPartition]] = {}
    for partition, change in proposals:
        topics.setdefault(partition.topic_id, []).append(
            AlterPartitionPartition(
                partition_index=partition.index,
                leader_epoch=change.leader_epoch,
                new_isr_with_epochs=tuple(
                    BrokerState(
                        each,
                        broker_epoch
                        if each == broker_id
                        else partition.follower_broker_epoch(each),
                    )
                    for each in change.isr
                ),
                partition_epoch=change.partition_epoch,
            )
        )
    return AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        topics=tuple(
            AlterPartitionTopic(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in topics.items()
        ),
    )
