"""Incremental fetch sessions: a client names its partitions once, then only what changed.

A full fetch lists every partition. With a session the broker remembers the list; the next request names only the
partitions whose offset moved, and the response only those with something new. So that this also saves work here, a
session keeps its partitions in two heaps: *awake* ones are looked at on the next fetch, *asleep* ones gave nothing the
last time and have left a watcher with their partition, which wakes them when it changes. An idle session of a thousand
partitions costs one look at an empty dict.

    epoch 0 opens a session, n > 0 continues it, -1 closes it (or never had one)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from uuid import UUID

from barnabas.errors import ApiError, ErrorCode
from barnabas.replication.partition import Partition, Watcher

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTABLE_AFTER_SECONDS = 120.0
PARTITIONS_MAX = 100_000
"""In all sessions of consumers together: some 30 MB."""

Key = tuple[str | UUID, int]


class FetchEntry:
    """What one client wants of one partition, and what it was told last."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "on_wake",
        "partition",
        "partition_max_bytes",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
        "topic_id",
        "watches_end",
    )

    def __init__(self, topic: str, topic_id: UUID, index: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.current_leader_epoch = -1
        self.fetch_offset = 0
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        self.partition_max_bytes = 0
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.partition: Partition | None = None
        self.on_wake: Callable[[FetchEntry], None] | None = None
        self.watches_end = False
        """A follower is to be woken when the log grows, a consumer when there is more for it to read."""

    def sleep(self, partition: Partition, on_wake: Callable[[FetchEntry], None]) -> None:
        """Be told, once, when this partition changes."""
        self.partition = partition
        self.on_wake = on_wake
        self.watchers_of(partition)[self.wake] = None

    def watchers_of(self, partition: Partition) -> dict[Watcher, None]:
        return partition.end_watchers if self.watches_end else partition.watchers

    def wake(self) -> None:
        self.partition = None
        on_wake, self.on_wake = self.on_wake, None
        if on_wake is not None:
            on_wake(self)

    def forget(self) -> None:
        """Nobody is interested any longer; leave no watcher behind."""
        if self.partition is not None:
            self.watchers_of(self.partition).pop(self.wake, None)
            self.partition = None
        self.on_wake = None


class FetchSession:
    """The partitions of one client, remembered between its requests."""

    __slots__ = (
        "awake",
        "epoch",
        "id",
        "is_hasty",
        "is_of_replica",
        "knocking",
        "last_fetch_ms",
        "partitions",
        "used_at",
        "uses_topic_ids",
        "waiting_fetch",
    )

    def __init__(
        self, session_id: int, *, uses_topic_ids: bool, now: float, is_of_replica: bool = False
    ) -> None:
        self.id = session_id
        self.is_of_replica = is_of_replica
        self.is_hasty = False
        """Of a follower that is told of a new high watermark at once, without waiting for records to go with it."""
        self.last_fetch_ms = now * 1000
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.used_at = now
        self.partitions: dict[Key, FetchEntry] = {}
        self.awake: dict[FetchEntry, None] = {}
        self.knocking: list[FetchEntry] = []
        """Asleep, and looked at with the next request: a follower waits to join the ISR, or is to be heard again."""
        self.waiting_fetch: Callable[[], None] | None = None

    def put(self, key: Key, entry: FetchEntry) -> None:
        self.partitions[key] = entry
        self.awake[entry] = None

    def remove(self, key: Key) -> None:
        entry = self.partitions.pop(key, None)
        if entry is not None:
            self.awake.pop(entry, None)
            entry.forget()

    def fall_asleep(self, entry: FetchEntry, partition: Partition) -> None:
        self.awake.pop(entry, None)
        entry.sleep(partition, self.on_wake)

    def on_wake(self, entry: FetchEntry) -> None:
        self.awake[entry] = None
        if self.waiting_fetch is not None:
            self.waiting_fetch()

    def wake_knocking(self) -> None:
        knocking, self.knocking = self.knocking, []
        for entry in knocking:
            if entry.partition is not None:
                entry.forget()
                self.awake[entry] = None

    def include_in_response(self, topic: str, topic_id: UUID, index: int) -> None:
        """To be looked at with the next answer; only of a hasty session is that hastened."""
        entry = self.partitions.get((topic_id if self.uses_topic_ids else topic, index))
        if entry is not None:
            self.awake[entry] = None
            if self.is_hasty and self.waiting_fetch is not None:
                self.waiting_fetch()

    def recheck(self, topic: str, topic_id: UUID, index: int) -> None:
        entry = self.partitions.get((topic_id if self.uses_topic_ids else topic, index))
        if entry is not None:
            self.knocking.append(entry)

    def served(self, entries: Iterable[FetchEntry]) -> None:
        """Move entries that got data to the end, so that a full response does not starve the others."""
        for entry in entries:
            if entry in self.awake:
                del self.awake[entry]
                self.awake[entry] = None

    def next_epoch(self) -> None:
        self.epoch = 1 if self.epoch == 0x7FFFFFFF else self.epoch + 1

    def close(self) -> None:
        for entry in self.partitions.values():
            entry.forget()
        self.partitions.clear()
        self.awake.clear()
        self.knocking.clear()


class FetchSessions:
    """All sessions of a broker, at most `slots` of them."""

    def __init__(self, slots: int, random: Random) -> None:
        self.slots = slots
        self.random = random
        self.sessions: dict[int, FetchSession] = {}

    def open(
        self, partitions: int, *, uses_topic_ids: bool, now: float, is_of_replica: bool = False
    ) -> FetchSession | None:
        """A new session, or None if there is no room for it: the client then fetches without one."""
        while len(self.sessions) >= self.slots or not (
            is_of_replica or self.has_room_for(partitions)
        ):
            if not self.evict(now, is_of_replica):
                return None
        session_id = self.random.randint(1, 0x7FFFFFFF)
        while session_id in self.sessions:
            session_id = self.random.randint(1, 0x7FFFFFFF)
        session = FetchSession(
            session_id, uses_topic_ids=uses_topic_ids, now=now, is_of_replica=is_of_replica
        )
        self.sessions[session_id] = session
        return session

    def has_room_for(self, more: int) -> bool:
        """Whether consumers may keep that many more partitions in their sessions."""
        kept = sum(
            len(each.partitions) for each in self.sessions.values() if not each.is_of_replica
        )
        return kept + more <= PARTITIONS_MAX

    def evict(self, now: float, for_replica: bool) -> bool:
        """Drop the session that was silent longest, if that is long enough. Followers come before consumers: without a
        session each of their fetches names every partition."""
        oldest = min(
            self.sessions.values(),
            key=lambda session: (session.is_of_replica, session.used_at),
            default=None,
        )
        if oldest is None:
            return False
        is_silent = now - oldest.used_at >= EVICTABLE_AFTER_SECONDS
        if not is_silent and (oldest.is_of_replica or not for_replica):
            return False
        self.close(oldest.id)
        return True

    def resume(
        self, session_id: int, epoch: int, *, uses_topic_ids: bool, now: float
    ) -> FetchSession:
        session = self.sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.used_at = now
        session.last_fetch_ms = now * 1000
        return session

    def close(self, session_id: int) -> None:
        session = self.sessions.pop(session_id, None)
        if session is not None:
            session.close()
