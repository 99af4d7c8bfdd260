"""Fetcher: a task of a follower that copies partitions from one leader.

    include changed partitions ─► Fetch (waits at the leader) ─► append, partition by partition ─► …

A fetcher appends the records of a response before it sends the next fetch. So a follower has all records below the
offset that it fetches, which leaders rely on. If flush.messages requires it, these records are also flushed by then.

All partitions of a fetcher share an incremental fetch session. A request includes only partitions whose offset changed.
An idle fetcher sends one small request per replica.fetch.wait.max.ms, regardless of its number of partitions.

When a partition is added while a fetch waits at the leader, the fetcher interrupts the fetch after a short delay. The
session continues over another connection. So the followers of a new leader start fetching at once.

After an error, a partition is delayed while others continue: from 20 ms on for an error that is expected while metadata
propagates, else for replica.fetch.backoff.ms. It is stopped until the next LeaderAndIsr if the leader has a newer epoch
or an append failed; a corrupt batch or a full disk only delays it. A throttled partition (quota.py) that is not in sync
is delayed while the quota is exceeded, and otherwise fetched in small pieces, because the others wait for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random
from typing import Protocol
from uuid import UUID

from barnabas.client.connection import BrokerConnection, ExchangeInterrupted
from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ErrorCode, OutOfSpace, RemoteWireError, StorageError, reason
from barnabas.metadata.cache import MetadataCache
from barnabas.model import BrokerId, TopicPartition
from barnabas.replication import follower
from barnabas.replication.alter_partition import RegisteredBroker
from barnabas.replication.partition import Partition
from barnabas.replication.quota import ReplicationQuota, is_throttled
from barnabas.retry import Backoff
from barnabas.wire.messages.fetch import (
    NO_DIVERGENCE,
    FetchPartition,
    FetchReplicaState,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from barnabas.wire.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.world.ports import Clock, Network

logger = logging.getLogger("barnabas.fetcher")

BYTES_PER_YIELD = 256 << 10
"""Bytes to append before other tasks run."""
THROTTLED_SECONDS = 0.005
"""One fetch requests as many bytes of throttled partitions as the quota allows in this time."""
THROTTLED_BYTES_MIN = 64 << 10
"""One fetch requests at least this many bytes of a throttled partition."""
INTERRUPT_DELAY_SECONDS = 0.02
FIRST_RETRY_SECONDS = 0.02
"""Short: the metadata that this broker already has usually reaches the leader within milliseconds."""
RETRY_FACTOR = 4.0
NO_SESSION = 0
FIRST_SESSION_EPOCH = 0
SESSION_EPOCH_MAX = 0x7FFF_FFFF
EXPECTED_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Normal while metadata propagates: leader and follower do not receive a change at the same time."""

PartitionKey = tuple[UUID, int]
"""Topic id and partition index."""


class PartitionFetchState:
    """Fetch state of one partition. Each LeaderAndIsr creates a new one, so responses to older fetches are ignored."""

    __slots__ = (
        "backoff",
        "fetch_offset",
        "is_in_sync",
        "key",
        "leader_epoch",
        "partition",
        "timer",
    )

    def __init__(self, partition: Partition, backoff: Backoff) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.key: PartitionKey = (partition.topic_id, partition.index)
        self.fetch_offset = -1
        """Offset of the last fetch; -1 before the first."""
        self.is_in_sync = False
        """Whether the log reached the leader's high watermark with the last response."""
        self.backoff = backoff
        self.timer: asyncio.TimerHandle | None = None
        """Timer that ends the delay; None while the partition is active."""


class FetcherReplicaManager(Protocol):
    """The part of ReplicaManager that a fetcher uses."""

    broker_id: BrokerId
    metadata: MetadataCache
    config: BrokerConfig
    clock: Clock
    follower_quota: ReplicationQuota | None

    def fail(self, partition: Partition, error: StorageError) -> None: ...

    def flush(self, partition: Partition) -> asyncio.Future[None]: ...


class Fetcher:
    """Copies partitions from the broker `leader`. Calls `on_failed` to remove a partition that cannot be fetched."""

    def __init__(
        self,
        leader: BrokerId,
        fetcher_id: int,
        *,
        replica_manager: FetcherReplicaManager,
        network: Network,
        registration: RegisteredBroker,
        on_failed: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        self.replica_manager = replica_manager
        self.network = network
        self.registration = registration
        self.config = replica_manager.config
        self.backoff_s = self.config.replica_fetch_backoff_ms / 1000
        self.timeout_s = self.config.replica_socket_timeout_ms / 1000
        self.on_failed = on_failed
        self.leader = leader
        self.client_id = f"broker-{self.replica_manager.broker_id}-fetcher-{fetcher_id}"
        self.partitions: dict[TopicPartition, PartitionFetchState] = {}
        self.active: dict[PartitionKey, PartitionFetchState] = {}
        """Partitions that are not delayed."""
        self.to_include: dict[PartitionKey, None] = {}
        """Active partitions to include in the next request of the session."""
        self.to_forget: dict[PartitionKey, None] = {}
        """Partitions to remove from the session with the next request."""
        self.throttled_bytes: dict[PartitionKey, int] = {}
        """How many bytes the next request may fetch of each throttled partition."""
        self.session_id = NO_SESSION
        self.session_epoch = FIRST_SESSION_EPOCH
        self.connection: BrokerConnection | None = None
        self.has_work = asyncio.Event()
        self.is_in_flight = False
        """A fetch waits for its response."""
        self.interruption: asyncio.TimerHandle | None = None
        self.has_session_slot = True
        """False if the leader opened no session at the last fetch."""
        self.is_stopped = False
        self.random = Random(f"{self.client_id}-{leader}")
        self.backoff = self.new_backoff()

    def add(self, partition: Partition) -> None:
        state = PartitionFetchState(partition, self.new_backoff())
        self.partitions[TopicPartition(partition.topic, partition.index)] = state
        self.activate(state, is_urgent=True)

    def new_backoff(self) -> Backoff:
        return Backoff(FIRST_RETRY_SECONDS, self.backoff_s, factor=RETRY_FACTOR, random=self.random)

    def remove(self, tp: TopicPartition) -> None:
        state = self.partitions.pop(tp, None)
        if state is not None:
            self.deactivate(state)
            if state.timer is not None:
                state.timer.cancel()

    def activate(self, state: PartitionFetchState, is_urgent: bool = False) -> None:
        """Include the partition in the next fetch. If `is_urgent`, soon interrupt a fetch in flight."""
        state.timer = None
        self.active[state.key] = state
        self.to_include[state.key] = None
        self.to_forget.pop(state.key, None)
        self.has_work.set()
        if is_urgent and self.is_in_flight and self.interruption is None:
            loop = asyncio.get_running_loop()
            self.interruption = loop.call_later(INTERRUPT_DELAY_SECONDS, self.interrupt)

    def deactivate(self, state: PartitionFetchState) -> None:
        if self.active.pop(state.key, None) is not None:
            self.to_include.pop(state.key, None)
            if state.fetch_offset >= 0:
                self.to_forget[state.key] = None

    def delay(
        self, state: PartitionFetchState, seconds: float | None = None, *, is_urgent: bool = False
    ) -> None:
        """Exclude the partition from fetches for `seconds`; None: for replica.fetch.backoff.ms."""
        if self.active.get(state.key) is state:
            self.deactivate(state)
            seconds = self.backoff_s if seconds is None else seconds
            loop = asyncio.get_running_loop()
            state.timer = loop.call_later(seconds, self.activate, state, is_urgent)

    def stop_partition(self, state: PartitionFetchState) -> None:
        """Log this and call `on_failed`, which removes the partition until the next LeaderAndIsr."""
        tp = TopicPartition(state.partition.topic, state.partition.index)
        if self.partitions.get(tp) is state:
            logger.info("stopped fetching partition=%s leader=%d", tp, self.leader)
            self.on_failed((tp,))

    def stop(self) -> None:
        """End the task at its next step. Closing the connection ends a fetch in flight."""
        self.is_stopped = True
        if self.interruption is not None:
            self.interruption.cancel()
        self.has_work.set()
        self.disconnect("no partitions to fetch")

    # ---- the task

    async def run(self) -> None:
        try:
            while not self.is_stopped:
                if not self.active:
                    self.has_work.clear()
                    await self.has_work.wait()
                    continue
                try:
                    await self.fetch_once()
                except ExchangeInterrupted:
                    self.resume_session()
                except (ConnectionError, TimeoutError, RemoteWireError) as error:
                    self.handle_connection_error(error)
                    await self.backoff.wait()
        finally:
            self.disconnect("stopped")

    def interrupt(self) -> None:
        """End a fetch in flight if more partitions are to be included."""
        self.interruption = None
        if self.is_in_flight and self.to_include and self.connection is not None:
            self.connection.interrupt("more partitions to fetch")

    def resume_session(self) -> None:
        """Continue the session over a new connection, with the next epoch: the leader has received the last request."""
        self.disconnect("interrupted")
        if self.session_epoch != FIRST_SESSION_EPOCH:
            self.update_session(self.session_id)
            self.include_uncommitted()

    def include_uncommitted(self) -> None:
        """Include partitions whose high watermark is below their log end offset.

        The lost response may have contained a new high watermark. The leader sends lost records again anyway.
        """
        for key, state in self.active.items():
            if state.partition.log.high_watermark < state.partition.log.log_end_offset:
                self.to_include[key] = None

    def handle_connection_error(self, error: Exception) -> None:
        """Close the connection and drop the session after a failure. The next fetch opens a new session."""
        self.disconnect(reason(error))
        self.forget_session()
        if self.is_stopped:
            return
        logger.info("cannot fetch leader=%d reason=%s", self.leader, reason(error))
        if self.backoff.failures == 0 and isinstance(error, ConnectionError):
            self.replica_manager.metadata.mark_suspect(self.leader)

    async def fetch_once(self) -> None:
        self.apply_quota()
        if not self.active:
            return
        connection = await self.connect()
        self.is_in_flight = True
        try:
            response = await connection.exchange(
                self.next_request(),
                FetchResponse,
                timeout_s=self.timeout_s + self.config.replica_fetch_wait_max_ms / 1000,
            )
        finally:
            self.is_in_flight = False
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode(response.error_code)
            if self.session_epoch == FIRST_SESSION_EPOCH:
                raise ConnectionError(f"the leader rejected a full fetch: {code.name}")
            logger.info("fetch session lost leader=%d error=%s", self.leader, code.name)
            self.forget_session()
            return
        self.backoff.reset()
        self.update_session(response.session_id)
        await self.process_response(connection, response)

    def apply_quota(self) -> None:
        """Delay the throttled partitions if the quota is exceeded. Otherwise limit their bytes of the next request."""
        self.throttled_bytes = {}
        quota = self.replica_manager.follower_quota
        if quota is None:
            return
        throttled = [
            state
            for state in self.active.values()
            if not state.is_in_sync and self.is_throttled(state.partition)
        ]
        wait_ms = quota.wait_ms()
        if wait_ms > 0:
            for state in throttled:
                self.delay(state, min(wait_ms / 1000, self.backoff_s))
        elif throttled:
            fair_share = int(quota.bytes_per_second * THROTTLED_SECONDS) // len(throttled)
            size = min(max(fair_share, THROTTLED_BYTES_MIN), self.config.replica_fetch_max_bytes)
            self.throttled_bytes = {state.key: size for state in throttled}

    def is_throttled(self, partition: Partition) -> bool:
        replicas = partition.log.config.follower_replication_throttled_replicas
        return is_throttled(replicas, partition.index, self.replica_manager.broker_id)

    async def connect(self) -> BrokerConnection:
        if self.connection is not None:
            if self.connection.is_open:
                return self.connection
            self.connection = None  # closed by the leader between two fetches
            self.forget_session()
        listener = self.config.inter_broker_listener
        endpoint = self.replica_manager.metadata.endpoint_of(self.leader, listener)
        if endpoint is None:
            raise ConnectionError(f"broker {self.leader} has no known address")
        self.connection = await BrokerConnection.open(
            self.network,
            endpoint.host,
            endpoint.port,
            client_id=self.client_id,
            timeout_s=self.timeout_s,
        )
        return self.connection

    def disconnect(self, why: str) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close(why)

    # ---- the session

    def forget_session(self) -> None:
        """Drop the session. The next request includes all active partitions and opens a new session."""
        self.session_id = NO_SESSION
        self.session_epoch = FIRST_SESSION_EPOCH

    def update_session(self, session_id: int) -> None:
        self.has_session_slot = session_id != NO_SESSION
        if session_id == NO_SESSION:
            self.forget_session()
        elif session_id != self.session_id:
            self.session_id = session_id
            self.session_epoch = 1
        else:
            self.session_epoch = self.session_epoch % SESSION_EPOCH_MAX + 1

    def next_request(self) -> FetchRequest:
        included: Iterable[PartitionKey] = self.to_include
        forgotten = self.to_forget
        if self.session_epoch == FIRST_SESSION_EPOCH:
            included, forgotten = self.active, {}
        max_bytes = self.config.replica_fetch_max_bytes
        topics: dict[UUID, list[FetchPartition]] = {}
        for key in included:
            state = self.active[key]
            log = state.partition.log
            state.fetch_offset = log.log_end_offset
            topics.setdefault(key[0], []).append(
                FetchPartition(
                    partition=key[1],
                    current_leader_epoch=state.leader_epoch,
                    fetch_offset=log.log_end_offset,
                    last_fetched_epoch=log.epochs.latest,
                    log_start_offset=log.log_start_offset,
                    partition_max_bytes=self.throttled_bytes.get(key, max_bytes),
                )
            )
        forgotten_topics: dict[UUID, list[int]] = {}
        for topic_id, index in forgotten:
            forgotten_topics.setdefault(topic_id, []).append(index)
        self.to_include = {}
        self.to_forget = {}
        # The first fetch does not wait at the leader: an interruption would lose the session id.
        is_opening = self.session_epoch == FIRST_SESSION_EPOCH and self.has_session_slot
        return FetchRequest(
            replica_state=FetchReplicaState(
                self.replica_manager.broker_id, self.registration.broker_epoch
            ),
            max_wait_ms=0 if is_opening else self.config.replica_fetch_wait_max_ms,
            min_bytes=self.config.replica_fetch_min_bytes,
            max_bytes=self.config.replica_fetch_response_max_bytes,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=tuple(
                FetchTopic(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics.items()
            ),
            forgotten_topics_data=tuple(
                ForgottenTopic(topic_id=topic_id, partitions=tuple(indexes))
                for topic_id, indexes in forgotten_topics.items()
            ),
        )

    # ---- responses

    async def process_response(self, connection: BrokerConnection, response: FetchResponse) -> None:
        appended = 0
        flushes: list[asyncio.Future[None]] = []
        for topic in response.responses:
            for data in topic.partitions:
                state = self.active.get((topic.topic_id, data.partition_index))
                if state is None or state.fetch_offset != state.partition.log.log_end_offset:
                    continue  # removed, or added again, since the request
                if data.error_code == ErrorCode.NONE:
                    appended += self.process_partition(state, data)
                    if data.records and needs_flush(state.partition):
                        flushes.append(self.replica_manager.flush(state.partition))
                else:
                    await self.handle_error(connection, state, ErrorCode(data.error_code))
                if appended > BYTES_PER_YIELD:
                    appended = 0
                    await asyncio.sleep(0)
        for flush in flushes:
            # Fails if the topic was deleted, or if the disk failed, which `flush` reports.
            with suppress(ApiError):
                await asyncio.shield(flush)

    def process_partition(self, state: PartitionFetchState, data: PartitionData) -> int:
        """Append the records or truncate the log. Return the number of bytes appended."""
        partition = state.partition
        try:
            if data.diverging_epoch != NO_DIVERGENCE:
                self.truncate(state, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                return 0
            return self.append(state, data)
        except OutOfSpace as error:
            logger.error("no disk space to append partition=%s error=%s", partition, error)
            self.delay(state)
        except StorageError as error:
            logger.error("cannot write partition=%s error=%s", partition, error)
            self.stop_partition(state)
            self.replica_manager.fail(partition, error)
        except ApiError as error:
            logger.error("cannot append partition=%s error=%s", partition, error)
            if error.code is ErrorCode.CORRUPT_MESSAGE:
                self.delay(state)
            else:
                self.stop_partition(state)
        except Exception:
            logger.exception("cannot append partition=%s", partition)
            self.stop_partition(state)
        return 0

    def append(self, state: PartitionFetchState, data: PartitionData) -> int:
        log = state.partition.log
        size = 0
        if data.records:
            size = log.append_as_follower(
                memoryview(data.records), self.replica_manager.clock.now_ms()
            ).size
            state.partition.traffic.replication_bytes_in += size
            quota = self.replica_manager.follower_quota
            if quota is not None and self.is_throttled(state.partition):
                quota.record(size)
        state.is_in_sync = log.log_end_offset >= data.high_watermark
        before = log.high_watermark
        log.high_watermark = data.high_watermark
        if log.high_watermark > before:
            state.partition.notify()  # consumers may fetch from followers
        state.backoff.reset()
        has_changed = size > 0
        if log.log_start_offset < data.log_start_offset <= log.high_watermark:
            has_changed |= log.advance_log_start(data.log_start_offset)
        if has_changed:
            self.to_include[state.key] = None
        return size

    def truncate(self, state: PartitionFetchState, leader_epoch: int, leader_end: int) -> None:
        """Truncate the log to its common history with the leader. The high watermark of the response is ignored."""
        partition = state.partition
        log = partition.log
        before = (log.log_end_offset, log.epochs.latest)
        offset = follower.truncation_offset(
            log.epochs, log.log_end_offset, leader_epoch=leader_epoch, leader_end=leader_end
        )
        if offset < log.high_watermark:
            logger.warning(
                "truncating below high watermark partition=%s to=%d high_watermark=%d",
                *(partition, offset, log.high_watermark),
            )
        log.truncate_to(offset, self.replica_manager.clock.now_ms())
        logger.info(
            "truncated diverging log partition=%s leader=%d leader_epoch=%d leader_end=%d to=%d",
            *(partition, self.leader, leader_epoch, leader_end, offset),
        )
        if (log.log_end_offset, log.epochs.latest) == before:
            self.delay(state)  # the same fetch would get the same response
        else:
            self.to_include[state.key] = None

    async def handle_error(
        self, connection: BrokerConnection, state: PartitionFetchState, code: ErrorCode
    ) -> None:
        is_expected = code in EXPECTED_ERRORS
        logger.log(
            logging.INFO if is_expected else logging.WARNING,
            "fetch failed leader=%d error=%s partition=%s",
            *(self.leader, code.name, state.partition),
        )
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            try:
                await self.reset_offset(connection, state)
            except ApiError as error:
                if error.code is ErrorCode.FENCED_LEADER_EPOCH:
                    self.stop_partition(state)
                else:
                    self.delay(state)
            except StorageError as error:
                self.stop_partition(state)
                self.replica_manager.fail(state.partition, error)
        elif code is ErrorCode.FENCED_LEADER_EPOCH:
            self.stop_partition(state)  # the leader has a newer epoch
        elif is_expected:
            self.delay(state, state.backoff.next_s(), is_urgent=True)
        else:
            self.delay(state)

    async def reset_offset(self, connection: BrokerConnection, state: PartitionFetchState) -> None:
        """After OFFSET_OUT_OF_RANGE, truncate the log to the leader's end, or restart it at the leader's start."""
        now_ms = self.replica_manager.clock.now_ms()
        leader_end = await self.list_offset(connection, state, LATEST_TIMESTAMP)
        if self.active.get(state.key) is not state:
            return
        log = state.partition.log
        if leader_end < log.log_end_offset:
            logger.warning(
                "truncating to leader end partition=%s log_end=%d leader_end=%d",
                *(state.partition, log.log_end_offset, leader_end),
            )
            log.truncate_to(leader_end, now_ms)
        else:
            leader_start = await self.list_offset(connection, state, EARLIEST_TIMESTAMP)
            if self.active.get(state.key) is not state:
                return
            log = state.partition.log  # a move may have replaced it
            if leader_start > log.log_end_offset:
                logger.warning(
                    "restarting log at leader start partition=%s log_end=%d leader_start=%d",
                    *(state.partition, log.log_end_offset, leader_start),
                )
                log.truncate_fully_and_start_at(leader_start, now_ms=now_ms)
        self.to_include[state.key] = None

    async def list_offset(
        self, connection: BrokerConnection, state: PartitionFetchState, timestamp: int
    ) -> int:
        query = ListOffsetsPartition(
            partition_index=state.partition.index,
            current_leader_epoch=state.leader_epoch,
            timestamp=timestamp,
        )
        response = await connection.exchange(
            ListOffsetsRequest(
                replica_id=self.replica_manager.broker_id,
                topics=(ListOffsetsTopic(name=state.partition.topic, partitions=(query,)),),
            ),
            ListOffsetsResponse,
            timeout_s=self.timeout_s,
        )
        for topic in response.topics:
            for result in topic.partitions:
                if result.error_code != ErrorCode.NONE:
                    raise ApiError(ErrorCode(result.error_code))
                return result.offset
        raise RemoteWireError("the ListOffsets response has no partitions")


def needs_flush(partition: Partition) -> bool:
    """Return whether flush.messages requires a flush before the next fetch, which confirms the records to the leader.

    Call this also after a failed append, since part of the records may be in the log.
    """
    log = partition.log
    return log.unflushed_messages >= log.flush_messages and not partition.is_offline
