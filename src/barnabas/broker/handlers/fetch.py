"""Fetch: returns batches from the logs, when there are `min_bytes` of them or after `max_wait_ms`.

Reading copies nothing: it returns slices of files, which are sent from the page cache. A fetch that has to wait sets a
watcher on each partition and reads again after a change.

A fetch of many partitions reads them in several turns of the event loop. It sets its watchers before it reads, so that
it does not miss a change in between.

A follower reads up to the log end offset, and its fetch offset shows which records it has. A consumer that sends its
rack may be redirected to a follower in that rack.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import NamedTuple
from uuid import UUID

from barnabas.broker.bounded_work import Work, run_in_turns, run_to_end
from barnabas.broker.client_quotas import FetchCharge
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.fetch_reader import (
    ONE_BATCH_SINCE,
    TOPIC_IDS_SINCE,
    PartitionRead,
    PartitionReader,
    is_throttled_here,
)
from barnabas.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchEntry,
    FetchSession,
    PartitionKey,
)
from barnabas.broker.handlers.current_leader import find_endpoints, find_leader
from barnabas.broker.request_metrics import FOLLOWER_FETCH
from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.fast import FetchedPartition, FetchedTopic
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.current_leader import NodeEndpoint
from barnabas.wire.messages.fetch import NO_DIVERGENCE, FetchRequest

CURRENT_LEADER_SINCE = 16
FREE_FETCH = FetchCharge(0, is_withheld=False)
CHECK_SECONDS_MAX = 10.0
"""Maximum time that a fetch waits for a checksum verification after `max_wait_ms`."""
PARTITIONS_PER_TURN = 64
FEW = 8
"""Up to this number of partitions, a waiting fetch reads all of them again after a change of one."""
READ_AT_ONCE_MAX = 1000
"""A waiting fetch of more partitions reads them again in several turns."""

# With these errors the response has the current leader.
WITH_CURRENT_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class FetchResult(NamedTuple):
    """The content of a response. The router encodes it without reading the records."""

    error_code: int
    session_id: int
    topics: tuple[FetchedTopic, ...]
    node_endpoints: tuple[NodeEndpoint, ...] = ()
    throttle_time_ms: int = 0


def handle(
    context: BrokerContext, request: FetchRequest, header: RequestHeader, connection: Connection
) -> Work[FetchResult | Awaitable[FetchResult]]:
    fetch = Fetch(context, request, header, connection)
    if fetch.replica_id >= 0:
        connection.api = FOLLOWER_FETCH
        if not context.security.access.is_broker(connection):
            return reject(fetch)
    try:
        yield from fetch.find_session()
    except ApiError as error:
        context.metrics.count_error(connection.api, error.code)
        return FetchResult(error_code=error.code, session_id=NO_SESSION, topics=())
    fetch.reads_in_turns = len(fetch.entries_to_read()) > PARTITIONS_PER_TURN
    if fetch.reads_in_turns:
        fetch.watch_all()
    try:
        reads = yield from fetch.read_partitions()
        fetch.reader.has_recorded_offsets = True
        if fetch.must_wait(reads):
            return fetch.wait(reads)
    finally:
        if fetch.reads_in_turns and fetch.future is None:
            fetch.stop_watching()
    return (yield from fetch.build_result(reads))


def reject(fetch: Fetch) -> FetchResult:
    """Return TOPIC_AUTHORIZATION_FAILED for every partition: the sender is not allowed to act as a follower.

    It gets no session: sessions of followers replace those of consumers.
    """
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    fetch.context.metrics.count_error(fetch.connection.api, code)
    topics = (
        FetchedTopic(
            topic.topic,
            topic.topic_id,
            [
                FetchedPartition(each.partition, code, aborted_transactions=())
                for each in topic.partitions
            ],
        )
        for topic in fetch.request.topics
    )
    return FetchResult(error_code=0, session_id=NO_SESSION, topics=tuple(topics))


class Fetch:
    """One Fetch request in progress."""

    def __init__(
        self,
        context: BrokerContext,
        request: FetchRequest,
        header: RequestHeader,
        connection: Connection,
    ) -> None:
        self.context = context
        self.request = request
        self.client_id = header.client_id
        self.connection = connection
        self.version = header.api_version
        self.listener = connection.listener_name
        self.loop = asyncio.get_running_loop()
        self.reader = PartitionReader(context, request, self.version, connection)
        self.replica_id = self.reader.replica_id
        self.bytes_max = self.find_bytes_max()
        self.entries: list[FetchEntry] = []
        self.is_incremental = False
        self.session: FetchSession | None = None
        self.session_epoch = INITIAL_EPOCH
        """Epoch of the session after this request. If the session has another one, a later request has continued it."""
        self.future: asyncio.Future[FetchResult] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.is_scheduled = False
        self.has_timed_out = False
        """`max_wait_ms` is over: the fetch waits only for a checksum verification."""
        self.reads_in_turns = False
        """Partitions are read in several turns of the event loop."""
        self.has_changed_early = False
        """Whether a partition changed after it was read and before the wait began."""
        self.finishing: asyncio.Task[None] | None = None
        self.sizes: dict[FetchEntry, int] = {}
        """Bytes found in each partition at its last read. Not used for an incremental session."""
        self.changed: dict[FetchEntry, None] = {}
        """Entries whose partition changed since the last read."""

    def find_bytes_max(self) -> int:
        bytes_max = min(self.request.max_bytes, self.context.config.fetch_max_bytes)
        quotas = self.context.client_quotas
        if self.replica_id >= 0 or not quotas.is_active:
            return bytes_max
        return int(min(bytes_max, quotas.fetch_bytes_max(self.connection, self.client_id)))

    # ---- which partitions

    def find_session(self) -> Work[None]:
        """Set the session that this request opens or continues, or `entries` if it has none."""
        request, sessions = self.request, self.context.sessions
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            yield from self.continue_session()
            return
        if request.session_id != NO_SESSION:
            sessions.close(request.session_id)
        requested: dict[PartitionKey, FetchEntry] = {}  # each partition once, as in Kafka
        for number, (key, entry) in enumerate(self.requested_entries(), 1):
            requested[key] = entry
            if number % PARTITIONS_PER_TURN == 0:
                yield None
        session = None
        if request.session_epoch == INITIAL_EPOCH:
            session = sessions.open(
                len(requested),
                uses_topic_ids=self.version >= TOPIC_IDS_SINCE,
                now=self.loop.time(),
                is_of_follower=self.replica_id >= 0,
            )
        if session is None:
            self.entries = list(requested.values())
            return
        session.pushes_high_watermark = (
            self.replica_id >= 0 and self.context.config.replica_selector_class is not None
        )
        for number, (key, entry) in enumerate(requested.items(), 1):
            session.put(key, entry)
            if number % PARTITIONS_PER_TURN == 0:
                yield None
        self.use_session(session)

    def use_session(self, session: FetchSession) -> None:
        self.session = self.reader.session = session
        self.session_epoch = session.epoch

    def continue_session(self) -> Work[None]:
        request, sessions = self.request, self.context.sessions
        uses_topic_ids = self.version >= TOPIC_IDS_SINCE
        session = sessions.resume(
            request.session_id,
            request.session_epoch,
            uses_topic_ids=uses_topic_ids,
            now=self.loop.time(),
        )
        self.is_incremental = True
        session.next_epoch()
        session.wake_to_recheck()
        size_before = len(session.partitions)
        try:
            yield from self.update_session(session)
        except GeneratorExit:
            # The client disconnected. It may continue the session and would not list the missing partitions again.
            sessions.close(session.id)
            raise
        if not session.partitions:
            sessions.close(session.id)
        elif (
            len(session.partitions) > size_before
            and not session.is_of_follower
            and not sessions.can_add(0)
        ):
            sessions.close(session.id)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        else:
            self.use_session(session)

    def update_session(self, session: FetchSession) -> Work[None]:
        for number, (key, entry) in enumerate(self.requested_entries(session), 1):
            session.put(key, entry)
            if number % PARTITIONS_PER_TURN == 0:
                yield None
        for topic in self.request.forgotten_topics_data:
            name = topic.topic_id if session.uses_topic_ids else topic.topic
            for index in topic.partitions:
                self.forget_follower(session.partitions.get((name, index)))
                session.remove((name, index))
                yield None

    def requested_entries(
        self, session: FetchSession | None = None
    ) -> Iterable[tuple[PartitionKey, FetchEntry]]:
        uses_topic_ids = self.version >= TOPIC_IDS_SINCE
        for topic, topic_id, partitions in self.request.topics:
            name_or_id: str | UUID = topic_id if uses_topic_ids else topic
            for wanted in partitions:
                key = (name_or_id, wanted.partition)
                entry = session.partitions.get(key) if session is not None else None
                if entry is None:
                    topic_name = self.reader.name_of(topic_id) if uses_topic_ids else topic
                    entry = FetchEntry(topic_name, topic_id, wanted.partition)
                else:
                    entry.unwatch()
                if self.replica_id >= 0:
                    entry.watches_end = True
                    # The follower may have dropped the last response: it truncated its log, or got LeaderAndIsr.
                    entry.sent_high_watermark = entry.sent_log_start_offset = -1
                entry.current_leader_epoch = wanted.current_leader_epoch
                entry.fetch_offset = wanted.fetch_offset
                entry.last_fetched_epoch = wanted.last_fetched_epoch
                entry.log_start_offset = wanted.log_start_offset
                entry.partition_max_bytes = wanted.partition_max_bytes
                yield key, entry

    def forget_follower(self, entry: FetchEntry | None) -> None:
        """Record that the follower no longer fetches this partition. Its session may continue with others."""
        if entry is not None and self.replica_id >= 0:
            partition = self.context.replicas.partitions.get((entry.topic, entry.index))
            follower = partition and partition.followers.get(self.replica_id)
            if follower:
                follower.session = None

    # ---- reading

    def entries_to_read(self) -> list[FetchEntry]:
        session = self.session
        if session is None:
            return self.entries
        if self.is_incremental:
            return list(session.awake)
        # The first response of a session must contain every partition: clients check this.
        return list(session.partitions.values())

    def read_partitions(self) -> Work[list[PartitionRead]]:
        """Read the partitions of `entries_to_read`. In an incremental fetch, entries without an update fall asleep."""
        session = self.session
        self.reader.has_unchecked_batch = False
        reads: list[PartitionRead] = []
        left = self.bytes_max
        is_first = True
        for entry in self.entries_to_read():
            found = self.reader.read_or_error(
                entry, left, is_first and self.version >= ONE_BATCH_SINCE
            )
            reads.append(found)
            size = found.data.size
            if size:
                is_first = False
                left = max(left - size, 0)
            elif session is not None and self.is_incremental and not has_update(found):
                # An entry with an update stays awake until the response is sent.
                self.fall_asleep(session, found)
            if self.reads_in_turns and len(reads) % PARTITIONS_PER_TURN == 0:
                yield None
        return reads

    def fall_asleep(self, session: FetchSession, read: PartitionRead) -> None:
        """Put an entry to sleep if its partition has nothing more to send before it changes."""
        data, partition = read.data, read.partition
        if (
            partition is not None
            and not data.size
            and not read.has_unsent_batch
            and data.diverging_epoch is NO_DIVERGENCE
            and data.preferred_read_replica < 0
        ):
            session.fall_asleep(read.entry, partition)
            if self.replica_id >= 0 and self.replica_id not in partition.isr:
                session.to_recheck.append(read.entry)

    def is_enough(self, reads: list[PartitionRead]) -> bool:
        if any(map(self.is_urgent, reads)):
            return True
        return sum(read.data.size for read in reads) >= self.bytes_required()

    def is_urgent(self, read: PartitionRead) -> bool:
        """Whether the response is sent at once, even with fewer than `min_bytes`."""
        data = read.data
        return bool(
            data.error_code
            or read.is_from_closed_segment
            or data.diverging_epoch is not NO_DIVERGENCE
            or data.preferred_read_replica >= 0
            or self.must_push_high_watermark(read)
        )

    def bytes_required(self) -> int:
        return min(self.request.min_bytes, self.bytes_max)

    def has_only_unchecked_batches(self, reads: list[PartitionRead]) -> bool:
        """Whether the checksums of all batches found are still being verified. Even with max_wait_ms=0 the fetch waits:
        for clients an empty response means the end of the log."""
        return self.reader.has_unchecked_batch and not any(
            read.data.size or read.data.error_code for read in reads
        )

    def must_push_high_watermark(self, read: PartitionRead) -> bool:
        """Whether a follower that may serve consumers gets a new high watermark at once."""
        return (
            self.session is not None
            and self.session.pushes_high_watermark
            and read.data.high_watermark > read.entry.sent_high_watermark
        )

    # ---- waiting

    def must_wait(self, reads: list[PartitionRead]) -> bool:
        if self.request.max_wait_ms > 0 and not self.is_enough(reads):
            has_partitions = self.session.partitions if self.session is not None else self.entries
            if has_partitions:
                return True
        return self.has_only_unchecked_batches(reads)

    def wait(self, reads: list[PartitionRead]) -> asyncio.Future[FetchResult]:
        future: asyncio.Future[FetchResult] = self.loop.create_future()
        future.add_done_callback(self.stop_waiting)
        self.future = future
        self.context.metrics.waiting_fetches += 1
        seconds = max(self.request.max_wait_ms, 0) / 1000
        self.timer = self.loop.call_later(seconds, self.read_again, True)
        if not self.is_incremental:
            self.sizes = {read.entry: read.data.size for read in reads}
        self.watch_all()
        if self.has_changed_early:
            self.schedule_read()
        return future

    def watch_all(self) -> None:
        """Watch all entries. In a session, watch those that are awake: the others have watchers already."""
        if self.session is None:
            self.watch(self.entries)
        else:
            self.session.waiting_fetch = self.schedule_read
            self.watch(list(self.session.awake))

    def watch(self, entries: Iterable[FetchEntry]) -> None:
        for entry in entries:
            partition = self.context.replicas.partitions.get((entry.topic, entry.index))
            if partition is not None:
                entry.unwatch()  # its watcher may belong to an earlier fetch of the session
                entry.sleep(partition, self.handle_entry_change)

    def handle_entry_change(self, entry: FetchEntry) -> None:
        self.changed[entry] = None
        self.schedule_read()

    def schedule_read(self) -> None:
        if not self.is_scheduled:
            self.is_scheduled = True
            self.loop.call_soon(self.read_again, False)

    def read_again(self, is_last: bool) -> None:
        """Read after a change, or a last time after the timeout. Respond, or continue to wait."""
        self.is_scheduled = False
        future = self.future
        if future is None:
            self.has_changed_early = True
            return
        if future.done() or self.finishing is not None:
            return
        try:
            self.respond_or_watch(future, is_last or self.has_timed_out)
        except Exception as error:  # noqa: BLE001 - the connection logs it and closes
            # If this callback raised the error, the request would get no response.
            future.set_exception(error)

    def respond_or_watch(self, future: asyncio.Future[FetchResult], is_last: bool) -> None:
        session = self.session
        if session is not None and session.epoch != self.session_epoch:
            # A later fetch on another connection uses the fetch session now, and gets the updates.
            code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            self.context.metrics.count_error(self.connection.api, code)
            future.set_result(FetchResult(error_code=code, session_id=session.id, topics=()))
            return
        if not is_last and len(self.sizes) > FEW and not self.may_be_enough():
            return
        if len(self.sizes) > READ_AT_ONCE_MAX:
            self.finishing = self.loop.create_task(self.finish_in_turns(future))
            return
        self.changed = {}
        reads = run_to_end(self.read_partitions())
        if self.has_only_unchecked_batches(reads) and not (is_last and self.has_timed_out):
            if is_last:
                self.wait_for_verification()
            else:
                self.watch_all()
        elif is_last or self.is_enough(reads):
            future.set_result(run_to_end(self.build_result(reads)))
        else:
            self.watch_all()

    def wait_for_verification(self) -> None:
        """Keep waiting after max_wait_ms: the only batches found must be verified before they are sent."""
        self.has_timed_out = True
        self.timer = self.loop.call_later(CHECK_SECONDS_MAX, self.read_again, True)
        self.watch_all()

    def may_be_enough(self) -> bool:
        """Whether a full read may find enough. Reads only changed partitions: there may be thousands of others."""
        changed, self.changed = self.changed, {}
        self.reader.has_unchecked_batch = False
        for entry in changed:
            read = self.reader.read_or_error(entry, self.bytes_max, True)
            if self.is_urgent(read) or self.reader.has_unchecked_batch:
                return True
            self.sizes[entry] = read.data.size
        self.watch(changed)
        return sum(self.sizes.values()) >= self.bytes_required()

    async def finish_in_turns(self, future: asyncio.Future[FetchResult]) -> None:
        try:
            reads = await run_in_turns(self.read_partitions())
            if self.has_only_unchecked_batches(reads) and not self.has_timed_out:
                self.finishing = None
                self.wait_for_verification()
                return
            result = await run_in_turns(self.build_result(reads))
        except Exception as error:  # noqa: BLE001 - the connection logs it and closes
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)

    def stop_waiting(self, _: asyncio.Future[FetchResult]) -> None:
        self.context.metrics.waiting_fetches -= 1
        if self.timer is not None:
            self.timer.cancel()
        if self.finishing is not None:
            self.finishing.cancel()
        self.stop_watching()

    def stop_watching(self) -> None:
        if self.session is not None and self.session.waiting_fetch == self.schedule_read:
            # Otherwise a later fetch on another connection has continued the session and uses the watchers.
            self.session.waiting_fetch = None
            for entry in self.session.awake:
                entry.unwatch()
        for entry in self.entries:
            entry.unwatch()

    # ---- response

    def build_result(self, reads: list[PartitionRead]) -> Work[FetchResult]:
        throttle_ms, is_withheld = self.charge(reads)
        if is_withheld:
            return self.build_throttled(throttle_ms)
        return (yield from self.build_partitions(reads, throttle_ms))

    def build_partitions(self, reads: list[PartitionRead], throttle_ms: int) -> Work[FetchResult]:
        session = self.session
        quota = self.context.replicas.leader_quota if self.replica_id >= 0 else None
        if session is not None:
            session.move_to_end([entry for entry, data, *_ in reads if data.size])
            if self.is_incremental:
                reads = [read for read in reads if has_update(read)]
        topics: dict[tuple[str, UUID], list[FetchedPartition]] = {}
        leaders = []
        for read in reads:
            entry, data, partition, *_ = read
            if session is not None:
                entry.sent_high_watermark = data.high_watermark
                entry.sent_log_start_offset = data.log_start_offset
                if not self.reads_in_turns:
                    # Otherwise the partition may have changed since an earlier turn, and its entry stays awake.
                    self.fall_asleep(session, read)
            if data.size and partition is not None:
                if self.replica_id >= 0:
                    partition.traffic.replication_bytes_out += data.size
                else:
                    partition.traffic.bytes_out += data.size
            if quota is not None and data.size and partition and is_throttled_here(partition):
                quota.record(data.size)
            if data.error_code:
                self.count_error(entry, data.error_code)
            if data.error_code in WITH_CURRENT_LEADER and self.version >= CURRENT_LEADER_SINCE:
                leader = find_leader(self.context, entry.topic, entry.index)
                leaders.append(leader)
                data = data._replace(current_leader=leader)
            topics.setdefault((entry.topic, entry.topic_id), []).append(data)
            if self.reads_in_turns:
                yield None
        fetched = []
        for key, found in topics.items():
            fetched.append(FetchedTopic(*key, found))
            if self.reads_in_turns:
                yield None
        return FetchResult(
            error_code=0,
            session_id=session.id if session is not None else NO_SESSION,
            topics=tuple(fetched),
            node_endpoints=find_endpoints(self.context, leaders, self.listener) if leaders else (),
            throttle_time_ms=throttle_ms,
        )

    def build_throttled(self, throttle_ms: int) -> FetchResult:
        """Return a response without partitions, as Kafka does. The client fetches them again after the throttle time.

        A session continues. One that this request opens is closed: its first response would need every partition.
        """
        session_id = NO_SESSION
        if self.session is not None:
            if self.is_incremental:
                session_id = self.session.id
            else:
                self.context.sessions.close(self.session.id)
        return FetchResult(0, session_id, (), throttle_time_ms=throttle_ms)

    def count_error(self, entry: FetchEntry, code: int) -> None:
        self.context.metrics.count_error(self.connection.api, code)
        self.context.replicas.traffic.find(entry.topic).failed_fetches += 1

    def charge(self, reads: list[PartitionRead]) -> FetchCharge:
        """Count the bytes and the time for a consumer."""
        quotas = self.context.client_quotas
        if self.replica_id >= 0 or not quotas.is_active:
            return FREE_FETCH
        size = sum(data.size for _, data, *_ in reads)
        return quotas.charge_fetch(self.connection, self.client_id, size)


def has_update(read: PartitionRead) -> bool:
    """Whether an incremental response must contain the partition."""
    entry, data, *_ = read
    return bool(
        data.size
        or data.error_code
        or data.diverging_epoch is not NO_DIVERGENCE
        or data.preferred_read_replica >= 0
        or data.high_watermark != entry.sent_high_watermark
        or data.log_start_offset != entry.sent_log_start_offset
    )
