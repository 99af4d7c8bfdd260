"""Reconciliation of a member with its target assignment."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.assignors import PartitionId
from barnabas.groups.consumer_group import ConsumerMember, MemberState
from barnabas.groups.consumer_records import Assignment
from barnabas.groups.reconciliation import reconcile
from tests.unit.groups.simulated_consumer_group import A, B, parts

MEMBER = ConsumerMember(member_id="m", epoch=3, previous_epoch=2, assigned={A: parts(0, 1)})


def step(
    member: ConsumerMember,
    target: Assignment,
    *,
    epoch: int = 5,
    owned: Assignment | None = None,
    taken: frozenset[PartitionId] = frozenset(),
) -> ConsumerMember:
    return reconcile(
        member,
        target_epoch=epoch,
        target=target,
        owned=owned,
        has_owner=lambda each: each in taken,
    )


def test_member_at_the_target_epoch_does_not_change() -> None:
    assert step(MEMBER, {A: parts(7)}, epoch=3) is MEMBER


def test_same_assignment_in_a_new_epoch() -> None:
    assert step(MEMBER, MEMBER.assigned) == replace(MEMBER, epoch=5, previous_epoch=3)


def test_free_partitions_are_assigned_at_once() -> None:
    after = step(MEMBER, {A: parts(0, 1, 2), B: parts(0)})
    assert after == replace(
        MEMBER, epoch=5, previous_epoch=3, assigned={A: parts(0, 1, 2), B: parts(0)}
    )


def test_partitions_of_others_are_waited_for() -> None:
    after = step(MEMBER, {A: parts(0, 1, 2), B: parts(0)}, taken=frozenset({(A, 2)}))
    assert after.state is MemberState.UNRELEASED_PARTITIONS
    assert (after.epoch, after.previous_epoch) == (5, 3)
    assert after.assigned == {A: parts(0, 1), B: parts(0)}
    waiting = step(after, {A: parts(0, 1, 2), B: parts(0)}, taken=frozenset({(A, 2)}))
    assert waiting.state is MemberState.UNRELEASED_PARTITIONS
    assert waiting.previous_epoch == 5
    assert step(waiting, {A: parts(0, 1, 2), B: parts(0)}, taken=frozenset({(A, 2)})) == waiting
    released = step(waiting, {A: parts(0, 1, 2), B: parts(0)})
    assert released.state is MemberState.STABLE
    assert released.assigned == {A: parts(0, 1, 2), B: parts(0)}


def test_member_that_gets_nothing_but_waits() -> None:
    member = ConsumerMember(member_id="m")
    after = step(member, {A: parts(0)}, owned={}, taken=frozenset({(A, 0)}))
    assert after.state is MemberState.UNRELEASED_PARTITIONS
    assert after.assigned == {}
    assert after.epoch == 5


@pytest.mark.parametrize("owned", [None, {A: parts(0, 1)}, {A: parts(1)}])
def test_revoked_partitions_keep_the_epoch(owned: Assignment | None) -> None:
    after = step(MEMBER, {A: parts(0), B: parts(0)}, owned=owned)
    assert after.state is MemberState.UNREVOKED_PARTITIONS
    assert after.epoch == 3
    assert after.assigned == {A: parts(0)}
    assert after.pending_revocation == {A: parts(1)}


def test_partition_that_the_member_no_longer_owns_needs_no_confirmation() -> None:
    after = step(MEMBER, {A: parts(0), B: parts(0)}, owned={A: parts(0)})
    assert after.state is MemberState.STABLE
    assert after.epoch == 5
    assert after.assigned == {A: parts(0), B: parts(0)}


@pytest.mark.parametrize("owned", [None, {A: parts(0, 1)}, {A: parts(1)}])
def test_unconfirmed_revocation_waits(owned: Assignment | None) -> None:
    revoking = step(MEMBER, {A: parts(0)}, owned=None)
    assert step(revoking, {A: parts(0)}, owned=owned) is revoking


@pytest.mark.parametrize("owned", [{}, {A: parts(0)}, {B: parts(1)}])
def test_confirmed_revocation_reaches_the_target_epoch(owned: Assignment) -> None:
    revoking = step(MEMBER, {A: parts(0), B: parts(0)}, owned=None)
    after = step(revoking, {A: parts(0), B: parts(0)}, owned=owned)
    assert after.state is MemberState.STABLE
    assert (after.epoch, after.previous_epoch) == (5, 3)
    assert after.assigned == {A: parts(0), B: parts(0)}
    assert after.pending_revocation == {}


def test_second_revocation_takes_an_epoch_in_between() -> None:
    revoking = step(MEMBER, {A: parts(0)}, owned=None)
    after = step(revoking, {B: parts(0)}, epoch=6, owned={A: parts(0)})
    assert after.state is MemberState.UNREVOKED_PARTITIONS
    assert (after.epoch, after.previous_epoch) == (4, 3)
    assert after.assigned == {}
    assert after.pending_revocation == {A: parts(0)}
    done = step(after, {B: parts(0)}, epoch=6, owned={})
    assert (done.state, done.epoch, done.assigned) == (MemberState.STABLE, 6, {B: parts(0)})


def test_revoked_partition_that_returns_to_the_target_is_released_first() -> None:
    revoking = step(MEMBER, {A: parts(0)}, owned=None)
    taken = frozenset({(A, 0), (A, 1)})
    after = step(revoking, {A: parts(0, 1)}, epoch=6, owned={A: parts(0)}, taken=taken)
    assert after.state is MemberState.UNRELEASED_PARTITIONS
    assert after.assigned == {A: parts(0)}
    assert step(after, {A: parts(0, 1)}, epoch=6).assigned == {A: parts(0, 1)}


def test_new_target_while_waiting_revokes_first() -> None:
    waiting = step(MEMBER, {A: parts(0, 1, 2)}, taken=frozenset({(A, 2)}))
    after = step(waiting, {A: parts(1, 2)}, epoch=6)
    assert after.state is MemberState.UNREVOKED_PARTITIONS
    assert after.epoch == 5
    assert after.pending_revocation == {A: parts(0)}


@pytest.mark.parametrize("owned", [None, {A: parts(0)}])
def test_unknown_state_is_fenced(owned: Assignment | None) -> None:
    with pytest.raises(ApiError) as caught:
        step(replace(MEMBER, state=MemberState.UNKNOWN), {}, owned=owned)
    assert caught.value.code is ErrorCode.FENCED_MEMBER_EPOCH


def test_unknown_state_without_owned_partitions_continues() -> None:
    after = step(replace(MEMBER, state=MemberState.UNKNOWN), {B: parts(0)}, owned={})
    assert (after.state, after.epoch, after.assigned) == (MemberState.STABLE, 5, {B: parts(0)})


def test_unknown_number_of_a_state_is_unknown() -> None:
    assert MemberState(9) is MemberState.UNKNOWN
