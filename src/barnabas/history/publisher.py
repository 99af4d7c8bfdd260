"""Publisher: writes the events of this broker's controllers to its journal, and from there to `__state_changes`.

The events of its group and transaction coordinators are in a second journal, and are published in the same way. Without
the topic they are not recorded.

Guarantees. An event is in the journal before any broker learns of the change. Each broker publishes its own journal, in
order and with acks=all. After a restart it resumes where it stopped, whether it is controller or not. If a controller
crashes, its broker publishes the remaining events after its restart, and thus after those of the next controller. A
reader gets every published event at least once, and the events of one epoch in order. It deduplicates them by (epoch,
sequence), which is also the key of the record. An event is lost if the journal cannot write or keep it, or the topic
rejects it.

The topic is created when another topic exists. Events about this topic alone are not published, because publishing one
would cause the next.

The topic is internal: Metadata marks it so, and only brokers may write to it. Any client can read it by its name.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from datetime import datetime

from barnabas.batch.records import Record, build_batch
from barnabas.client.connection import BrokerConnection
from barnabas.client.core import error_of, raise_if
from barnabas.errors import ApiError, ErrorCode, StorageError, WireError, reason
from barnabas.history.coordinator_recorder import CoordinatorRecorder
from barnabas.history.journal import (
    COORDINATOR_BYTES,
    COORDINATOR_PREFIX,
    DAY_MS,
    KEPT_MS,
    WARNING_INTERVAL_S,
    Journal,
)
from barnabas.history.recorder import OWN, EventLine
from barnabas.log_rate_limiter import LogRateLimiter
from barnabas.metadata.cache import INTERNAL_TOPICS, MetadataCache
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import NO_LEADER, Broker, BrokerId
from barnabas.retry import Backoff
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.world.ports import World

logger = logging.getLogger("barnabas.history")

REPLICAS_MAX = 3
CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": str(KEPT_MS),
    # Retention deletes whole segments: with one a day, records are kept for at most eight days.
    "segment.ms": str(DAY_MS),
    # Override the defaults of the cluster, so that writes succeed with one replica left and with old events.
    "min.insync.replicas": "1",
    "max.message.bytes": "1048588",
    "message.timestamp.before.max.ms": str(2**63 - 1),
}

LINGER_S = 0.25
"""Delay before publishing, so that related events get into one batch and clients of a new topic are served first."""
BATCH_BYTES = 64 * 1024
TIMEOUT_S = 30.0
RETRY_S = (0.25, 5.0)

OWN_MARK = OWN.encode()
KEY = re.compile(rb'\{"at":"([^"]+)".*?"epoch":(\d+),"sequence":(\d+)')
COORDINATOR_KEY = re.compile(rb'\{"at":"([^"]+)","broker":(\d+),"run":(\d+),"sequence":(\d+)')
CONNECTION_ERRORS = (OSError, TimeoutError, WireError)
REJECTED = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)


class Publisher:
    """Appends events to a journal (as an `EventSink`) and publishes the journal.

    `client_id` identifies this broker to the leader of the topic, which accepts writes from brokers only.
    """

    def __init__(
        self,
        world: World,
        directory: str,
        metadata: MetadataCache,
        *,
        client_id: str,
        listener: str,
        is_enabled: bool,
    ) -> None:
        self.world = world
        self.metadata = metadata
        self.client_id = client_id
        self.listener = listener
        self.is_enabled = is_enabled
        self.journal = Journal(world.disk, directory, world.clock)
        self.coordinator_journal = Journal(
            world.disk,
            directory,
            world.clock,
            prefix=COORDINATOR_PREFIX,
            bytes_max=COORDINATOR_BYTES,
        )
        self.wake = asyncio.Event()
        self.is_closed = False
        self.warnings = LogRateLimiter(WARNING_INTERVAL_S)
        self.connection: BrokerConnection | None = None
        self.connected_to: Broker | None = None

    def open(self) -> None:
        """Open the journal. The caller must have locked the directory, because another process may write there."""
        self.journal.open()
        self.coordinator_journal.open()
        self.wake.set()

    def append(self, events: Sequence[EventLine]) -> None:
        if events and not self.is_closed:
            self.journal.append(events)
            self.wake.set()

    def coordinator_recorder(self, broker_id: BrokerId) -> CoordinatorRecorder | None:
        """Return the recorder for the coordinators of this broker. None if the history is disabled."""
        if not self.is_enabled:
            return None
        clock = self.world.clock
        run = self.coordinator_journal.next_epoch(clock.now_ms())
        return CoordinatorRecorder(broker_id, run, clock, CoordinatorSink(self))

    def close(self) -> None:
        """Close the journal. The next run publishes the rest.

        Later events are ignored: after a simulated crash the controller still runs, but must not record its end.
        """
        self.is_closed = True
        self.disconnect()
        self.journal.close()
        self.coordinator_journal.close()

    # ---- publishing

    async def publish(self) -> None:
        """Publish new events of the journal until the broker stops."""
        if not self.is_enabled:
            return
        backoff = Backoff(*RETRY_S, random=self.world.random)
        while True:
            await self.wake.wait()
            self.wake.clear()
            await asyncio.sleep(LINGER_S)
            try:
                await self.publish_journal(self.journal)
                await self.publish_journal(self.coordinator_journal)
                backoff.reset()
            except StorageError as error:
                self.warn("cannot read the journal of state changes or save its position", error)
                self.wake.set()
                await backoff.wait()

    async def publish_journal(self, journal: Journal) -> None:
        while (chunk := journal.next_chunk(BATCH_BYTES)) is not None:
            lines = [line for line in chunk.lines if OWN_MARK not in line]
            if lines:
                await self.deliver(lines)
            journal.advance(chunk.end)

    async def deliver(self, lines: list[bytes]) -> None:
        """Publish the lines, with retries until all are published."""
        backoff = Backoff(*RETRY_S, random=self.world.random)
        while True:
            if await self.ensure_topic():
                try:
                    await self.produce(lines)
                    return
                except (ApiError, *CONNECTION_ERRORS) as error:
                    if isinstance(error, ApiError) and error.code in REJECTED:
                        await self.deliver_in_halves(lines, error)
                        return
                    self.handle_failure("cannot publish state changes", error)
            await backoff.wait()

    async def deliver_in_halves(self, lines: list[bytes], error: ApiError) -> None:
        """Publish the lines that the topic accepts. Called if it rejects some, because its settings were changed."""
        if len(lines) == 1:
            self.warn("cannot publish a state change: the topic rejects it", error)
            return
        middle = len(lines) // 2
        await self.deliver(lines[:middle])
        await self.deliver(lines[middle:])

    async def produce(self, lines: list[bytes]) -> None:
        topic = self.metadata.topics.get(STATE_CHANGES)
        if topic is None or 0 not in topic.partitions:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{STATE_CHANGES} was deleted")
        leader = topic.partitions[0].leader
        batch = build_batch([to_record(line, offset) for offset, line in enumerate(lines)])
        data = PartitionProduceData(0, batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=int(TIMEOUT_S * 1000),
            topic_data=(TopicProduceData(STATE_CHANGES, (data,)),),
        )
        connection = await self.connect(leader)
        # Longer than the timeout of the leader, so that its error arrives.
        response = await connection.exchange(request, ProduceResponse, timeout_s=TIMEOUT_S + 5)
        result = response.responses[0].partition_responses[0]
        raise_if(result.error_code, result.error_message)

    # ---- the topic

    async def ensure_topic(self) -> bool:
        """Create the topic if it is missing, as soon as another topic exists. Return whether it has a leader."""
        if STATE_CHANGES not in self.metadata.topics:
            while not await self.metadata.wait_until(self.has_any_topic, TIMEOUT_S):
                pass
            await asyncio.sleep(LINGER_S)
            try:
                await self.create_topic()
            except (ApiError, *CONNECTION_ERRORS) as error:
                self.handle_failure(f"cannot create {STATE_CHANGES}", error)
                return False
        return await self.metadata.wait_until(self.has_leader, RETRY_S[1])

    def has_any_topic(self) -> bool:
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
            raise ConnectionError(f"broker {broker_id} is not alive")
        connection = self.connection
        if connection is not None and connection.is_open and self.connected_to == broker:
            return connection
        self.disconnect()
        endpoint = self.metadata.endpoint(broker, self.listener) or broker.endpoints[0]
        self.connection = await BrokerConnection.open(
            self.world.network,
            endpoint.host,
            endpoint.port,
            client_id=self.client_id,
            timeout_s=TIMEOUT_S,
        )
        self.connected_to = broker
        return self.connection

    def disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def handle_failure(self, problem: str, error: Exception) -> None:
        """Log a warning. Disconnect, unless the error came from a response."""
        self.warn(problem, error)
        if not isinstance(error, ApiError):
            self.disconnect()

    def warn(self, problem: str, error: Exception) -> None:
        if self.warnings.is_due(asyncio.get_running_loop().time()):
            logger.warning("%s error=%s", problem, reason(error))


class CoordinatorSink:
    """Receives the events of coordinators (as an `EventSink`)."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher

    def append(self, events: Sequence[EventLine]) -> None:
        publisher = self.publisher
        if not publisher.is_closed:
            publisher.coordinator_journal.append(events)
            publisher.wake.set()


def to_record(line: bytes, offset: int) -> Record:
    """Return the record of an event: its time as timestamp, its identity as key.

    `<epoch>-<sequence>`, such as 7-12; `<broker>-<run>-<sequence>` for an event of a coordinator.
    """
    found = COORDINATOR_KEY.match(line) or KEY.match(line)
    if found is None:  # written by another program; published unchanged
        return Record(offset, 0, None, line, ())
    at, *key = found.groups()
    try:
        timestamp = round(datetime.fromisoformat(at.decode()).timestamp() * 1000)
    except (ValueError, OverflowError):  # corrupt on disk; readers skip it
        return Record(offset, 0, None, line, ())
    return Record(offset, timestamp, b"-".join(key), line, ())
