"""Reconciliation: moves one member of the new consumer protocol towards its target assignment.

                          confirmed, nothing else to revoke
    STABLE ──► UNREVOKED_PARTITIONS ──► UNRELEASED_PARTITIONS ──► STABLE
       └────────────────────────────────────►┘      other owners have released everything

1. Partitions that are not in the target are revoked. The member keeps its epoch until it confirms that it has released
   them: a heartbeat whose owned partitions contain none of them.
2. Then the member gets the target epoch, and all target partitions that no member owns. Those with an owner follow at
   later heartbeats.

So a partition never has two owners, and a member with unaffected partitions never stops to consume them.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from msgspec.structs import replace

from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.assignors import PartitionId
from barnabas.groups.consumer_group import ConsumerMember, MemberState
from barnabas.groups.consumer_records import NO_PARTITIONS, Assignment


def reconcile(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    has_owner: Callable[[PartitionId], bool],
) -> ConsumerMember:
    """Return the member after one step.

    `owned` are the partitions that the member reports, or None if it reports none this time. `has_owner` tells whether
    a member of the group, also this one, owns a partition. Raises ApiError with FENCED_MEMBER_EPOCH for a member in an
    unknown state.
    """
    if member.is_reconciled_to(target_epoch):
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if owns_any(owned, member.pending_revocation):
            return member
        return advance(member, member.epoch + 1, target_epoch, target, owned, has_owner)
    if member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise ApiError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "the state of the member is unknown; it must release all partitions and rejoin",
            )
        return advance(member, target_epoch, target_epoch, target, owned, has_owner)
    return advance(member, member.epoch, target_epoch, target, owned, has_owner)


def advance(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    has_owner: Callable[[PartitionId], bool],
) -> ConsumerMember:
    """Revoke the partitions that are not in the target, or else assign those that are free.

    `epoch` is the epoch of the member while it revokes partitions.
    """
    kept = intersect(member.assigned, target)
    revoked = subtract(member.assigned, kept)
    if revoked and owns_any(owned, revoked):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=kept,
            pending_revocation=revoked,
        )
    missing = subtract(target, kept)
    free = {
        topic_id: found
        for topic_id, partitions in missing.items()
        if (found := frozenset(each for each in partitions if not has_owner((topic_id, each))))
    }
    return replace(
        member,
        state=MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        assigned=unite(kept, free),
        pending_revocation=NO_PARTITIONS,
    )


def owns_any(owned: Assignment | None, revoked: Assignment) -> bool:
    """Return whether the member still owns a revoked partition. A member that reports nothing may own all."""
    if owned is None:
        return True
    return any(
        not partitions.isdisjoint(owned.get(each, ())) for each, partitions in revoked.items()
    )


# ---- operations on assignments; the results have no empty sets


def intersect(first: Assignment, second: Assignment) -> dict[UUID, frozenset[int]]:
    return {
        topic_id: common
        for topic_id, partitions in first.items()
        if (common := partitions & second.get(topic_id, frozenset()))
    }


def subtract(first: Assignment, second: Assignment) -> dict[UUID, frozenset[int]]:
    return {
        topic_id: rest
        for topic_id, partitions in first.items()
        if (rest := partitions - second.get(topic_id, frozenset()))
    }


def unite(first: Assignment, second: Assignment) -> dict[UUID, frozenset[int]]:
    return {
        topic_id: first.get(topic_id, frozenset()) | second.get(topic_id, frozenset())
        for topic_id in {**first, **second}
    }


def is_subset(first: Assignment, second: Assignment) -> bool:
    return not subtract(first, second)
