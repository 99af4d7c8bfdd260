"""How far one group has read: what is committed, what is being written, what has been kept long enough.

    begin ─► (appended, copied to the replicas) ─► complete     committed
                                                └► fail         as if it had never been

A commit counts when it is in the log, and what comes later in the log wins, in whichever order answers come. While one
is under way its partition does not expire.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from barnabas.groups.records import NEVER, CommittedOffset
from barnabas.model import TopicPartition

Commits = Mapping[TopicPartition, CommittedOffset]


class GroupOffsets:
    __slots__ = ("committed", "log_offsets", "pending")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self.log_offsets: dict[TopicPartition, int] = {}
        """Where in the log each of them stands; or the tombstone, of one that was removed while it was written."""
        self.pending: dict[TopicPartition, int] = {}
        """How many commits of each are under way."""

    def __len__(self) -> int:
        return len(self.committed)

    # ---- committing

    def begin(self, commits: Commits) -> None:
        for partition in commits:
            self.pending[partition] = self.pending.get(partition, 0) + 1

    def complete(self, commits: Commits, log_offset: int) -> None:
        """They are in the log at `log_offset`."""
        for partition, value in commits.items():
            self.load(partition, value, log_offset)
            self.end(partition)

    def fail(self, commits: Commits) -> None:
        for partition in commits:
            self.end(partition)

    def end(self, partition: TopicPartition) -> None:
        left = self.pending.pop(partition) - 1
        if left:
            self.pending[partition] = left
        elif partition not in self.committed:
            self.log_offsets.pop(partition, None)

    def load(self, partition: TopicPartition, value: CommittedOffset, log_offset: int) -> None:
        if self.log_offsets.get(partition, -1) <= log_offset:
            self.committed[partition] = value
            self.log_offsets[partition] = log_offset

    # ---- forgetting

    def remove(self, partitions: Iterable[TopicPartition], log_offset: int) -> None:
        """Their tombstones stand at `log_offset`: a commit before it that is still under way comes too late."""
        for partition in partitions:
            self.committed.pop(partition, None)
            self.log_offsets.pop(partition, None)
            if partition in self.pending:
                self.log_offsets[partition] = log_offset

    def among(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those of them that have an offset here, or are about to have one."""
        return [each for each in partitions if each in self.committed or each in self.pending]

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        *,
        since_ms: int = NEVER,
        kept: Collection[str] = (),
    ) -> list[TopicPartition]:
        """Those whose time is over. It counts from `since_ms`, when the group lost its last member, or from each
        commit; topics that are `kept` are being read, and stay."""
        return [
            partition
            for partition, value in self.committed.items()
            if partition.topic not in kept
            and partition not in self.pending
            and is_over(value, now_ms, retention_ms, since_ms)
        ]


def is_over(value: CommittedOffset, now_ms: int, retention_ms: int, since_ms: int) -> bool:
    if value.expire_timestamp != NEVER:
        return now_ms >= value.expire_timestamp
    base = since_ms if since_ms != NEVER else value.commit_timestamp
    return now_ms - base >= retention_ms
