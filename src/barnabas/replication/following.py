"""What a follower does with what it hears from its leader. Decisions only, and what they do to one log.

diverging epoch       the two logs have parted: cut ours where the leader's history ends, fetch on from there
OFFSET_OUT_OF_RANGE   the leader ends before us: cut to its end; begins behind our end: begin anew at its start
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Final

from barnabas.errors import ErrorCode
from barnabas.storage.epochs import UNDEFINED, LeaderEpochs
from barnabas.storage.log import Log

INT_MASK = 0xFFFF_FFFF
UTF_16_UNIT: Final = Struct(">H")


def fetcher_of(topic: str, partition: int, fetchers: int) -> int:
    """Which of the fetchers toward one broker copies this partition; the same one as in Kafka."""
    number = (31 * java_hash(topic) + partition) & INT_MASK
    if number >= 1 << 31:
        number = (1 << 32) - number
    return 0 if number == 1 << 31 else number % fetchers


def java_hash(text: str) -> int:
    value = 0
    for (unit,) in UTF_16_UNIT.iter_unpack(text.encode("utf-16-be")):
        value = (31 * value + unit) & INT_MASK
    return value


def truncation_offset(
    epochs: LeaderEpochs, log_end: int, *, leader_epoch: int, leader_end: int
) -> int:
    """Where to cut when the leader says that its largest epoch up to ours is `leader_epoch`, ending at `leader_end`.

    Ours (1, 0) (3, 20) to 30; the leader has (1, 0) (2, 10) and says (2, 25): our epoch 1 ends at 20, so 20, and then
    we ask again with epoch 1. If it says (1, 10): 10.
    """
    own_epoch, own_end = epochs.end_offset_for(leader_epoch, log_end)
    if own_end == UNDEFINED:
        return min(leader_end, log_end)
    if own_epoch != leader_epoch:
        return min(own_end, log_end)
    return min(own_end, leader_end, log_end)


def prepare(log: Log, now_ms: int) -> None:
    """Before the first fetch. A log without a history of epochs cannot be compared with the leader's, so only what is
    known to be committed is kept."""
    if log.epochs.latest == UNDEFINED and log.log_end_offset > log.high_watermark:
        log.truncate_to(log.high_watermark, now_ms)


class Reaction(Enum):
    """To an error in the answer for one partition."""

    BACK_OFF = "back off"
    GIVE_UP = "give up"
    """Until the next LeaderAndIsr: the leader is ahead of what we were told."""
    FIND_PLACE = "find place"


def reaction(code: int) -> Reaction:
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Reaction.FIND_PLACE
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        return Reaction.GIVE_UP
    return Reaction.BACK_OFF


EXPECTED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""While news of a change travels: leader and follower do not hear of it at the same moment."""
