"""Effects of a batch on the producer state of its log: checks before an append, and the changes after it.

producers.py has the state. Here the marker in a control batch is read as well.
"""

from __future__ import annotations

from barnabas.batch.header import BatchHeader
from barnabas.batch.markers import read_marker
from barnabas.storage.producers import ProducedBatch, Producers, Verification
from barnabas.storage.transaction_index import AbortedEntry


def check_transactional(
    producers: Producers,
    header: BatchHeader,
    batch: memoryview,
    verification: Verification | None,
    checks_sequence: bool,
) -> ProducedBatch | None:
    """Check a batch of a transaction, or a marker. Return the first copy of a duplicate. Raises ApiError."""
    if not header.is_control:
        return producers.check_transactional(header, verification, checks_sequence)
    marker = read_marker(batch)
    assert marker is not None, "only transaction markers are appended as control batches"
    producers.check_marker(header, marker)
    return None


def apply_batch(
    producers: Producers, header: BatchHeader, batch: memoryview
) -> AbortedEntry | None:
    """Update the producer state with a batch of the log. `batch` is used only for a control batch.

    If the batch is a marker that aborts a transaction with records here, return its entry for the transaction index.
    """
    if not header.is_control:
        producers.record(header, header.base_offset, header.max_timestamp)
        return None
    marker = read_marker(batch)
    completed = None if marker is None else producers.record_marker(header, marker)
    if completed is None or not completed.is_aborted:
        return None
    return AbortedEntry(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        producers.first_ongoing_offset(completed.last_offset + 1),
    )
