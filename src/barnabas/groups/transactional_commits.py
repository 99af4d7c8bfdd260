"""Offset commits of transactions, which are pending until a transaction coordinator writes the marker.

TxnOffsetCommit   appends the offsets as a batch of the transaction      ─► add
WriteTxnMarkers   appends the marker to the same partition               ─► end: the offsets are applied or discarded
loading           finds both in the log; transactions without a marker   ─► add
"""

from __future__ import annotations

from barnabas.groups.commits import PendingCommits
from barnabas.groups.offsets import GroupOffsets


class TransactionalCommits:
    """The groups that have offsets in open transactions."""

    def __init__(self, commits: PendingCommits) -> None:
        self.commits = commits
        self.groups: dict[int, dict[int, dict[GroupOffsets, None]]] = {}
        """By partition of `__consumer_offsets`, then by producer id."""

    def add(self, partition: int, producer_id: int, offsets: GroupOffsets) -> None:
        """Add a group with offsets in the transaction of a producer."""
        self.groups.setdefault(partition, {}).setdefault(producer_id, {})[offsets] = None

    def add_loaded(self, partition: int, offsets: GroupOffsets) -> None:
        for producer_id in offsets.in_transactions:
            self.add(partition, producer_id, offsets)

    def end(
        self, partition: int, producer_id: int, *, is_committed: bool, marker_offset: int
    ) -> None:
        """Apply or discard the offsets of a transaction, whose marker is replicated."""
        groups = self.groups.get(partition, {})
        for offsets in list(groups.get(producer_id, ())):
            offsets.end_transaction(
                producer_id, is_committed=is_committed, marker_offset=marker_offset
            )
            if producer_id not in offsets.in_transactions:
                del groups[producer_id][offsets]
            self.commits.notify_completion(offsets)
        if producer_id in groups and not groups[producer_id]:
            del groups[producer_id]

    def drop_partition(self, partition: int) -> None:
        """Forget a partition that this broker no longer leads."""
        self.groups.pop(partition, None)
