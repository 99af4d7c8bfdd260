"""Transactions in a cleaning: which batches were aborted, and which markers are no longer needed.

    batch of an aborted transaction     removed
    marker of a transaction             kept while the log has a batch of the transaction. Then it gets a delete
                                        horizon, delete.retention.ms from then on. A cleaning after it removes it

Consumers need the marker: it ends the range of records that they skip. One that has read a part of the transaction may
still wait for it, as for a tombstone. The transaction index of a cleaned segment has the aborted transactions whose
batches were still in the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from barnabas.batch.header import BatchHeader
from barnabas.batch.markers import read_marker
from barnabas.storage.transaction_index import AbortedEntry


class AbortedRanges:
    """The aborted transactions of the log, by producer."""

    def __init__(self, entries: Iterable[AbortedEntry]) -> None:
        self.by_producer: dict[int, list[AbortedEntry]] = {}
        for entry in entries:  # ascending by the offset of the marker
            self.by_producer.setdefault(entry.producer_id, []).append(entry)

    def find(self, header: BatchHeader) -> AbortedEntry | None:
        """Return the aborted transaction that a batch or a marker belongs to, or None."""
        entries = self.by_producer.get(header.producer_id) if header.is_transactional else None
        if entries is None:
            return None
        at = bisect_left(entries, header.last_offset, key=lambda entry: entry.last_offset)
        if at == len(entries) or entries[at].first_offset > header.base_offset:
            return None
        return entries[at]


class CleanedTransactions:
    """State of one cleaning, which reads all batches of the log in order."""

    def __init__(self, aborted: AbortedRanges) -> None:
        self.aborted = aborted
        self.aborted_with_batches: set[AbortedEntry] = set()
        """Aborted transactions of which a batch was read."""
        self.committed_with_batches: set[int] = set()
        """Producers of which a batch was read, but not yet its commit marker."""
        self.kept: list[AbortedEntry] = []
        """Aborted transactions for the index of the cleaned segment."""

    def read_batch(self, header: BatchHeader) -> bool:
        """Record a batch with data. Return whether its transaction was aborted."""
        if not header.is_transactional:
            return False
        entry = self.aborted.find(header)
        if entry is None:
            self.committed_with_batches.add(header.producer_id)
            return False
        self.aborted_with_batches.add(entry)
        return True

    def read_control_batch(self, header: BatchHeader, batch: memoryview) -> bool:
        """Record a control batch. Return whether its transaction has no batches, so that it may be removed."""
        if header.count == 0:
            return True
        marker = read_marker(batch)
        if marker is None:
            return False
        if marker.is_commit:
            has_batches = header.producer_id in self.committed_with_batches
            self.committed_with_batches.discard(header.producer_id)
            return not has_batches
        entry = self.aborted.find(header)
        if entry is None or entry not in self.aborted_with_batches:
            return True
        self.aborted_with_batches.discard(entry)
        self.kept.append(entry)
        return False

    def take_kept(self) -> list[AbortedEntry]:
        """Return the aborted transactions since the last call."""
        kept, self.kept = self.kept, []
        return kept
