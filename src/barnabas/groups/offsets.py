"""Committed offsets of one group, including commits that are still being replicated.

    begin ─► (appended, replicated) ─► complete     the commit is visible
                                    └► fail         the commit is discarded

Commits of a transaction are pending until its marker is written (`begin_in_transaction`, `end_transaction`).

Of two commits for a partition the one with the larger log offset wins, in whichever order they complete. An offset
with a pending commit does not expire.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from barnabas.groups.records import OffsetCommitValue
from barnabas.model import NO_TIMESTAMP, TopicPartition

Commits = Mapping[TopicPartition, OffsetCommitValue]


class GroupOffsets:
    __slots__ = ("committed", "in_transactions", "log_offsets", "pending")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, OffsetCommitValue] = {}
        self.log_offsets: dict[TopicPartition, int] = {}
        """Log offset of each commit; or of the tombstone, if an offset was removed while a commit was pending."""
        self.pending: dict[TopicPartition, int] = {}
        """Number of pending commits by partition."""
        self.in_transactions: dict[int, dict[TopicPartition, tuple[OffsetCommitValue, int]]] = {}
        """Commits of open transactions, and their log offsets, by producer id. They are pending."""

    def __len__(self) -> int:
        return len(self.committed)

    # ---- committing

    def begin(self, commits: Commits) -> None:
        """Mark the commits as pending. `complete` or `fail` must follow."""
        for partition in commits:
            self.pending[partition] = self.pending.get(partition, 0) + 1

    def complete(self, commits: Commits, log_offset: int) -> None:
        """Apply pending commits, which are in the log at `log_offset`."""
        for partition, value in commits.items():
            self.put(partition, value, log_offset)
            self.remove_pending(partition)

    def fail(self, commits: Commits) -> None:
        for partition in commits:
            self.remove_pending(partition)

    def begin_in_transaction(self, producer_id: int, commits: Commits, log_offset: int) -> None:
        """Add commits of a transaction, which are in the log at `log_offset`. The last one of a partition counts."""
        added = self.in_transactions.setdefault(producer_id, {})
        self.begin({each: value for each, value in commits.items() if each not in added})
        for partition, value in commits.items():
            added[partition] = (value, log_offset)

    def end_transaction(self, producer_id: int, *, is_committed: bool, marker_offset: int) -> None:
        """Apply or discard the commits of a transaction that are before its marker. Does nothing if it has none."""
        changes = self.in_transactions.pop(producer_id, {})
        later = {each: change for each, change in changes.items() if change[1] > marker_offset}
        if later:
            self.in_transactions[producer_id] = later
        for partition, (value, log_offset) in changes.items():
            if partition not in later:
                if is_committed:
                    self.put(partition, value, log_offset)
                self.remove_pending(partition)

    def remove_pending(self, partition: TopicPartition) -> None:
        remaining = self.pending.pop(partition) - 1
        if remaining:
            self.pending[partition] = remaining
        elif partition not in self.committed:
            self.log_offsets.pop(partition, None)

    def put(self, partition: TopicPartition, value: OffsetCommitValue, log_offset: int) -> None:
        """Set the committed offset, unless the current one has a larger log offset."""
        if self.log_offsets.get(partition, -1) <= log_offset:
            self.committed[partition] = value
            self.log_offsets[partition] = log_offset

    # ---- deleting

    def remove(self, partitions: Iterable[TopicPartition], log_offset: int) -> None:
        """Remove offsets whose tombstones are at `log_offset`. Pending commits at smaller log offsets are ignored.

        Commits of open transactions are discarded at once, as in Kafka.
        """
        for partition in partitions:
            for commits in self.in_transactions.values():
                if commits.pop(partition, None) is not None:
                    self.remove_pending(partition)
            self.committed.pop(partition, None)
            self.log_offsets.pop(partition, None)
            if partition in self.pending:
                self.log_offsets[partition] = log_offset

    def partitions_with_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        """Return those of `partitions` that have a committed offset or a pending commit."""
        return [each for each in partitions if each in self.committed or each in self.pending]

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        *,
        since_ms: int = NO_TIMESTAMP,
        kept_topics: Collection[str] = (),
    ) -> list[TopicPartition]:
        """Return the partitions whose offset has expired.

        The retention time starts at `since_ms`, when the last member left the group; by default at each commit. A
        commit with an expiry timestamp expires then. Offsets of the topics in `kept_topics` do not expire.
        """
        return [
            partition
            for partition, value in self.committed.items()
            if partition.topic not in kept_topics
            and partition not in self.pending
            and is_expired(value, now_ms, retention_ms, since_ms)
        ]


def is_expired(value: OffsetCommitValue, now_ms: int, retention_ms: int, since_ms: int) -> bool:
    if value.expire_timestamp != NO_TIMESTAMP:
        return now_ms >= value.expire_timestamp
    base = since_ms if since_ms != NO_TIMESTAMP else value.commit_timestamp
    return now_ms - base >= retention_ms
