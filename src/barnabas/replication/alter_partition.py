"""How leaders ask the controller to change their ISRs.

Proposals of one turn of the loop go together, one request is under way at a time, and what could not be delivered is
delivered again, until the controller has answered or a LeaderAndIsr has made the proposal void. The controller is who
the metadata cache says it is at that moment: after a failover the next attempt goes to the new one.
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
from barnabas.replication.isr import IsrChange, Outcome
from barnabas.replication.partition import Partition
from barnabas.retry import Backoff
from barnabas.wire.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)
from barnabas.world.ports import Network

logger = logging.getLogger("barnabas.isr")

RETRY_SECONDS = (0.05, 0.2)
"""Short: after a failover, the new controller is to hear of ISR changes soon."""
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0


class RegisteredBroker(Protocol):
    """Ourselves as we are registered."""

    broker_epoch: BrokerEpoch


class Proposal(NamedTuple):
    partition: Partition
    change: IsrChange

    @property
    def is_void(self) -> bool:
        """The partition has gone on without it."""
        return self.partition.pending is not self.change


class IsrProposals:
    """What waits to be sent to the controller, one proposal per partition, and the task that sends it."""

    def __init__(
        self,
        broker_id: BrokerId,
        network: Network,
        metadata: MetadataCache,
        control: RegisteredBroker,
        listener: str,
    ) -> None:
        self.broker_id = broker_id
        self.network = network
        self.metadata = metadata
        self.control = control
        self.listener = listener
        self.waiting: dict[tuple[UUID, int], Proposal] = {}
        self.is_waiting = asyncio.Event()
        self.connection: BrokerConnection | None = None
        self.connected_to: Endpoint | None = None
        self.backoff = Backoff(*RETRY_SECONDS, random=Random(broker_id))

    def submit(self, partition: Partition, change: IsrChange) -> None:
        self.waiting[partition.topic_id, partition.index] = Proposal(partition, change)
        self.is_waiting.set()

    async def run(self) -> None:
        try:
            while True:
                await self.is_waiting.wait()
                await asyncio.sleep(0)  # what else this turn of the loop brings goes with it
                is_delivered = await self.deliver()
                if is_delivered:
                    self.backoff.reset()
                if not self.waiting:
                    self.is_waiting.clear()
                elif not is_delivered:
                    await self.backoff.wait()
        finally:
            self.disconnect("stopped")

    async def deliver(self) -> bool:
        """Send what is waiting; False if it has to be tried again in a while."""
        sent = {key: proposal for key, proposal in self.waiting.items() if not proposal.is_void}
        self.waiting = dict(sent)
        if not sent:
            return True
        try:
            connection = await self.connect()
            request = request_of(self.broker_id, self.control.broker_epoch, list(sent.values()))
            response = await self.ask(connection, request)
        except (ConnectionError, TimeoutError, RemoteWireError) as error:
            logger.info(
                "cannot reach controller=%d reason=%s", self.metadata.controller_id, reason(error)
            )
            self.disconnect(reason(error))
            return False
        if response.error_code != ErrorCode.NONE:
            logger.info(
                "controller=%d refused proposals=%d error=%s",
                self.metadata.controller_id,
                len(sent),
                ErrorCode(response.error_code).name,
            )
            self.disconnect("another controller may be in charge by now")
            return False
        return self.take_answers(response, sent)

    async def ask(
        self, connection: BrokerConnection, request: AlterPartitionRequest
    ) -> AlterPartitionResponse:
        """Not longer than this controller is the one: it may hang, and the next one would not be asked."""

        async def hang_up_when_replaced() -> None:
            def is_replaced() -> bool:
                return self.endpoint() != self.connected_to

            if await self.metadata.wait_until(is_replaced, ANSWER_SECONDS):
                connection.close("another controller is in charge")

        watching = asyncio.get_running_loop().create_task(hang_up_when_replaced())
        try:
            return await connection.exchange(
                request, AlterPartitionResponse, timeout_s=ANSWER_SECONDS
            )
        finally:
            watching.cancel()

    def take_answers(
        self, response: AlterPartitionResponse, sent: dict[tuple[UUID, int], Proposal]
    ) -> bool:
        """What the answer does not speak of stays, and so does what may succeed later."""
        is_done = True
        for topic in response.topics:
            for answer in topic.partitions:
                key = topic.topic_id, answer.partition_index
                proposal = sent.get(key)
                if proposal is None:
                    continue
                if self.answered(proposal, answer) is Outcome.RETRY:
                    is_done = False
                elif self.waiting.get(key) is proposal:
                    del self.waiting[key]
        return is_done and not any(self.waiting.get(key) is sent[key] for key in sent)

    def answered(self, proposal: Proposal, answer: AlterPartitionPartitionResponse) -> Outcome:
        return proposal.partition.isr_answered(
            proposal.change,
            answer.error_code,
            isr=self.metadata.share(answer.isr),
            leader_epoch=answer.leader_epoch,
            partition_epoch=answer.partition_epoch,
        )

    async def connect(self) -> BrokerConnection:
        """The connection to whoever is the controller now; ConnectionError if that is nobody we can reach."""
        endpoint = self.endpoint()
        if endpoint is None:
            raise ConnectionError("no controller has a known address")
        connection = self.connection
        if connection is not None and connection.is_open and self.connected_to == endpoint:
            return connection
        self.disconnect("the controller is elsewhere")
        self.connection = await BrokerConnection.open(
            self.network,
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{self.broker_id}-alter-partition",
            timeout_s=CONNECT_SECONDS,
        )
        self.connected_to = endpoint
        return self.connection

    def endpoint(self) -> Endpoint | None:
        return self.metadata.endpoint_of(self.metadata.controller_id, self.listener)

    def disconnect(self, why: str) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close(why)


def request_of(
    broker_id: BrokerId, broker_epoch: int, proposals: Sequence[Proposal]
) -> AlterPartitionRequest:
    """Each member with the epoch in which it caught up: one that has restarted since is refused."""
    topics: dict[UUID, list[AlterPartitionPartition]] = {}
    for partition, change in proposals:
        topics.setdefault(partition.topic_id, []).append(
            AlterPartitionPartition(
                partition_index=partition.index,
                leader_epoch=change.leader_epoch,
                new_isr_with_epochs=tuple(
                    BrokerState(
                        each, broker_epoch if each == broker_id else partition.epoch_of(each)
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
