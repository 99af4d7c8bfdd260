"""Fetch: batches from the logs, at once if there are enough, else when there are or when the wait is over.

A look at the logs costs no copying: it yields slices of files, which the network door sends from the page cache. A
fetch that has to wait leaves a watcher with each partition and looks again when one of them changes.

A fetch of a follower reads up to the end of the log, and tells by where it begins what the follower holds. A consumer
that says which rack it stands in may be sent to a follower there (replication/read_replica.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import NamedTuple
from uuid import UUID

from barnabas.broker.connection import Connection
from barnabas.broker.control_plane import may_act_for_the_cluster
from barnabas.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchEntry,
    FetchSession,
    Key,
)
from barnabas.broker.handlers.current_leader import endpoints_of, leader_of
from barnabas.broker.parts import BrokerParts
from barnabas.errors import ApiError, CorruptBatch, ErrorCode, StorageError
from barnabas.model import ZERO_ID, BrokerId
from barnabas.replication.partition import Partition
from barnabas.replication.quota import is_throttled
from barnabas.replication.read_replica import Candidate, rack_aware
from barnabas.wire.fast import FetchedPartition, FetchedTopic, RepeatedFetch, Told
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.current_leader import NodeEndpoint
from barnabas.wire.messages.fetch import NO_DIVERGENCE, EpochEndOffset, FetchRequest
from barnabas.world.ports import FileSlice, Part

ONE_BATCH_SINCE = 3  # the first batch comes whole even if it is larger than the limits
MAGIC_2_SINCE = 4  # older versions would need batches converted down
TOPIC_IDS_SINCE = 13
LEADER_TOLD_SINCE = 16
ZSTD_SINCE = 10
CHECK_SECONDS_MAX = 10.0
STORAGE_ERROR_SINCE = 6  # older clients would take it for an error that does not pass
ANY_REPLICA_SINCE = 11  # a consumer may read what a follower has below its high watermark

# Who is refused with these is told where to go instead.
LEADER_TOLD = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

# Answered without a log in sight, and Kafka's answers then have an empty list where others have none.
ABOUT_NO_LOG = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)


class FetchAnswer(NamedTuple):
    """What is sent back; the router encodes it without touching the records."""

    error_code: int
    session_id: int
    topics: tuple[FetchedTopic, ...]
    node_endpoints: tuple[NodeEndpoint, ...] = ()


class Look(NamedTuple):
    """What one partition has for this fetch."""

    entry: FetchEntry
    data: FetchedPartition
    partition: Partition | None
    is_held_back: bool = False
    """There is a batch, but what is left of the limits does not hold it."""
    is_older: bool = False
    """The batches come from a closed segment."""


def handle(
    parts: BrokerParts, request: FetchRequest, header: RequestHeader, connection: Connection
) -> FetchAnswer | Awaitable[FetchAnswer]:
    try:
        fetch = Fetch(parts, request, header.api_version, connection.listener_name)
    except ApiError as error:
        return FetchAnswer(error_code=error.code, session_id=NO_SESSION, topics=())
    if fetch.replica_id >= 0 and not may_act_for_the_cluster(connection):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return FetchAnswer(error_code=code, session_id=NO_SESSION, topics=())
    looks = fetch.look()
    fetch.has_arrived = True
    is_to_wait = request.max_wait_ms > 0 and not fetch.is_enough(looks) and fetch.has_partitions()
    if not is_to_wait and not fetch.is_held_for_check(looks):
        return fetch.answer(looks)
    return fetch.wait(max(request.max_wait_ms, 0) / 1000)


def handle_repeated(
    parts: BrokerParts, repeated: RepeatedFetch, frame: memoryview
) -> list[Part] | None:
    """The same for a request whose shape is known from earlier ones, if it can be answered at once with what it asks
    for. None, with nothing done, for all else: `handle` will see."""
    replicas, names = parts.replicas.partitions, parts.metadata.names
    most = min(repeated.max_bytes, parts.config.fetch_max_bytes)
    left = most
    told: list[Told] = []
    name, id_of_name = "", ZERO_ID
    try:
        for wanted, offset in zip(repeated.wanted, repeated.offsets(frame), strict=True):
            topic, topic_id, index, epoch, max_bytes, _ = wanted
            if topic_id is not id_of_name:
                id_of_name, name = topic_id, names.get(topic_id, "")
            partition = replicas.get((topic or name, index))
            if partition is None or (partition.topic_id != topic_id and not topic):
                return None
            partition.require_replica(epoch)
            log = partition.log
            bound = log.watermark
            if offset == bound:
                told.append(Told(bound, log.log_start_offset, (), 0))
                continue
            found = log.read(offset, min(max_bytes, left), bound, left == most)
            if found.first_incomplete or found.unchecked is not None:
                return None
            left = max(left - found.size, 0)
            told.append(Told(bound, log.log_start_offset, found.slices, found.size))
    except (ApiError, StorageError):
        return None
    if most - left < min(repeated.min_bytes, most):
        return None
    return repeated.encode_answer(frame, told)


class Fetch:
    """One fetch request being served."""

    def __init__(
        self, parts: BrokerParts, request: FetchRequest, version: int, listener: str
    ) -> None:
        self.parts = parts
        self.request = request
        self.version = version
        self.listener = listener
        self.loop = asyncio.get_running_loop()
        self.replica_id = BrokerId(
            request.replica_id if version < 15 else request.replica_state.replica_id
        )
        self.rack = ""
        """Of a consumer that may be sent elsewhere."""
        if self.replica_id < 0 and version >= ANY_REPLICA_SINCE:
            self.rack = request.rack_id if parts.config.replica_selector_class else ""
        self.has_arrived = False
        """What a follower holds is taken from its fetch once, on arrival."""
        self.bytes_max = min(request.max_bytes, parts.config.fetch_max_bytes)
        self.entries: list[FetchEntry] = []
        self.is_incremental = False
        self.session = self.find_session()
        self.session_epoch = self.session.epoch if self.session is not None else INITIAL_EPOCH
        """That of the session after this request. A later one means that another fetch continues it."""
        self.future: asyncio.Future[FetchAnswer] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.is_scheduled = False
        self.is_over = False
        """Its time is, and it waits for a look at the disk alone."""
        self.has_unchecked = False

    # ---- which partitions

    def find_session(self) -> FetchSession | None:
        """The session this request opens or continues; `entries` if it has none."""
        request, sessions = self.request, self.parts.sessions
        uses_topic_ids = self.version >= TOPIC_IDS_SINCE
        now = self.loop.time()
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                sessions.close(request.session_id)
            named = list(self.named_entries())
            session = None
            if request.session_epoch == INITIAL_EPOCH:
                session = sessions.open(
                    uses_topic_ids=uses_topic_ids, now=now, is_of_replica=self.replica_id >= 0
                )
                if session is not None and self.replica_id >= 0:
                    session.is_hasty = self.parts.config.replica_selector_class is not None
            if session is None:
                self.entries = [entry for _, entry in named]
            else:
                for key, entry in named:
                    session.put(key, entry)
            return session
        session = sessions.resume(
            request.session_id, request.session_epoch, uses_topic_ids=uses_topic_ids, now=now
        )
        self.is_incremental = True
        session.next_epoch()
        session.wake_knocking()
        for key, entry in self.named_entries(session):
            session.put(key, entry)
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if uses_topic_ids else topic.topic
            for index in topic.partitions:
                self.forget_follower(session.partitions.get((name, index)))
                session.remove((name, index))
        if not session.partitions:
            sessions.close(session.id)
            return None
        return session

    def named_entries(
        self, session: FetchSession | None = None
    ) -> Iterable[tuple[Key, FetchEntry]]:
        uses_topic_ids = self.version >= TOPIC_IDS_SINCE
        for topic, topic_id, partitions in self.request.topics:
            name: str | UUID = topic_id if uses_topic_ids else topic
            for wanted in partitions:
                key = (name, wanted.partition)
                entry = session.partitions.get(key) if session is not None else None
                if entry is None:
                    known = self.name_of(topic_id) if uses_topic_ids else topic
                    entry = FetchEntry(known, topic_id, wanted.partition)
                else:
                    entry.forget()
                if self.replica_id >= 0:
                    entry.watches_end = True
                    # It may have set the last answer aside: cut its log, or been told to follow anew.
                    entry.sent_high_watermark = entry.sent_log_start_offset = -1
                entry.current_leader_epoch = wanted.current_leader_epoch
                entry.fetch_offset = wanted.fetch_offset
                entry.last_fetched_epoch = wanted.last_fetched_epoch
                entry.log_start_offset = wanted.log_start_offset
                entry.partition_max_bytes = wanted.partition_max_bytes
                yield key, entry

    def forget_follower(self, entry: FetchEntry | None) -> None:
        """It no longer copies this partition, however long the session goes on about others."""
        if entry is not None and self.replica_id >= 0:
            partition = self.parts.replicas.partitions.get((entry.topic, entry.index))
            follower = partition and partition.followers.get(self.replica_id)
            if follower:
                follower.contact = None

    def has_partitions(self) -> bool:
        return bool(self.session.partitions if self.session is not None else self.entries)

    # ---- looking

    def look(self) -> list[Look]:
        """Look at every partition that may have something. In a session, those that have nothing fall asleep."""
        session = self.session
        if session is None:
            entries = self.entries
        elif self.is_incremental:
            entries = list(session.awake)
        else:
            # The first answer of a session names every partition: clients check that it does.
            entries = list(session.partitions.values())
        self.has_unchecked = False
        looks: list[Look] = []
        left = self.bytes_max
        is_first = True
        for entry in entries:
            found = self.look_at(entry, left, is_first and self.version >= ONE_BATCH_SINCE)
            looks.append(found)
            size = found.data.size
            if size:
                is_first = False
                left = max(left - size, 0)
            elif session is not None and self.is_incremental and not is_news(found):
                # What is news stays awake until it has been told.
                self.fall_asleep(session, found)
        return looks

    def fall_asleep(self, session: FetchSession, look: Look) -> None:
        """If nothing more can be had of this partition before it changes."""
        data, partition = look.data, look.partition
        if (
            partition is not None
            and not data.size
            and not look.is_held_back
            and data.diverging_epoch is NO_DIVERGENCE
            and data.preferred_read_replica < 0
        ):
            session.fall_asleep(look.entry, partition)
            if self.replica_id >= 0 and self.replica_id not in partition.isr:
                session.knocking.append(look.entry)

    def look_at(self, entry: FetchEntry, bytes_left: int, at_least_one: bool) -> Look:
        try:
            return self.read(entry, bytes_left, at_least_one)
        except ApiError as error:
            code = error.code
        except StorageError as error:
            partition = self.parts.replicas.partitions.get((entry.topic, entry.index))
            if partition is not None:
                self.parts.replicas.fail(partition, error)
            code = storage_code(error, partition)
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self.version < STORAGE_ERROR_SINCE:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        aborted = () if code in ABOUT_NO_LOG else None
        return Look(entry, FetchedPartition(entry.index, code, aborted_transactions=aborted), None)

    def read(self, entry: FetchEntry, bytes_left: int, at_least_one: bool) -> Look:
        partition = self.find(entry)
        from_follower = self.replica_id >= 0
        if from_follower or self.version < ANY_REPLICA_SINCE:
            partition.require_leader(entry.current_leader_epoch)
        else:
            partition.require_replica(entry.current_leader_epoch)
        log = partition.log
        nearer = self.nearer_replica(entry, partition) if self.rack else None
        if nearer is not None:
            high_watermark = log.watermark
            told = (entry.index, 0, high_watermark, high_watermark, log.log_start_offset)
            return Look(entry, FetchedPartition(*told, preferred_read_replica=nearer), partition)
        if from_follower and self.replica_id not in partition.followers:
            # With our epoch, it knows of an assignment we have not heard of; without one, who can tell.
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH
                if entry.current_leader_epoch >= 0
                else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        if from_follower and self.is_of_a_former_life(partition):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        diverging = self.divergence(entry, partition)
        slices: tuple[FileSlice, ...] = ()
        size = 0
        is_held_back = is_older = False
        if diverging is NO_DIVERGENCE:
            bound = log.log_end_offset if from_follower else log.watermark
            limit = min(entry.partition_max_bytes, bytes_left)
            if from_follower and self.must_wait(partition):
                limit, at_least_one = 0, False
            found = log.read(
                entry.fetch_offset, limit, upper_bound=bound, at_least_one=at_least_one
            )
            slices, size = found.slices, found.size
            is_held_back = limit <= 0 and entry.fetch_offset < bound
            # The rest of a closed segment is all that one read gives: waiting would not add to it.
            is_older = size > 0 and slices[0].file is not log.active.log
            if found.first_incomplete and self.version >= ONE_BATCH_SINCE:
                # Part of a batch is of no use to a client that is promised a whole one in some later answer.
                slices, size, is_held_back = (), 0, True
            if found.unchecked is not None:
                # Not before it is known to be right; whoever waits for the partition is told.
                self.has_unchecked = True
                integrity = self.parts.replicas.integrity
                integrity.look_through(partition, found.unchecked, found.slices[0].position)
                slices, size, is_held_back, is_older = (), 0, True, False
            if size and self.version < MAGIC_2_SINCE:
                raise ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
            if size and self.version < ZSTD_SINCE and log.config.compression_type == "zstd":
                raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if from_follower and not self.has_arrived:
                partition.fetched_by(
                    self.replica_id,
                    entry.fetch_offset,
                    entry.log_start_offset,
                    leader_end=log.log_end_offset,
                    contact=self.session,
                    broker_epoch=self.request.replica_state.replica_epoch,
                )
        high_watermark = log.watermark
        data = FetchedPartition(
            entry.index,
            0,
            high_watermark,
            high_watermark,
            log.log_start_offset,
            slices,
            size,
            () if self.request.isolation_level == 1 else None,
            diverging_epoch=diverging,
        )
        return Look(entry, data, partition, is_held_back, is_older)

    def nearer_replica(self, entry: FetchEntry, partition: Partition) -> BrokerId | None:
        """Who in the consumer's rack has what it asks for; None if it had better stay with us."""
        if partition.leader != partition.broker_id:
            return None
        metadata, offset = self.parts.metadata, entry.fetch_offset
        followers = [
            Candidate(broker, known.rack, follower.log_end_offset, follower.last_caught_up_ms)
            for broker, follower in partition.followers.items()
            if broker in partition.isr
            and follower.log_start_offset <= offset <= follower.log_end_offset
            and (known := metadata.brokers.get(broker)) is not None
            and metadata.endpoint(known, self.listener) is not None
        ]
        return rack_aware(self.rack, self.parts.config.broker_rack, followers)

    def is_of_a_former_life(self, partition: Partition) -> bool:
        """What a process that was replaced holds says nothing about what the broker of that id holds now."""
        epoch = self.request.replica_state.replica_epoch
        return 0 <= epoch < partition.followers[self.replica_id].broker_epoch

    def must_wait(self, partition: Partition) -> bool:
        """Whether this follower gets nothing for now, lest replication take more than it may. One in sync is spared."""
        quota = self.parts.replicas.leader_quota
        return (
            quota is not None
            and self.replica_id not in partition.isr
            and is_throttled_here(partition)
            and quota.is_exceeded()
        )

    def find(self, entry: FetchEntry) -> Partition:
        if self.version >= TOPIC_IDS_SINCE:
            # The name may have become known, or the topic may have been deleted, since the session was opened.
            entry.topic = self.name_of(entry.topic_id)
            if not entry.topic:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self.parts.replicas.find(entry.topic, entry.index)
        if entry.topic_id != ZERO_ID and partition.topic_id != entry.topic_id:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition

    def name_of(self, topic_id: UUID) -> str:
        """LeaderAndIsr comes before UpdateMetadata: a follower may ask for a topic that only its replicas know yet."""
        name = self.parts.metadata.names.get(topic_id)
        if name is None and self.replica_id >= 0:
            name = self.parts.replicas.names.get(topic_id)
        return name or ""

    def divergence(self, entry: FetchEntry, partition: Partition) -> EpochEndOffset:
        """Where the reader's history leaves ours, if it says which epoch it read last."""
        if entry.last_fetched_epoch < 0:
            return NO_DIVERGENCE
        epoch, end = partition.end_offset_for(entry.last_fetched_epoch)
        if epoch < 0 or end < 0 or entry.fetch_offset < partition.log.log_start_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < entry.last_fetched_epoch or end < entry.fetch_offset:
            return EpochEndOffset(epoch=epoch, end_offset=end)
        return NO_DIVERGENCE

    def is_enough(self, looks: list[Look]) -> bool:
        size = 0
        for look in looks:
            data = look.data
            if data.error_code or look.is_older or data.diverging_epoch is not NO_DIVERGENCE:
                return True
            if data.preferred_read_replica >= 0 or self.is_to_be_hastened(look):
                return True
            size += data.size
        return size >= min(self.request.min_bytes, self.bytes_max)

    def is_held_for_check(self, looks: list[Look]) -> bool:
        """There is something, nothing else, and it is just being looked through. An empty answer would be taken for the
        end of the log, even by who is not willing to wait for more."""
        return self.has_unchecked and not any(
            look.data.size or look.data.error_code for look in looks
        )

    def is_to_be_hastened(self, look: Look) -> bool:
        """A follower that may have consumers of its own hears of the high watermark at once."""
        return (
            self.session is not None
            and self.session.is_hasty
            and look.data.high_watermark > look.entry.sent_high_watermark
        )

    # ---- waiting

    def wait(self, seconds: float) -> asyncio.Future[FetchAnswer]:
        future: asyncio.Future[FetchAnswer] = self.loop.create_future()
        future.add_done_callback(self.stop_waiting)
        self.future = future
        self.timer = self.loop.call_later(seconds, self.look_again, True)
        self.watch()
        return future

    def watch(self) -> None:
        """Be told of changes: by the session's sleeping partitions, or by all of ours."""
        if self.session is not None:
            self.session.waiting_fetch = self.woken
            # What is awake and gave less than was asked for must be watched as well.
            watched: Iterable[FetchEntry] = self.session.awake
        else:
            watched = self.entries
        for entry in watched:
            partition = self.parts.replicas.partitions.get((entry.topic, entry.index))
            if partition is not None:
                entry.forget()  # an earlier fetch of the session may still be told instead
                entry.sleep(partition, lambda _: self.woken())

    def woken(self) -> None:
        if not self.is_scheduled:
            self.is_scheduled = True
            self.loop.call_soon(self.look_again, False)

    def look_again(self, is_last: bool) -> None:
        self.is_scheduled = False
        future = self.future
        if future is None or future.done():
            return
        try:
            self.answer_or_watch(future, is_last)
        except Exception as error:  # noqa: BLE001 - the connection logs it and closes
            # Raised in a callback it would reach nobody, and the request would never be answered.
            future.set_exception(error)

    def answer_or_watch(self, future: asyncio.Future[FetchAnswer], is_last: bool) -> None:
        session = self.session
        if session is not None and session.epoch != self.session_epoch:
            # A later fetch continues the session, over another connection: the news is for that one.
            code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            future.set_result(FetchAnswer(error_code=code, session_id=session.id, topics=()))
            return
        looks = self.look()
        if self.is_held_for_check(looks) and not (is_last and self.is_over):
            if is_last:
                self.is_over = True
                self.timer = self.loop.call_later(CHECK_SECONDS_MAX, self.look_again, True)
            self.watch()
        elif is_last or self.is_over or self.is_enough(looks):
            future.set_result(self.answer(looks))
        else:
            self.watch()

    def stop_waiting(self, _: asyncio.Future[FetchAnswer]) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.session is not None and self.session.waiting_fetch == self.woken:
            # Else the session goes on elsewhere, and whoever waits there is the one to be told.
            self.session.waiting_fetch = None
            for entry in self.session.awake:
                entry.forget()
        for entry in self.entries:
            entry.forget()

    # ---- answering

    def answer(self, looks: list[Look]) -> FetchAnswer:
        session = self.session
        if session is not None:
            session.served([entry for entry, data, *_ in looks if data.size])
            if self.is_incremental:
                looks = [look for look in looks if is_news(look)]
            for look in looks:
                look.entry.sent_high_watermark = look.data.high_watermark
                look.entry.sent_log_start_offset = look.data.log_start_offset
                self.fall_asleep(session, look)
        quota = self.parts.replicas.leader_quota
        if quota is not None and self.replica_id >= 0:
            for look in looks:
                if look.data.size and look.partition and is_throttled_here(look.partition):
                    quota.record(look.data.size)
        topics: dict[tuple[str, UUID], list[FetchedPartition]] = {}
        leaders = []
        for entry, data, *_ in looks:
            if data.error_code in LEADER_TOLD and self.version >= LEADER_TOLD_SINCE:
                leader = leader_of(self.parts, entry.topic, entry.index)
                leaders.append(leader)
                data = data._replace(current_leader=leader)
            topics.setdefault((entry.topic, entry.topic_id), []).append(data)
        return FetchAnswer(
            error_code=0,
            session_id=session.id if session is not None else NO_SESSION,
            topics=tuple(FetchedTopic(*key, found) for key, found in topics.items()),
            node_endpoints=endpoints_of(self.parts, leaders, self.listener) if leaders else (),
        )


def storage_code(error: StorageError, partition: Partition | None) -> ErrorCode:
    """A damaged batch that another replica has will be there again: clients retry one code and not the other."""
    if isinstance(error, CorruptBatch) and (partition is None or len(partition.replicas) <= 1):
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.KAFKA_STORAGE_ERROR


def is_throttled_here(partition: Partition) -> bool:
    listed = partition.log.config.leader_replication_throttled_replicas
    return is_throttled(listed, partition.index, partition.broker_id)


def is_news(look: Look) -> bool:
    entry, data, *_ = look
    return bool(
        data.size
        or data.error_code
        or data.diverging_epoch is not NO_DIVERGENCE
        or data.preferred_read_replica >= 0
        or data.high_watermark != entry.sent_high_watermark
        or data.log_start_offset != entry.sent_log_start_offset
    )
