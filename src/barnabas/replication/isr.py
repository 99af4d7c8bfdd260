"""In-sync replicas of a partition, and the high watermark that follows from them. Pure functions and state.

    log end offsets   1→12 (leader)  2→10  3→7          ISR {1,2,3}: high watermark 7          ISR {1,2}: 10

A follower reports its log end offset with each fetch. It is *caught up* if this is the leader's log end offset, or was
within the last replica.lag.time.max.ms. A follower that is not caught up leaves the ISR. A follower joins the ISR when
it has reached the high watermark and the start of the leader's epoch.

Only the controller changes the ISR. Between a proposal and its response either set may be current. The *maximal* ISR is
safe in both cases: it includes the replicas to be added and those to be removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from barnabas.errors import ErrorCode
from barnabas.model import BrokerId, LeaderEpoch, ZnodeVersion
from barnabas.wire.messages.control_plane import UNKNOWN_BROKER_EPOCH

UNKNOWN_OFFSET: Final = -1
LONG_AGO_MS: Final = float("-inf")


class FollowerSession(Protocol):
    """Fetch session of a follower.

    A request includes only partitions whose offset changed. For all others it confirms the last reported offset.
    """

    last_fetch_ms: float
    """Loop time of the last request."""

    def include_in_response(self, topic: str, topic_id: UUID, index: int) -> None:
        """Include the partition in the next response, since its high watermark or log start offset changed."""
        ...

    def recheck(self, topic: str, topic_id: UUID, index: int) -> None:
        """Process the partition with the next request, even if the request does not include it."""
        ...


class FollowerState:
    """State of one follower, as its leader knows it. Times are loop times in ms."""

    __slots__ = (
        "broker_epoch",
        "last_caught_up_ms",
        "last_fetch_ms",
        "leader_end_at_last_fetch",
        "log_end_offset",
        "log_start_offset",
        "session",
    )

    def __init__(self) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_ms = LONG_AGO_MS
        self.leader_end_at_last_fetch = UNKNOWN_OFFSET
        self.last_caught_up_ms = LONG_AGO_MS
        self.session: FollowerSession | None = None
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        """Broker epoch of the last fetch."""

    def begin_epoch(
        self, *, now_ms: float, leader_end: int, is_in_sync: bool, was_leading: bool
    ) -> None:
        """Reset for a new leader epoch. `was_leading`: this broker also led the previous one, so offsets stay valid."""
        self.last_caught_up_ms = now_ms if is_in_sync else LONG_AGO_MS
        # The follower must report its offset again: it may have restarted with fewer records.
        self.session = None
        if was_leading:
            self.leader_end_at_last_fetch = leader_end
            self.last_fetch_ms = now_ms if is_in_sync else LONG_AGO_MS
        else:
            self.log_end_offset = self.log_start_offset = UNKNOWN_OFFSET
            self.leader_end_at_last_fetch = UNKNOWN_OFFSET
            self.last_fetch_ms = LONG_AGO_MS

    def record_fetch(
        self,
        offset: int,
        log_start_offset: int,
        *,
        now_ms: float,
        leader_end: int,
        session: FollowerSession | None = None,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> None:
        """Record a fetch of `offset`: the follower has all records below it.

        `leader_end` is the leader's log end offset before the read. A follower that has reached the leader's end as of
        the previous fetch was caught up at that fetch. Without this rule, steady appends would keep it out of the ISR.
        """
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.leader_end_at_last_fetch = max(leader_end, self.leader_end_at_last_fetch)
        self.last_fetch_ms = now_ms
        self.session = session
        self.broker_epoch = broker_epoch

    def record_leader_append(self, previous_end: int) -> None:
        """Record an append. A follower at the previous end was caught up at the last request of its session."""
        if self.session is not None and self.log_end_offset == previous_end:
            self.last_fetch_ms = max(self.last_fetch_ms, self.session.last_fetch_ms)
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
    """Return the offset below which all relevant replicas have the records.

    A live follower that is caught up counts before it joins the ISR. Otherwise the high watermark of a leader without
    other in-sync replicas would always be ahead of the follower, which could never join.
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


def out_of_sync_replicas(
    leader: BrokerId,
    leader_end: int,
    isr: Iterable[BrokerId],
    followers: Followers,
    *,
    now_ms: float,
    lag_max_ms: float,
) -> tuple[BrokerId, ...]:
    """Return the replicas to remove from the ISR. A follower at the leader's end stays, even without recent fetches."""
    return tuple(
        broker
        for broker in isr
        if broker != leader
        and (
            broker not in followers
            or not followers[broker].is_caught_up(leader_end, now_ms=now_ms, lag_max_ms=lag_max_ms)
        )
    )


def can_join_isr(follower_end: int, *, high_watermark: int, epoch_start: int) -> bool:
    """Return whether a follower may join the ISR.

    It needs all records before the leader's epoch: some of them may be committed above the known high watermark.
    """
    return follower_end >= high_watermark and follower_end >= epoch_start


# ---- changes


class IsrChange(NamedTuple):
    """A proposed ISR, based on an exact leader epoch and partition epoch. The controller rejects it if they changed."""

    isr: tuple[BrokerId, ...]
    leader_epoch: LeaderEpoch
    partition_epoch: ZnodeVersion
    maximal_isr: tuple[BrokerId, ...]
    """Includes the replicas to remove: if the controller rejects the change, one of them may become leader."""


class IsrChangeOutcome(Enum):
    """Result of a proposed change after the response of the controller."""

    COMMIT = "commit"
    REVERT = "revert"
    """Rejected: the committed ISR is current."""
    STAY = "stay"
    """Unknown: the change stays pending until the next LeaderAndIsr."""
    RETRY = "retry"


REVERTING_ERRORS: Final = frozenset(
    {ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED}
)
PENDING_ERRORS: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def isr_change_outcome(code: int) -> IsrChangeOutcome:
    if code == ErrorCode.NONE:
        return IsrChangeOutcome.COMMIT
    if code in REVERTING_ERRORS:
        return IsrChangeOutcome.REVERT
    return IsrChangeOutcome.STAY if code in PENDING_ERRORS else IsrChangeOutcome.RETRY
