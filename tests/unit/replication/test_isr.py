"""Decisions about the ISR and the high watermark, from values alone."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import pytest

from barnabas.errors import ErrorCode
from barnabas.model import BrokerId
from barnabas.replication.isr import (
    FollowerState,
    IsrChangeOutcome,
    can_join_isr,
    isr_change_outcome,
    out_of_sync_replicas,
    replicated_end,
)

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
LAG_MS = 100.0


@dataclass
class FakeContact:
    last_fetch_ms: float

    def include_in_response(self, topic: str, topic_id: UUID, index: int) -> None:
        """Do nothing."""

    def recheck(self, topic: str, topic_id: UUID, index: int) -> None:
        """Do nothing."""


def follower(end: int, *, caught_up_ms: float = 0.0) -> FollowerState:
    state = FollowerState()
    state.log_end_offset = end
    state.last_caught_up_ms = caught_up_ms
    return state


def end_of(
    ends: dict[BrokerId, FollowerState], isr: tuple[BrokerId, ...], *, now_ms: float = 0.0
) -> int:
    return replicated_end(
        12, ends, isr, now_ms=now_ms, lag_max_ms=LAG_MS, is_alive=lambda broker: broker != 4
    )


def test_high_watermark_is_smallest_end_of_isr() -> None:
    ends = {TWO: follower(10), THREE: follower(7)}
    assert end_of(ends, (ONE, TWO, THREE), now_ms=1000) == 7
    assert end_of(ends, (ONE, TWO), now_ms=1000) == 10
    assert end_of(ends, (ONE,), now_ms=1000) == 12


def test_caught_up_follower_holds_high_watermark_before_joining_isr() -> None:
    ends = {TWO: follower(10)}
    assert end_of(ends, (ONE,), now_ms=LAG_MS) == 10
    assert end_of(ends, (ONE,), now_ms=LAG_MS + 1) == 12
    assert end_of({BrokerId(4): follower(10)}, (ONE,)) == 12, "a dead broker cannot join"


def test_unknown_follower_offset_counts_only_in_isr() -> None:
    assert end_of({TWO: FollowerState()}, (ONE,)) == 12
    assert end_of({TWO: FollowerState()}, (ONE, TWO)) == -1


def leaving_isr(*, end: int, caught_up_ms: float, now_ms: float) -> tuple[BrokerId, ...]:
    ends = {TWO: follower(end, caught_up_ms=caught_up_ms)}
    return out_of_sync_replicas(ONE, 12, (ONE, TWO), ends, now_ms=now_ms, lag_max_ms=LAG_MS)


def test_lagging_follower_leaves_isr() -> None:
    assert leaving_isr(end=10, caught_up_ms=0, now_ms=LAG_MS) == ()
    assert leaving_isr(end=10, caught_up_ms=0, now_ms=LAG_MS + 1) == (TWO,)


def test_caught_up_follower_stays_in_isr_while_silent() -> None:
    assert leaving_isr(end=12, caught_up_ms=0, now_ms=1_000_000) == ()


def test_unknown_isr_member_leaves() -> None:
    assert out_of_sync_replicas(ONE, 12, (ONE, TWO), {}, now_ms=0, lag_max_ms=LAG_MS) == (TWO,)


@pytest.mark.parametrize(
    ("end", "joins"), [(9, False), (10, True), (12, True)], ids=["below", "at", "above"]
)
def test_follower_joins_at_high_watermark_and_epoch_start(end: int, joins: bool) -> None:
    assert can_join_isr(end, high_watermark=10, epoch_start=5) is joins
    assert can_join_isr(end, high_watermark=5, epoch_start=10) is joins


# ---- catching up


def test_fetch_at_log_end_catches_up_now() -> None:
    state = FollowerState()
    state.record_fetch(12, 0, now_ms=50, leader_end=12)
    assert (state.log_end_offset, state.last_caught_up_ms) == (12, 50)


def test_fetch_at_previous_log_end_was_caught_up_then() -> None:
    """With steady appends a follower never reads the very end, but is still in sync."""
    state = FollowerState()
    state.record_fetch(10, 0, now_ms=50, leader_end=12)
    before = state.last_caught_up_ms
    state.record_fetch(11, 0, now_ms=60, leader_end=14)
    assert state.last_caught_up_ms == before, "11 is below the log end at 50 ms"
    state.record_fetch(14, 0, now_ms=70, leader_end=20)
    assert state.last_caught_up_ms == 60


def test_idle_follower_is_caught_up_as_of_last_fetch() -> None:
    state = FollowerState()
    contact = FakeContact(50)
    state.record_fetch(12, 0, now_ms=50, leader_end=12, session=contact)
    contact.last_fetch_ms = 900
    state.record_leader_append(12)
    assert state.last_caught_up_ms == 900
    contact.last_fetch_ms = 2000
    state.record_leader_append(13)
    assert state.last_caught_up_ms == 900, "it did not have offset 12 then"


def test_new_leader_trusts_only_the_isr() -> None:
    state = follower(12, caught_up_ms=7)
    state.begin_epoch(now_ms=100, leader_end=12, is_in_sync=True, was_leading=False)
    assert (state.log_end_offset, state.last_caught_up_ms) == (-1, 100)
    state.begin_epoch(now_ms=100, leader_end=12, is_in_sync=False, was_leading=False)
    assert not state.is_caught_up(12, now_ms=100, lag_max_ms=LAG_MS)


def test_continuing_leader_keeps_follower_offsets() -> None:
    state = follower(12)
    state.begin_epoch(now_ms=100, leader_end=12, is_in_sync=True, was_leading=True)
    assert (state.log_end_offset, state.last_caught_up_ms) == (12, 100)


# ---- ISR changes


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NONE, IsrChangeOutcome.COMMIT),
        (ErrorCode.INELIGIBLE_REPLICA, IsrChangeOutcome.REVERT),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, IsrChangeOutcome.REVERT),
        (ErrorCode.FENCED_LEADER_EPOCH, IsrChangeOutcome.STAY),
        (ErrorCode.INVALID_UPDATE_VERSION, IsrChangeOutcome.STAY),
        (ErrorCode.INVALID_REQUEST, IsrChangeOutcome.STAY),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, IsrChangeOutcome.STAY),
        (ErrorCode.UNKNOWN_TOPIC_ID, IsrChangeOutcome.STAY),
        (ErrorCode.NOT_CONTROLLER, IsrChangeOutcome.RETRY),
        (ErrorCode.UNKNOWN_SERVER_ERROR, IsrChangeOutcome.RETRY),
    ],
)
def test_outcome_of_alter_partition_errors(code: ErrorCode, expected: IsrChangeOutcome) -> None:
    assert isr_change_outcome(code) is expected


@pytest.mark.parametrize("was_leading", [True, False])
def test_new_epoch_forgets_contact_of_followers(was_leading: bool) -> None:
    """A follower may have restarted with a shorter log: admitting it on old data could lose
    records.
    """
    state = FollowerState()
    state.record_fetch(12, 0, now_ms=50, leader_end=12, session=FakeContact(50), broker_epoch=7)
    assert state.session is not None
    assert state.broker_epoch == 7
    state.begin_epoch(now_ms=60, leader_end=12, is_in_sync=False, was_leading=was_leading)
    assert state.session is None
