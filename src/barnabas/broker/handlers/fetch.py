"""Fetch: batches from the logs, at once if there are enough, else when there are or when the wait is over.

A look at the logs copies nothing: it yields slices of files, which are sent from the page cache. A fetch that has to
wait leaves a watcher with each partition and looks again when one of them changes.

A fetch of many partitions looks at them in several turns of the loop. It sets its watchers before it looks, so that it
does not miss a change in between.

The fetch of a follower reads up to the end of the log, and its offset shows which records the follower holds. A
consumer that names its rack may be sent to a follower in that rack (replication/read_replica.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import NamedTuple
from uuid import UUID

from barnabas.broker.bounded_work import Work, run_in_turns, run_to_end
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.control_plane import may_act_for_the_cluster
from barnabas.broker.fetch_reader import (
    ONE_BATCH_SINCE,
    TOPIC_IDS_SINCE,
    Look,
    PartitionReader,
    is_throttled_here,
)
from barnabas.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchEntry,
    FetchSession,
    Key,
)
from barnabas.broker.handlers.current_leader import endpoints_of, leader_of
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.model import ZERO_ID
from barnabas.wire.fast import FetchedPartition, FetchedTopic, RepeatedFetch, Told
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.current_leader import NodeEndpoint
from barnabas.wire.messages.fetch import NO_DIVERGENCE, FetchRequest
from barnabas.world.ports import Part

LEADER_TOLD_SINCE = 16
CHECK_SECONDS_MAX = 10.0
PARTITIONS_PER_TURN = 64
FEW = 8
"""Partitions that a waiting fetch looks at again whenever one of them changes."""
LOOKED_AT_ONCE_MAX = 1000

# The response to these errors names the leader.
LEADER_TOLD = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class FetchAnswer(NamedTuple):
    """What is sent back; the router encodes it without touching the records."""

    error_code: int
    session_id: int
    topics: tuple[FetchedTopic, ...]
    node_endpoints: tuple[NodeEndpoint, ...] = ()


def handle(
    context: BrokerContext, request: FetchRequest, header: RequestHeader, connection: Connection
) -> Work[FetchAnswer | Awaitable[FetchAnswer]]:
    fetch = Fetch(context, request, header.api_version, connection.listener_name)
    try:
        yield from fetch.find_session()
    except ApiError as error:
        return FetchAnswer(error_code=error.code, session_id=NO_SESSION, topics=())
    if fetch.replica_id >= 0 and not may_act_for_the_cluster(connection):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return FetchAnswer(error_code=code, session_id=NO_SESSION, topics=())
    fetch.is_long = len(fetch.entries_to_look_at()) > PARTITIONS_PER_TURN
    if fetch.is_long:
        fetch.watch_all()
    try:
        looks = yield from fetch.look()
        fetch.reader.has_arrived = True
        if fetch.is_to_wait(looks):
            return fetch.wait(looks)
    finally:
        if fetch.is_long and fetch.future is None:
            fetch.stop_watching()
    return (yield from fetch.answer(looks))


def handle_repeated(
    context: BrokerContext, repeated: RepeatedFetch, frame: memoryview
) -> list[Part] | None:
    """The same for a request whose shape is known from earlier ones, if it can be answered at once with what it asks
    for. None, with nothing done, for all else: `handle` will see."""
    replicas, names = context.replicas.partitions, context.metadata.names
    most = min(repeated.max_bytes, context.config.fetch_max_bytes)
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
        self, context: BrokerContext, request: FetchRequest, version: int, listener: str
    ) -> None:
        self.context = context
        self.request = request
        self.version = version
        self.listener = listener
        self.loop = asyncio.get_running_loop()
        self.reader = PartitionReader(context, request, version, listener)
        self.replica_id = self.reader.replica_id
        self.bytes_max = min(request.max_bytes, context.config.fetch_max_bytes)
        self.entries: list[FetchEntry] = []
        self.is_incremental = False
        self.session: FetchSession | None = None
        self.session_epoch = INITIAL_EPOCH
        """The epoch of the session after this request. A later one means that another fetch continues it."""
        self.future: asyncio.Future[FetchAnswer] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.is_scheduled = False
        self.is_over = False
        """The wait is over, except for the check of data on the disk."""
        self.is_long = False
        """It looks at its partitions in several turns of the loop."""
        self.is_changed_early = False
        """A partition changed after this fetch had looked at it, and before it began to wait."""
        self.finishing: asyncio.Task[None] | None = None
        self.sizes: dict[FetchEntry, int] = {}
        """Bytes found while it waits; not kept for an incremental session."""
        self.changed: dict[FetchEntry, None] = {}
        """Entries whose partition changed since the last look."""

    # ---- which partitions

    def find_session(self) -> Work[None]:
        """Set the session that this request opens or continues; `entries` if it has none."""
        request, sessions = self.request, self.context.sessions
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            yield from self.continue_session()
            return
        if request.session_id != NO_SESSION:
            sessions.close(request.session_id)
        named: dict[Key, FetchEntry] = {}  # a partition named twice counts once, as in Kafka
        for number, (key, entry) in enumerate(self.named_entries(), 1):
            named[key] = entry
            if number % PARTITIONS_PER_TURN == 0:
                yield None
        session = None
        if request.session_epoch == INITIAL_EPOCH:
            session = sessions.open(
                len(named),
                uses_topic_ids=self.version >= TOPIC_IDS_SINCE,
                now=self.loop.time(),
                is_of_replica=self.replica_id >= 0,
            )
        if session is None:
            self.entries = list(named.values())
            return
        session.is_hasty = (
            self.replica_id >= 0 and self.context.config.replica_selector_class is not None
        )
        for number, (key, entry) in enumerate(named.items(), 1):
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
        session.wake_knocking()
        size_before = len(session.partitions)
        try:
            yield from self.update_session(session)
        except GeneratorExit:
            # The client disconnected. It may continue the session, and would not name the missing partitions again.
            sessions.close(session.id)
            raise
        if not session.partitions:
            sessions.close(session.id)
        elif (
            len(session.partitions) > size_before
            and not session.is_of_replica
            and not sessions.has_room_for(0)
        ):
            sessions.close(session.id)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        else:
            self.use_session(session)

    def update_session(self, session: FetchSession) -> Work[None]:
        for number, (key, entry) in enumerate(self.named_entries(session), 1):
            session.put(key, entry)
            if number % PARTITIONS_PER_TURN == 0:
                yield None
        for topic in self.request.forgotten_topics_data:
            name = topic.topic_id if session.uses_topic_ids else topic.topic
            for index in topic.partitions:
                self.forget_follower(session.partitions.get((name, index)))
                session.remove((name, index))
                yield None

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
                    known = self.reader.name_of(topic_id) if uses_topic_ids else topic
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
            partition = self.context.replicas.partitions.get((entry.topic, entry.index))
            follower = partition and partition.followers.get(self.replica_id)
            if follower:
                follower.session = None

    def has_partitions(self) -> bool:
        return bool(self.session.partitions if self.session is not None else self.entries)

    # ---- looking

    def entries_to_look_at(self) -> list[FetchEntry]:
        session = self.session
        if session is None:
            return self.entries
        if self.is_incremental:
            return list(session.awake)
        # The first answer of a session names every partition: clients check that it does.
        return list(session.partitions.values())

    def look(self) -> Work[list[Look]]:
        """Look at every partition that may have something. In a session, those that have nothing fall asleep."""
        session = self.session
        self.reader.has_unchecked = False
        looks: list[Look] = []
        left = self.bytes_max
        is_first = True
        for entry in self.entries_to_look_at():
            found = self.reader.look_at(entry, left, is_first and self.version >= ONE_BATCH_SINCE)
            looks.append(found)
            size = found.data.size
            if size:
                is_first = False
                left = max(left - size, 0)
            elif session is not None and self.is_incremental and not is_news(found):
                # An entry with news stays awake until the client has it.
                self.fall_asleep(session, found)
            if self.is_long and len(looks) % PARTITIONS_PER_TURN == 0:
                yield None
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

    def is_enough(self, looks: list[Look]) -> bool:
        if any(map(self.is_urgent, looks)):
            return True
        return sum(look.data.size for look in looks) >= self.bytes_wanted()

    def is_urgent(self, look: Look) -> bool:
        """The client learns of it at once, however few bytes there are."""
        data = look.data
        return bool(
            data.error_code
            or look.is_older
            or data.diverging_epoch is not NO_DIVERGENCE
            or data.preferred_read_replica >= 0
            or self.is_to_be_hastened(look)
        )

    def bytes_wanted(self) -> int:
        return min(self.request.min_bytes, self.bytes_max)

    def is_held_for_check(self, looks: list[Look]) -> bool:
        """There is something, nothing else, and it is just being looked through. An empty answer would be taken for the
        end of the log, even by who is not willing to wait for more."""
        return self.reader.has_unchecked and not any(
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

    def is_to_wait(self, looks: list[Look]) -> bool:
        if self.request.max_wait_ms > 0 and not self.is_enough(looks) and self.has_partitions():
            return True
        return self.is_held_for_check(looks)

    def wait(self, looks: list[Look]) -> asyncio.Future[FetchAnswer]:
        future: asyncio.Future[FetchAnswer] = self.loop.create_future()
        future.add_done_callback(self.stop_waiting)
        self.future = future
        seconds = max(self.request.max_wait_ms, 0) / 1000
        self.timer = self.loop.call_later(seconds, self.look_again, True)
        if not self.is_incremental:
            self.sizes = {look.entry: look.data.size for look in looks}
        self.watch_all()
        if self.is_changed_early:
            self.schedule_look()
        return future

    def watch_all(self) -> None:
        """All entries of a fetch without a session. In a session the sleeping ones are watched already."""
        if self.session is None:
            self.watch(self.entries)
        else:
            self.session.waiting_fetch = self.schedule_look
            self.watch(list(self.session.awake))

    def watch(self, entries: Iterable[FetchEntry]) -> None:
        for entry in entries:
            partition = self.context.replicas.partitions.get((entry.topic, entry.index))
            if partition is not None:
                entry.forget()  # an earlier fetch of the session may still be told instead
                entry.sleep(partition, self.entry_changed)

    def entry_changed(self, entry: FetchEntry) -> None:
        self.changed[entry] = None
        self.schedule_look()

    def schedule_look(self) -> None:
        if not self.is_scheduled:
            self.is_scheduled = True
            self.loop.call_soon(self.look_again, False)

    def look_again(self, is_last: bool) -> None:
        self.is_scheduled = False
        future = self.future
        if future is None:
            self.is_changed_early = True
            return
        if future.done() or self.finishing is not None:
            return
        try:
            self.answer_or_watch(future, is_last or self.is_over)
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
        if not is_last and len(self.sizes) > FEW and not self.may_be_enough():
            return
        if len(self.sizes) > LOOKED_AT_ONCE_MAX:
            self.finishing = self.loop.create_task(self.finish_in_turns(future))
            return
        self.changed = {}
        looks = run_to_end(self.look())
        if self.is_held_for_check(looks) and not (is_last and self.is_over):
            if is_last:
                self.wait_for_check()
            else:
                self.watch_all()
        elif is_last or self.is_enough(looks):
            future.set_result(run_to_end(self.answer(looks)))
        else:
            self.watch_all()

    def wait_for_check(self) -> None:
        """The wait is over, but the only data there is must be checked before it is sent."""
        self.is_over = True
        self.timer = self.loop.call_later(CHECK_SECONDS_MAX, self.look_again, True)
        self.watch_all()

    def may_be_enough(self) -> bool:
        """Look at the changed partitions only: one produce must not cost a look at thousands of others."""
        changed, self.changed = self.changed, {}
        self.reader.has_unchecked = False
        for entry in changed:
            look = self.reader.look_at(entry, self.bytes_max, True)
            if self.is_urgent(look) or self.reader.has_unchecked:
                return True
            self.sizes[entry] = look.data.size
        self.watch(changed)
        return sum(self.sizes.values()) >= self.bytes_wanted()

    async def finish_in_turns(self, future: asyncio.Future[FetchAnswer]) -> None:
        try:
            looks = await run_in_turns(self.look())
            if self.is_held_for_check(looks) and not self.is_over:
                self.finishing = None
                self.wait_for_check()
                return
            answer = await run_in_turns(self.answer(looks))
        except Exception as error:  # noqa: BLE001 - the connection logs it and closes
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(answer)

    def stop_waiting(self, _: asyncio.Future[FetchAnswer]) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.finishing is not None:
            self.finishing.cancel()
        self.stop_watching()

    def stop_watching(self) -> None:
        if self.session is not None and self.session.waiting_fetch == self.schedule_look:
            # Otherwise the session was continued on another connection, and the fetch there is to be woken.
            self.session.waiting_fetch = None
            for entry in self.session.awake:
                entry.forget()
        for entry in self.entries:
            entry.forget()

    # ---- answering

    def answer(self, looks: list[Look]) -> Work[FetchAnswer]:
        session = self.session
        quota = self.context.replicas.leader_quota if self.replica_id >= 0 else None
        if session is not None:
            session.served([entry for entry, data, *_ in looks if data.size])
            if self.is_incremental:
                looks = [look for look in looks if is_news(look)]
        topics: dict[tuple[str, UUID], list[FetchedPartition]] = {}
        leaders = []
        for look in looks:
            entry, data, partition, *_ = look
            if session is not None:
                entry.sent_high_watermark = data.high_watermark
                entry.sent_log_start_offset = data.log_start_offset
                if not self.is_long:
                    # In another turn the partition may have changed since the look: it has to stay awake.
                    self.fall_asleep(session, look)
            if quota is not None and data.size and partition and is_throttled_here(partition):
                quota.record(data.size)
            if data.error_code in LEADER_TOLD and self.version >= LEADER_TOLD_SINCE:
                leader = leader_of(self.context, entry.topic, entry.index)
                leaders.append(leader)
                data = data._replace(current_leader=leader)
            topics.setdefault((entry.topic, entry.topic_id), []).append(data)
            if self.is_long:
                yield None
        fetched = []
        for key, found in topics.items():
            fetched.append(FetchedTopic(*key, found))
            if self.is_long:
                yield None
        return FetchAnswer(
            error_code=0,
            session_id=session.id if session is not None else NO_SESSION,
            topics=tuple(fetched),
            node_endpoints=endpoints_of(self.context, leaders, self.listener) if leaders else (),
        )


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
