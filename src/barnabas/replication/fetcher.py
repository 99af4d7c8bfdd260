"""A follower's task: it copies partitions from one broker that leads them.

    name what moved ─► Fetch (waits at the leader) ─► append, partition by partition ─► name what moved ─► …

What an answer brought is appended before the next fetch is sent, so the offset a follower asks for is always one it
holds: leaders count on that. Where a topic's flush.messages asks for it, it is on the disk by then.

All partitions of one task share an incremental session. Only those whose offset moved are named in it, so an idle task
costs one short request per replica.fetch.wait.max.ms, however many partitions it follows.

A fetch that waits at the leader cannot be told of a partition that was added since. After a moment it is let go: the
session goes on over another connection, so that a new leader need not wait half a second for its followers.

A partition that fails rests for replica.fetch.backoff.ms while the others go on. One whose leader has moved on without
us, or whose disk failed, is given up until the next LeaderAndIsr. A throttled one (quota.py) rests while its quota is
used up, unless it is in sync.
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
from barnabas.errors import (
    ApiError,
    ErrorCode,
    OutOfSpace,
    RemoteWireError,
    StorageError,
    reason,
)
from barnabas.metadata.cache import MetadataCache
from barnabas.model import BrokerId, TopicPartition
from barnabas.replication import following
from barnabas.replication.alter_partition import RegisteredBroker
from barnabas.replication.fetcher_settings import FetcherSettings
from barnabas.replication.following import Reaction
from barnabas.replication.partition import Partition
from barnabas.replication.quota import ReplicationQuota, is_throttled
from barnabas.retry import Backoff
from barnabas.wire.messages.fetch import (
    NO_DIVERGENCE,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
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

BYTES_PER_TURN = 1 << 20
INTERRUPTED_AFTER_SECONDS = 0.02
FIRST_RETRY_SECONDS = 0.02
"""Short: usually the other side is about to receive the metadata that this broker has already."""
RETRY_FACTOR = 4.0
NO_SESSION = 0
FIRST_EPOCH = 0
EPOCH_MAX = 0x7FFF_FFFF

Key = tuple[UUID, int]


class Followed:
    """One partition in the care of a fetcher. A new one for every LeaderAndIsr: what an old one asked for is void."""

    __slots__ = (
        "asked_offset",
        "backoff",
        "is_in_sync",
        "key",
        "leader_epoch",
        "partition",
        "timer",
    )

    def __init__(self, partition: Partition, backoff: Backoff) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.key: Key = (partition.topic_id, partition.index)
        self.asked_offset = -1
        self.is_in_sync = False
        """At the last answer we held all below the leader's high watermark."""
        self.backoff = backoff
        self.timer: asyncio.TimerHandle | None = None
        """Set while it rests."""


class Replicas(Protocol):
    """The part of the replica manager that a fetcher uses."""

    broker_id: BrokerId
    metadata: MetadataCache
    clock: Clock
    follower_quota: ReplicationQuota | None

    def fail(self, partition: Partition, error: StorageError) -> None: ...

    def flush(self, partition: Partition) -> asyncio.Future[None]: ...


class Fetcher:
    """Copies from one broker. Passes a partition that only a LeaderAndIsr can bring back to `on_given_up`."""

    def __init__(
        self,
        source: BrokerId,
        number: int,
        *,
        replicas: Replicas,
        network: Network,
        control: RegisteredBroker,
        settings: FetcherSettings,
        on_given_up: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        self.replicas = replicas
        self.network = network
        self.control = control
        self.settings = settings
        self.on_given_up = on_given_up
        self.source = source
        self.client_id = f"broker-{self.replicas.broker_id}-fetcher-{number}"
        self.followed: dict[TopicPartition, Followed] = {}
        self.active: dict[Key, Followed] = {}
        """Those that do not rest."""
        self.to_name: dict[Key, None] = {}
        self.to_forget: dict[Key, None] = {}
        self.session_id = NO_SESSION
        self.session_epoch = FIRST_EPOCH
        self.connection: BrokerConnection | None = None
        self.has_work = asyncio.Event()
        self.is_waiting = False
        """For an answer."""
        self.interruption: asyncio.TimerHandle | None = None
        self.has_room_for_session = True
        self.is_stopped = False
        self.random = Random(f"{self.client_id}-{source}")
        self.backoff = self.new_backoff()

    def add(self, partition: Partition) -> None:
        followed = Followed(partition, self.new_backoff())
        self.followed[TopicPartition(partition.topic, partition.index)] = followed
        self.activate(followed, is_urgent=True)

    def new_backoff(self) -> Backoff:
        return Backoff(
            FIRST_RETRY_SECONDS, self.settings.backoff_s, factor=RETRY_FACTOR, random=self.random
        )

    def remove(self, tp: TopicPartition) -> None:
        followed = self.followed.pop(tp, None)
        if followed is not None:
            self.deactivate(followed)
            if followed.timer is not None:
                followed.timer.cancel()

    def activate(self, followed: Followed, is_urgent: bool = False) -> None:
        followed.timer = None
        self.active[followed.key] = followed
        self.to_name[followed.key] = None
        self.to_forget.pop(followed.key, None)
        self.has_work.set()
        if is_urgent and self.is_waiting and self.interruption is None:
            loop = asyncio.get_running_loop()
            self.interruption = loop.call_later(INTERRUPTED_AFTER_SECONDS, self.interrupt)

    def deactivate(self, followed: Followed) -> None:
        if self.active.pop(followed.key, None) is not None:
            self.to_name.pop(followed.key, None)
            if followed.asked_offset >= 0:
                self.to_forget[followed.key] = None

    def rest(
        self, followed: Followed, seconds: float | None = None, *, is_urgent: bool = False
    ) -> None:
        """Leave it out for a while."""
        if self.active.get(followed.key) is followed:
            self.deactivate(followed)
            seconds = self.settings.backoff_s if seconds is None else seconds
            loop = asyncio.get_running_loop()
            followed.timer = loop.call_later(seconds, self.activate, followed, is_urgent)

    def give_up(self, followed: Followed) -> None:
        """Until a LeaderAndIsr brings it back."""
        tp = TopicPartition(followed.partition.topic, followed.partition.index)
        if self.followed.get(tp) is followed:
            logger.info("gave up partition=%s source=%d", tp, self.source)
            self.on_given_up((tp,))

    def stop(self) -> None:
        """Ends at its next step, at the latest when the connection it waits on is closed."""
        self.is_stopped = True
        if self.interruption is not None:
            self.interruption.cancel()
        self.has_work.set()
        self.disconnect("nothing to fetch any longer")

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
                    self.give_up_connection(error)
                    await self.backoff.wait()
        finally:
            self.disconnect("stopped")

    def interrupt(self) -> None:
        """End a fetch that waits at the leader while there are more partitions to name."""
        self.interruption = None
        if self.is_waiting and self.to_name and self.connection is not None:
            self.connection.interrupt("there is more to fetch")

    def resume_session(self) -> None:
        """Continue the session over a new connection: the leader has received the interrupted request."""
        self.disconnect("interrupted")
        if self.session_epoch != FIRST_EPOCH:
            self.continue_session(self.session_id)
            self.ask_again()

    def ask_again(self) -> None:
        """The answer that was let go may have been on its way, and said how far the high watermark has come. Records
        come again by themselves."""
        for key, followed in self.active.items():
            if followed.partition.log.high_watermark < followed.partition.log.log_end_offset:
                self.to_name[key] = None

    def give_up_connection(self, error: Exception) -> None:
        """Close the connection after a failure. The next one opens a new session."""
        self.disconnect(reason(error))
        self.forget_session()
        if self.is_stopped:
            return
        logger.info("cannot fetch source=%d reason=%s", self.source, reason(error))
        if self.backoff.failures == 0 and isinstance(error, ConnectionError):
            self.replicas.metadata.doubt(self.source)

    async def fetch_once(self) -> None:
        self.leave_out_throttled()
        if not self.active:
            return
        connection = await self.connect()
        self.is_waiting = True
        try:
            response = await connection.exchange(
                self.next_request(),
                FetchResponse,
                timeout_s=self.settings.timeout_s + self.settings.wait_max_ms / 1000,
            )
        finally:
            self.is_waiting = False
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode(response.error_code)
            if self.session_epoch == FIRST_EPOCH:
                raise ConnectionError(f"the leader refuses every fetch: {code.name}")
            logger.info("session lost source=%d error=%s", self.source, code.name)
            self.forget_session()
            return
        self.backoff.reset()
        self.continue_session(response.session_id)
        await self.take(connection, response)

    def leave_out_throttled(self) -> None:
        quota = self.replicas.follower_quota
        if quota is None:
            return
        wait_ms = quota.wait_ms()
        if wait_ms > 0:
            for followed in list(self.active.values()):
                if not followed.is_in_sync and self.is_throttled(followed.partition):
                    self.rest(followed, min(wait_ms / 1000, self.settings.backoff_s))

    def is_throttled(self, partition: Partition) -> bool:
        listed = partition.log.config.follower_replication_throttled_replicas
        return is_throttled(listed, partition.index, self.replicas.broker_id)

    async def connect(self) -> BrokerConnection:
        if self.connection is not None:
            if self.connection.is_open:
                return self.connection
            self.connection = None  # closed by the leader between two fetches
            self.forget_session()
        endpoint = self.replicas.metadata.endpoint_of(self.source, self.settings.listener)
        if endpoint is None:
            raise ConnectionError(f"broker {self.source} has no known address")
        self.connection = await BrokerConnection.open(
            self.network,
            endpoint.host,
            endpoint.port,
            client_id=self.client_id,
            timeout_s=self.settings.timeout_s,
        )
        return self.connection

    def disconnect(self, why: str) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close(why)

    # ---- the session

    def forget_session(self) -> None:
        """The next request names everything, and opens another."""
        self.session_id = NO_SESSION
        self.session_epoch = FIRST_EPOCH

    def continue_session(self, session_id: int) -> None:
        self.has_room_for_session = session_id != NO_SESSION
        if session_id == NO_SESSION:
            self.forget_session()
        elif session_id != self.session_id:
            self.session_id = session_id
            self.session_epoch = 1
        else:
            self.session_epoch = 1 if self.session_epoch == EPOCH_MAX else self.session_epoch + 1

    def next_request(self) -> FetchRequest:
        named: Iterable[Key] = self.to_name
        forgotten = self.to_forget
        if self.session_epoch == FIRST_EPOCH:
            named, forgotten = self.active, {}
        topics: dict[UUID, list[FetchPartition]] = {}
        for key in named:
            followed = self.active[key]
            log = followed.partition.log
            followed.asked_offset = log.log_end_offset
            topics.setdefault(key[0], []).append(
                FetchPartition(
                    partition=key[1],
                    current_leader_epoch=followed.leader_epoch,
                    fetch_offset=log.log_end_offset,
                    last_fetched_epoch=log.epochs.latest,
                    log_start_offset=log.log_start_offset,
                    partition_max_bytes=self.settings.partition_bytes,
                )
            )
        gone: dict[UUID, list[int]] = {}
        for topic_id, index in forgotten:
            gone.setdefault(topic_id, []).append(index)
        self.to_name = {}
        self.to_forget = {}
        # What opens a session does not wait: it could not be continued if it had to be interrupted.
        is_opening = self.session_epoch == FIRST_EPOCH and self.has_room_for_session
        return FetchRequest(
            replica_state=ReplicaState(self.replicas.broker_id, self.control.broker_epoch),
            max_wait_ms=0 if is_opening else self.settings.wait_max_ms,
            min_bytes=self.settings.min_bytes,
            max_bytes=self.settings.response_bytes,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=tuple(
                FetchTopic(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics.items()
            ),
            forgotten_topics_data=tuple(
                ForgottenTopic(topic_id=topic_id, partitions=tuple(indexes))
                for topic_id, indexes in gone.items()
            ),
        )

    # ---- what came

    async def take(self, connection: BrokerConnection, response: FetchResponse) -> None:
        taken = 0
        flushes: list[asyncio.Future[None]] = []
        for topic in response.responses:
            for data in topic.partitions:
                followed = self.active.get((topic.topic_id, data.partition_index))
                if (
                    followed is None
                    or followed.asked_offset != followed.partition.log.log_end_offset
                ):
                    continue  # it was taken from us meanwhile, or given back anew
                if data.error_code == ErrorCode.NONE:
                    taken += self.take_data(followed, data)
                    if data.records and must_be_flushed(followed.partition):
                        flushes.append(self.replicas.flush(followed.partition))
                else:
                    await self.react(connection, followed, ErrorCode(data.error_code))
                if taken > BYTES_PER_TURN:
                    taken = 0
                    await asyncio.sleep(0)
        for flush in flushes:
            with suppress(ApiError):  # the disk failed, which is seen to, or the topic is gone
                await asyncio.shield(flush)

    def take_data(self, followed: Followed, data: PartitionData) -> int:
        """The number of bytes appended."""
        partition = followed.partition
        try:
            if data.diverging_epoch != NO_DIVERGENCE:
                self.cut(followed, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                return 0
            return self.append(followed, data)
        except OutOfSpace as error:
            logger.error("no room to copy partition=%s error=%s", partition, error)
            self.rest(followed)
        except StorageError as error:
            logger.error("cannot write partition=%s error=%s", partition, error)
            self.give_up(followed)
            self.replicas.fail(partition, error)
        except ApiError as error:
            logger.error("cannot append partition=%s error=%s", partition, error)
            if error.code is ErrorCode.CORRUPT_MESSAGE:
                self.rest(followed)
            else:
                self.give_up(followed)
        except Exception:
            logger.exception("cannot append partition=%s", partition)
            self.give_up(followed)
        return 0

    def append(self, followed: Followed, data: PartitionData) -> int:
        log = followed.partition.log
        size = 0
        if data.records:
            size = log.append_as_follower(
                memoryview(data.records), self.replicas.clock.now_ms()
            ).size
            quota = self.replicas.follower_quota
            if quota is not None and self.is_throttled(followed.partition):
                quota.record(size)
        followed.is_in_sync = log.log_end_offset >= data.high_watermark
        before = log.high_watermark
        log.high_watermark = data.high_watermark
        if log.high_watermark > before:
            followed.partition.notify()  # consumers may wait here, too
        followed.backoff.reset()
        has_moved = size > 0
        if log.log_start_offset < data.log_start_offset <= log.high_watermark:
            has_moved |= log.advance_log_start(data.log_start_offset)
        if has_moved:
            self.to_name[followed.key] = None
        return size

    def cut(self, followed: Followed, leader_epoch: int, leader_end: int) -> None:
        """What that answer says of the high watermark is not for the log as it is now."""
        partition = followed.partition
        log = partition.log
        before = (log.log_end_offset, log.epochs.latest)
        offset = following.truncation_offset(
            log.epochs, log.log_end_offset, leader_epoch=leader_epoch, leader_end=leader_end
        )
        if offset < log.high_watermark:
            logger.warning(
                "truncating below high watermark partition=%s to=%d high_watermark=%d",
                partition,
                offset,
                log.high_watermark,
            )
        log.truncate_to(offset, self.replicas.clock.now_ms())
        logger.info(
            "diverged partition=%s leader=%d leader_epoch=%d leader_end=%d to=%d",
            partition,
            self.source,
            leader_epoch,
            leader_end,
            offset,
        )
        if (log.log_end_offset, log.epochs.latest) == before:
            self.rest(followed)  # to ask the same again at once would get the same answer
        else:
            self.to_name[followed.key] = None

    async def react(
        self, connection: BrokerConnection, followed: Followed, code: ErrorCode
    ) -> None:
        level = logging.INFO if code in following.EXPECTED else logging.WARNING
        logger.log(
            level, "leader=%d says %s partition=%s", self.source, code.name, followed.partition
        )
        match following.reaction(code):
            case Reaction.BACK_OFF if code in following.EXPECTED:
                self.rest(followed, followed.backoff.next_s(), is_urgent=True)
            case Reaction.BACK_OFF:
                self.rest(followed)
            case Reaction.GIVE_UP:
                self.give_up(followed)
            case Reaction.FIND_PLACE:
                try:
                    await self.find_place(connection, followed)
                except ApiError as error:
                    if following.reaction(error.code) is Reaction.GIVE_UP:
                        self.give_up(followed)
                    else:
                        self.rest(followed)
                except StorageError as error:
                    self.give_up(followed)
                    self.replicas.fail(followed.partition, error)

    async def find_place(self, connection: BrokerConnection, followed: Followed) -> None:
        """Our end is not within the leader's log."""
        log = followed.partition.log
        now_ms = self.replicas.clock.now_ms()
        leader_end = await self.list_offset(connection, followed, LATEST_TIMESTAMP)
        if self.active.get(followed.key) is not followed:
            return
        if leader_end < log.log_end_offset:
            logger.warning(
                "leader ends earlier partition=%s end=%d leader_end=%d",
                followed.partition,
                log.log_end_offset,
                leader_end,
            )
            log.truncate_to(leader_end, now_ms)
        else:
            leader_start = await self.list_offset(connection, followed, EARLIEST_TIMESTAMP)
            if self.active.get(followed.key) is not followed:
                return
            if leader_start > log.log_end_offset:
                logger.warning(
                    "leader begins later, beginning anew partition=%s end=%d leader_start=%d",
                    followed.partition,
                    log.log_end_offset,
                    leader_start,
                )
                log.truncate_fully_and_start_at(leader_start, now_ms=now_ms)
        self.to_name[followed.key] = None

    async def list_offset(
        self, connection: BrokerConnection, followed: Followed, timestamp: int
    ) -> int:
        wanted = ListOffsetsPartition(
            partition_index=followed.partition.index,
            current_leader_epoch=followed.leader_epoch,
            timestamp=timestamp,
        )
        response = await connection.exchange(
            ListOffsetsRequest(
                replica_id=self.replicas.broker_id,
                topics=(ListOffsetsTopic(name=followed.partition.topic, partitions=(wanted,)),),
            ),
            ListOffsetsResponse,
            timeout_s=self.settings.timeout_s,
        )
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code != ErrorCode.NONE:
                    raise ApiError(ErrorCode(answer.error_code))
                return answer.offset
        raise RemoteWireError("ListOffsets was answered with nothing")


def must_be_flushed(partition: Partition) -> bool:
    """Our next fetch says that we hold what came, and the leader acknowledges it: that is to outlive the power. Some of
    it may be here even where the rest could not be written."""
    log = partition.log
    return log.unflushed_messages >= log.flush_messages and not partition.is_offline
