"""The state-change history of this broker's controllers: into its outbox at once, from there to `__state_changes`.

What is promised. An event is in the local file before anybody is told of the change. Every broker publishes its own
file, in order and acknowledged by all in-sync replicas, and goes on where it stood after a restart, controller or not:
what a controller could not publish before it died is published when its broker comes back, behind what its successor
wrote meanwhile. So a reader finds every event at least once, those of one epoch in order, and tells repetitions by
(epoch, sequence), which is also the key of the record. What never comes: events whose file is lost with its disk, or
has been waiting for a week.

The topic is made when there is something to tell and a topic that it is about, through the same CreateTopics anybody
would send. Events about this topic alone are not published: they would be news of their own making.

The topic is internal: Metadata says so, and only brokers may write to it. By its name any client reads it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from datetime import datetime

from barnabas.broker.control_plane import history_client_id
from barnabas.broker.outbox import Outbox
from barnabas.broker.seldom import Seldom
from barnabas.client.connection import BrokerConnection
from barnabas.client.core import error_of, raise_if
from barnabas.controller.history import OWN, StateChange
from barnabas.errors import ApiError, ErrorCode, StorageError, WireError, reason
from barnabas.metadata.cache import INTERNAL_TOPICS, MetadataCache
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import NO_LEADER, Broker, BrokerId
from barnabas.retry import Backoff
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.records import Record, build_batch
from barnabas.world.ports import World

logger = logging.getLogger("barnabas.history")

REPLICAS_MAX = 3
WEEK_MS = 7 * 24 * 60 * 60 * 1000
DAY_MS = 24 * 60 * 60 * 1000
LONG_MAX = 2**63 - 1
CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": str(WEEK_MS),
    # Retention goes by whole segments: with one a day, a week is at most eight days.
    "segment.ms": str(DAY_MS),
    # Whatever the cluster's defaults are, the history can be written, with one replica left, and late.
    "min.insync.replicas": "1",
    "max.message.bytes": "1048588",
    "message.timestamp.before.max.ms": str(LONG_MAX),
}

LINGER_S = 0.25
"""What belongs together goes together, and after those who wait for the topic that was just created."""
BATCH_BYTES = 64 * 1024
TIMEOUT_S = 30.0
RETRY_S = (0.25, 5.0)
COMPLAINT_INTERVAL_S = 60.0

OWN_MARK = OWN.encode()
NAME = re.compile(rb'\{"at":"([^"]+)".*?"epoch":(\d+),"sequence":(\d+)')
REFUSED = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)


class StateLog:
    """Implements `StateChangeLog`."""

    def __init__(
        self,
        world: World,
        directory: str,
        metadata: MetadataCache,
        *,
        broker_id: BrokerId,
        listener: str,
        is_published: bool,
    ) -> None:
        self.world = world
        self.metadata = metadata
        self.broker_id = broker_id
        self.listener = listener
        self.is_published = is_published
        self.outbox = Outbox(world.disk, directory, world.clock)
        self.wake = asyncio.Event()
        self.is_closed = False
        self.complaint = Seldom(COMPLAINT_INTERVAL_S)
        self.connection: BrokerConnection | None = None
        self.connected_to: Broker | None = None

    def open(self) -> None:
        """After the directory was locked: another process may be writing there until then."""
        self.outbox.open()
        self.wake.set()

    def record(self, changes: Sequence[StateChange]) -> None:
        if changes and not self.is_closed:
            self.outbox.append(changes)
            self.wake.set()

    def close(self) -> None:
        """What is not published yet is published by the next run. Nothing is recorded any more: who closes this before
        the controller has ended wants it to die without a word."""
        self.is_closed = True
        self.disconnect()
        self.outbox.close()

    # ---- publishing

    async def publish(self) -> None:
        """For as long as the broker runs."""
        if not self.is_published:
            return
        backoff = Backoff(*RETRY_S, random=self.world.random)
        while True:
            await self.wake.wait()
            self.wake.clear()
            await asyncio.sleep(LINGER_S)
            try:
                await self.publish_outbox()
                backoff.reset()
            except StorageError as error:
                self.complain("cannot read or mark the state changes", error)
                self.wake.set()
                await backoff.wait()

    async def publish_outbox(self) -> None:
        while (chunk := self.outbox.unpublished(BATCH_BYTES)) is not None:
            lines = [line for line in chunk.lines if OWN_MARK not in line]
            if lines:
                await self.deliver(lines)
            self.outbox.advance(chunk.end)

    async def deliver(self, lines: list[bytes]) -> None:
        """Until it is done: there is nothing better to do with them."""
        backoff = Backoff(*RETRY_S, random=self.world.random)
        while True:
            if await self.is_there_a_topic():
                try:
                    await self.produce(lines)
                    return
                except ApiError as error:
                    if error.code in REFUSED:
                        await self.deliver_apart(lines, error)
                        return
                    self.complain("cannot publish the state changes", error)
                except (OSError, TimeoutError, WireError) as error:
                    self.complain("cannot publish the state changes", error)
                    self.disconnect()
            await backoff.wait()

    async def deliver_apart(self, lines: list[bytes], error: ApiError) -> None:
        """Somebody has narrowed the topic's settings: what still fits is published."""
        if len(lines) == 1:
            self.complain("a state change is not published", error)
            return
        middle = len(lines) // 2
        await self.deliver(lines[:middle])
        await self.deliver(lines[middle:])

    async def produce(self, lines: list[bytes]) -> None:
        topic = self.metadata.topics.get(STATE_CHANGES)
        if topic is None or 0 not in topic.partitions:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it was deleted just now")
        leader = topic.partitions[0].leader
        batch = build_batch([record(line, offset) for offset, line in enumerate(lines)])
        data = PartitionProduceData(0, batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=int(TIMEOUT_S * 1000),
            topic_data=(TopicProduceData(STATE_CHANGES, (data,)),),
        )
        connection = await self.connect(leader)
        # Longer than the leader may take, so that its own word on a timeout arrives.
        response = await connection.exchange(request, ProduceResponse, timeout_s=TIMEOUT_S + 5)
        answer = response.responses[0].partition_responses[0]
        raise_if(answer.error_code, answer.error_message)

    # ---- the topic

    async def is_there_a_topic(self) -> bool:
        """One with a leader; asked for where there is none, but not before there is another topic to tell of."""
        if STATE_CHANGES not in self.metadata.topics:
            while not await self.metadata.wait_until(self.is_there_news, TIMEOUT_S):
                pass
            await asyncio.sleep(LINGER_S)
            try:
                await self.create_topic()
            except ApiError as error:
                self.complain("cannot create the topic of the state changes", error)
                return False
            except (OSError, TimeoutError, WireError) as error:
                self.complain("cannot create the topic of the state changes", error)
                self.disconnect()
                return False
        return await self.metadata.wait_until(self.has_leader, RETRY_S[1])

    def is_there_news(self) -> bool:
        topics = self.metadata.topics
        return STATE_CHANGES in topics or any(name not in INTERNAL_TOPICS for name in topics)

    def has_leader(self) -> bool:
        topic = self.metadata.topics.get(STATE_CHANGES)
        partition = None if topic is None else topic.partitions.get(0)
        return partition is not None and partition.leader in self.metadata.brokers

    async def create_topic(self) -> None:
        metadata = self.metadata
        if metadata.controller_id == NO_LEADER:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "there is no controller")
        topic = CreatableTopic(
            name=STATE_CHANGES,
            num_partitions=1,
            replication_factor=min(REPLICAS_MAX, len(metadata.brokers)),
            configs=tuple(CreatableTopicConfig(*config) for config in CONFIGS.items()),
        )
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=int(TIMEOUT_S * 1000))
        connection = await self.connect(metadata.controller_id)
        response = await connection.exchange(request, CreateTopicsResponse, timeout_s=TIMEOUT_S + 5)
        result = response.topics[0]
        error = error_of(result.error_code, result.error_message)
        if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error

    # ---- connection

    async def connect(self, broker_id: BrokerId) -> BrokerConnection:
        broker = self.metadata.brokers.get(broker_id)
        if broker is None:
            raise ConnectionError(f"broker {broker_id} is not there")
        connection = self.connection
        if connection is not None and connection.is_open and self.connected_to == broker:
            return connection
        self.disconnect()
        endpoint = next(
            (each for each in broker.endpoints if each.listener == self.listener),
            broker.endpoints[0],
        )
        self.connection = await BrokerConnection.open(
            self.world.network,
            endpoint.host,
            endpoint.port,
            client_id=history_client_id(self.broker_id),
            timeout_s=TIMEOUT_S,
        )
        self.connected_to = broker
        return self.connection

    def disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def complain(self, what: str, error: Exception) -> None:
        if self.complaint.due(asyncio.get_running_loop().time()):
            logger.warning("%s error=%s", what, reason(error))


def record(line: bytes, offset: int) -> Record:
    """Its time is that of the event, its key the event's name: 7-12 is the twelfth of epoch 7."""
    found = NAME.match(line)
    if found is None:  # written by somebody else; passed on as it is
        return Record(offset, 0, None, line, ())
    at, epoch, sequence = found.groups()
    try:
        timestamp = round(datetime.fromisoformat(at.decode()).timestamp() * 1000)
    except (ValueError, OverflowError):  # damaged on the disk; readers skip it
        return Record(offset, 0, None, line, ())
    return Record(offset, timestamp, b"%s-%s" % (epoch, sequence), line, ())
