"""Decisions of a follower: fetcher selection and truncation."""

from __future__ import annotations

from barnabas.storage.epochs import UNDEFINED, LeaderEpochs
from barnabas.storage.log import Log
from barnabas.wire.java_hash import java_string_hash

INT_MASK = 0xFFFF_FFFF


def select_fetcher(topic: str, partition: int, fetchers: int) -> int:
    """Return the id of the fetcher, out of `fetchers` per leader, that copies this partition. Same as in Kafka."""
    number = (31 * java_string_hash(topic) + partition) & INT_MASK
    if number >= 1 << 31:
        number = (1 << 32) - number
    return 0 if number == 1 << 31 else number % fetchers


def truncation_offset(
    epochs: LeaderEpochs, log_end: int, *, leader_epoch: int, leader_end: int
) -> int:
    """Return the offset to truncate to.

    `leader_epoch` is the leader's largest epoch up to the last epoch of our log. `leader_end` is the end offset of that
    epoch in the leader's log.

    Example: our epochs are 1 from 0 and 3 from 20, and our log ends at 30. The leader has epoch 1 from 0, 2 from 10 and
    4 from 25. It returns epoch 2, end 25. Our epoch 1 ends at 20: truncate to 20. The next fetch has epoch 1, and the
    leader returns epoch 1, end 10: truncate to 10.
    """
    own_epoch, own_end = epochs.end_offset_for(leader_epoch, log_end)
    if own_end == UNDEFINED:
        return min(leader_end, log_end)
    if own_epoch != leader_epoch:
        return min(own_end, log_end)
    return min(own_end, leader_end, log_end)


def prepare_log(log: Log, now_ms: int) -> None:
    """Truncate a log without leader epochs to its high watermark, before the first fetch.

    Such a log cannot be compared with the leader's, so only committed records are kept.
    """
    if log.epochs.latest == UNDEFINED and log.log_end_offset > log.high_watermark:
        log.truncate_to(log.high_watermark, now_ms)
