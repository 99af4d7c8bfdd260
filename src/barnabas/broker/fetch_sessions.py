"""Incremental fetch sessions: a client lists its partitions once, then only those that change.

A full Fetch request lists every partition. With a session the broker keeps the list. The next request lists only
partitions with a new offset, and its response only partitions with an update: records, an error or a new offset.

To save work on the broker, an entry of a session is either *awake* or *asleep*. The next request reads only entries
that are awake. An entry without an update falls asleep, and a watcher on its partition wakes it after a change. A
request of an idle session with a thousand partitions reads none of them.

    epoch 0 opens a session, n > 0 continues it, -1 closes it, or fetches without one
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from uuid import UUID

from msgspec import Struct

from barnabas.errors import ApiError, ErrorCode
from barnabas.replication.partition import Partition, Watcher

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTABLE_AFTER_SECONDS = 120.0
PARTITIONS_MAX = 100_000
"""Maximum number of partitions in all consumer sessions together, about 30 MB."""

PartitionKey = tuple[str | UUID, int]  # topic name or id, and partition index


class FetchEntry(Struct, eq=False):
    """One partition of a client: the last requested offsets and limits, and the offsets last sent."""

    topic: str
    topic_id: UUID
    index: int
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 0
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1
    watched: Partition | None = None
    on_wake: Callable[[FetchEntry], None] | None = None
    watches_end: bool = False
    """True for a follower, which wakes when the log grows. A consumer wakes when the high watermark advances."""

    def sleep(self, partition: Partition, on_wake: Callable[[FetchEntry], None]) -> None:
        """Call `on_wake` once, after the next change of this partition."""
        self.watched = partition
        self.on_wake = on_wake
        self.watchers_of(partition)[self.wake] = None

    def watchers_of(self, partition: Partition) -> dict[Watcher, None]:
        return partition.end_watchers if self.watches_end else partition.watchers

    def wake(self) -> None:
        self.watched = None
        on_wake, self.on_wake = self.on_wake, None
        if on_wake is not None:
            on_wake(self)

    def unwatch(self) -> None:
        """Remove the watcher, if any."""
        if self.watched is not None:
            self.watchers_of(self.watched).pop(self.wake, None)
            self.watched = None
        self.on_wake = None


class FetchSession(Struct, eq=False, kw_only=True):
    """The partitions of one client, kept between its requests."""

    id: int
    uses_topic_ids: bool
    used_at: float
    last_fetch_ms: float
    epoch: int = 1
    is_of_follower: bool = False
    pushes_high_watermark: bool = False
    """Whether a follower gets a new high watermark at once, without waiting for records."""
    partitions: dict[PartitionKey, FetchEntry] = {}
    awake: dict[FetchEntry, None] = {}
    to_recheck: list[FetchEntry] = []
    """Entries that the next request reads even if asleep: the leader needs the follower's fetch offset."""
    waiting_fetch: Callable[[], None] | None = None
    """Callback that lets the waiting fetch read again, if there is one."""

    def put(self, key: PartitionKey, entry: FetchEntry) -> None:
        self.partitions[key] = entry
        self.awake[entry] = None

    def remove(self, key: PartitionKey) -> None:
        entry = self.partitions.pop(key, None)
        if entry is not None:
            self.awake.pop(entry, None)
            entry.unwatch()

    def fall_asleep(self, entry: FetchEntry, partition: Partition) -> None:
        self.awake.pop(entry, None)
        entry.sleep(partition, self.on_wake)

    def on_wake(self, entry: FetchEntry) -> None:
        self.awake[entry] = None
        if self.waiting_fetch is not None:
            self.waiting_fetch()

    def wake_to_recheck(self) -> None:
        to_recheck, self.to_recheck = self.to_recheck, []
        for entry in to_recheck:
            if entry.watched is not None:
                entry.unwatch()
                self.awake[entry] = None

    def include_in_response(self, topic: str, topic_id: UUID, index: int) -> None:
        """Include a partition in the next response. If `pushes_high_watermark`, also wake a waiting fetch."""
        entry = self.partitions.get((topic_id if self.uses_topic_ids else topic, index))
        if entry is not None:
            self.awake[entry] = None
            if self.pushes_high_watermark and self.waiting_fetch is not None:
                self.waiting_fetch()

    def recheck(self, topic: str, topic_id: UUID, index: int) -> None:
        """Read a partition with the next request, even if the entry is asleep."""
        entry = self.partitions.get((topic_id if self.uses_topic_ids else topic, index))
        if entry is not None:
            self.to_recheck.append(entry)

    def move_to_end(self, entries: Iterable[FetchEntry]) -> None:
        """Move entries with records to the end, so that a full response does not starve the others."""
        for entry in entries:
            if entry in self.awake:
                del self.awake[entry]
                self.awake[entry] = None

    def next_epoch(self) -> None:
        self.epoch = 1 if self.epoch == 0x7FFFFFFF else self.epoch + 1

    def close(self) -> None:
        for entry in self.partitions.values():
            entry.unwatch()
        self.partitions.clear()
        self.awake.clear()
        self.to_recheck.clear()


class FetchSessions:
    """All fetch sessions of a broker, at most `slots`."""

    def __init__(self, slots: int, random: Random) -> None:
        self.slots = slots
        self.random = random
        self.sessions: dict[int, FetchSession] = {}

    def open(
        self, partitions: int, *, uses_topic_ids: bool, now: float, is_of_follower: bool = False
    ) -> FetchSession | None:
        """Return a new session, or None at the limit. The client then fetches without a session."""
        while len(self.sessions) >= self.slots or not (is_of_follower or self.can_add(partitions)):
            if not self.evict(now, is_of_follower):
                return None
        session_id = self.random.randint(1, 0x7FFFFFFF)
        while session_id in self.sessions:
            session_id = self.random.randint(1, 0x7FFFFFFF)
        session = FetchSession(
            id=session_id,
            uses_topic_ids=uses_topic_ids,
            used_at=now,
            last_fetch_ms=now * 1000,
            is_of_follower=is_of_follower,
        )
        self.sessions[session_id] = session
        return session

    def can_add(self, partitions: int) -> bool:
        """Whether consumer sessions may get this number of additional partitions."""
        used = sum(
            len(each.partitions) for each in self.sessions.values() if not each.is_of_follower
        )
        return used + partitions <= PARTITIONS_MAX

    def evict(self, now: float, for_follower: bool) -> bool:
        """Close the least recently used session, of a consumer if possible. Return False if it is not evictable.

        Idle sessions are evictable. To open a follower's session, a consumer session in use is evictable too.
        """
        oldest = min(
            self.sessions.values(),
            key=lambda session: (session.is_of_follower, session.used_at),
            default=None,
        )
        if oldest is None:
            return False
        is_idle = now - oldest.used_at >= EVICTABLE_AFTER_SECONDS
        if not is_idle and (oldest.is_of_follower or not for_follower):
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
