"""Who is in sync with a leader, and what follows from it. Decisions only: nothing here waits or sends.

    ends     1→12 (leader)  2→10  3→7          ISR {1,2,3}: high watermark 7          3 leaves the ISR: 10

A follower tells where its log ends with every fetch. It is *caught up* while that is where the leader's log ends, or
was within the last replica.lag.time.max.ms. Who is not caught up leaves the ISR; who has reached the high watermark and
the leader's present epoch joins it. The controller alone changes the ISR, so between a proposal and its answer either
set may be the true one. The *maximal* ISR is right under both: with those to be added, still with those to be removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol
from uuid import UUID

from barnabas.errors import ErrorCode
from barnabas.model import BrokerId, LeaderEpoch, ZnodeVersion
from barnabas.wire.messages.control_plane import UNKNOWN_BROKER_EPOCH

UNKNOWN_OFFSET = -1
LONG_AGO_MS = float("-inf")


class Contact(Protocol):
    """What a follower goes on fetching with: one long conversation about many partitions. Those in which nothing moved
    are not named in it, and yet it tells that the follower still holds all of them."""

    last_fetch_ms: float

    def mention(self, topic: str, topic_id: UUID, index: int) -> None:
        """There is something to tell of this partition, when next there is an answer."""
        ...

    def ask_again(self, topic: str, topic_id: UUID, index: int) -> None:
        """Have the follower's word on this partition from its next request, named in it or not."""
        ...


class FollowerState:
    """One follower as its leader knows it. Times are of the loop's clock, in ms."""

    __slots__ = (
        "broker_epoch",
        "contact",
        "last_caught_up_ms",
        "last_fetch_ms",
        "leader_end_at_last_fetch",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_ms = LONG_AGO_MS
        self.leader_end_at_last_fetch = UNKNOWN_OFFSET
        self.last_caught_up_ms = LONG_AGO_MS
        self.contact: Contact | None = None
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        """The life in which it last fetched."""

    def begin_epoch(
        self, *, now_ms: float, leader_end: int, is_in_sync: bool, was_leading: bool
    ) -> None:
        """A new leader epoch. Who is in sync is given the benefit of the doubt; nobody else holds anything up."""
        self.last_caught_up_ms = now_ms if is_in_sync else LONG_AGO_MS
        # It has to say again what it holds: it may have died since, and come back with less.
        self.contact = None
        if was_leading:
            self.leader_end_at_last_fetch = leader_end
            self.last_fetch_ms = now_ms if is_in_sync else LONG_AGO_MS
        else:
            self.log_end_offset = self.log_start_offset = UNKNOWN_OFFSET
            self.leader_end_at_last_fetch = UNKNOWN_OFFSET
            self.last_fetch_ms = LONG_AGO_MS

    def fetched(
        self,
        offset: int,
        log_start_offset: int,
        *,
        now_ms: float,
        leader_end: int,
        contact: Contact | None = None,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> None:
        """It asks for `offset`, so it holds all below. `leader_end` is from before the read: what is appended meanwhile
        must not keep a follower out, and with steady small appends no fetch would ever reach the very end."""
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.leader_end_at_last_fetch = max(leader_end, self.leader_end_at_last_fetch)
        self.last_fetch_ms = now_ms
        self.contact = contact
        self.broker_epoch = broker_epoch

    def leader_moved_on(self, leader_end_before: int) -> None:
        """The leader has appended. Up to its last word this follower held everything, named or not."""
        if self.contact is not None and self.log_end_offset == leader_end_before:
            self.last_fetch_ms = max(self.last_fetch_ms, self.contact.last_fetch_ms)
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)

    def is_caught_up(self, leader_end: int, *, now_ms: float, lag_max_ms: float) -> bool:
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_max_ms


Followers = Mapping[BrokerId, FollowerState]


def replicated_end(
    leader_end: int,
    followers: Followers,
    maximal_isr: Iterable[BrokerId],
    *,
    now_ms: float,
    lag_max_ms: float,
    is_alive: Callable[[BrokerId], bool],
) -> int:
    """The offset below which everybody who counts holds the record.

    A follower that has caught up and may join counts already: else a lone leader's high watermark would run ahead of
    it for ever, and it would never get in.
    """
    end = leader_end
    for broker, follower in followers.items():
        if follower.log_end_offset < end and (
            broker in maximal_isr
            or (
                follower.is_caught_up(leader_end, now_ms=now_ms, lag_max_ms=lag_max_ms)
                and is_alive(broker)
            )
        ):
            end = follower.log_end_offset
    return end


def out_of_sync(
    leader: BrokerId,
    leader_end: int,
    isr: Iterable[BrokerId],
    followers: Followers,
    *,
    now_ms: float,
    lag_max_ms: float,
) -> tuple[BrokerId, ...]:
    """Who has to leave. A follower that stands at the leader's end stays, however long it has been silent."""
    return tuple(
        broker
        for broker in isr
        if broker != leader
        and (
            broker not in followers
            or not followers[broker].is_caught_up(leader_end, now_ms=now_ms, lag_max_ms=lag_max_ms)
        )
    )


def may_join(follower_end: int, *, high_watermark: int, epoch_start: int) -> bool:
    """Below the start of the leader's epoch there may be committed records the follower lacks: were it to lead, they
    would be lost."""
    return follower_end >= high_watermark and follower_end >= epoch_start


# ---- a change under way


class IsrChange(NamedTuple):
    """What the controller is asked for. It stands on an exact state: another epoch, and it is refused."""

    isr: tuple[BrokerId, ...]
    leader_epoch: LeaderEpoch
    partition_epoch: ZnodeVersion
    maximal_isr: tuple[BrokerId, ...]


def expansion(
    isr: tuple[BrokerId, ...], joining: BrokerId, leader_epoch: LeaderEpoch, epoch: ZnodeVersion
) -> IsrChange:
    wanted = (*isr, joining)
    return IsrChange(wanted, leader_epoch, epoch, wanted)


def shrinking(
    isr: tuple[BrokerId, ...],
    leaving: tuple[BrokerId, ...],
    leader_epoch: LeaderEpoch,
    epoch: ZnodeVersion,
) -> IsrChange:
    """Those to leave count until the controller has agreed: it may refuse, and then they lead."""
    return IsrChange(tuple(b for b in isr if b not in leaving), leader_epoch, epoch, isr)


class Outcome(Enum):
    """What becomes of a change when the controller has answered."""

    COMMIT = "commit"
    REVERT = "revert"
    """Refused for certain: the committed ISR is the true one."""
    STAY = "stay"
    """We know too little: the next LeaderAndIsr will tell."""
    RETRY = "retry"


REVERTED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
STAYING = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def outcome(code: int) -> Outcome:
    if code == ErrorCode.NONE:
        return Outcome.COMMIT
    if code in REVERTED:
        return Outcome.REVERT
    return Outcome.STAY if code in STAYING else Outcome.RETRY
