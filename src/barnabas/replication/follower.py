"""Decisions of a follower: fetcher selection, truncation and reactions to errors of the leader.

diverging epoch       the logs differ: truncate to the common history, then fetch from there
OFFSET_OUT_OF_RANGE   the leader ends before us: truncate to its end; it starts after our end: restart at its start
"""

from __future__ import annotations

from enum import Enum

from barnabas.errors import ErrorCode
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

    `leader_epoch` is the leader's largest epoch up to ours, and ends at `leader_end` in the leader's log.

    Example: our epochs are 1 from 0 and 3 from 20, and our log ends at 30. The leader has epoch 1 from 0 and 2 from 10.
    It returns epoch 2, end 25. Our epoch 1 ends at 20: truncate to 20. The next fetch has epoch 1, and the leader
    returns epoch 1, end 10: truncate to 10.
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


class Reaction(Enum):
    """Reaction to an error for one partition in a fetch response."""

    BACK_OFF = "back off"
    STOP = "stop"
    """Stop fetching the partition until the next LeaderAndIsr, since the leader has a newer epoch."""
    RESET_OFFSET = "reset offset"
    """Compare the log with the offsets of the leader, and truncate it."""


def reaction_to(code: int) -> Reaction:
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Reaction.RESET_OFFSET
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        return Reaction.STOP
    return Reaction.BACK_OFF


TRANSIENT_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Expected while metadata propagates: leader and follower do not receive a change at the same time."""
