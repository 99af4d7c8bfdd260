"""Filter of read_committed consumers: hides the batches of aborted transactions, and control batches."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.batch.header import HEADER_SIZE, BatchHeader
from barnabas.wire.messages.fetch import AbortedTransaction

ABORT_MARKER = b"\0\0\0\0"
"""Key of an abort marker: version 0, type 0. A commit marker has type 1."""


class AbortedFilter:
    """Hides the batches of aborted transactions from read_committed consumers.

    A producer's batches are hidden from the first offset of an aborted transaction to its next abort marker.
    """

    def __init__(self, transactions: Sequence[AbortedTransaction]) -> None:
        self.upcoming = sorted(transactions, key=lambda each: each.first_offset, reverse=True)
        self.aborted_producers: set[int] = set()

    def hides(self, header: BatchHeader, view: memoryview, at: int) -> bool:
        """Whether to skip the batch. True for control batches too. Call it for all batches, in log order."""
        while self.upcoming and self.upcoming[-1].first_offset <= header.last_offset:
            self.aborted_producers.add(self.upcoming.pop().producer_id)
        if header.is_control:
            if header.producer_id in self.aborted_producers and is_abort_marker(view, at):
                self.aborted_producers.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self.aborted_producers


def is_abort_marker(view: memoryview, at: int) -> bool:
    # Five fields of one byte precede the key: length, attributes, two deltas and the length of the key.
    key_at = at + HEADER_SIZE + 5
    return bytes(view[key_at : key_at + 4]) == ABORT_MARKER
