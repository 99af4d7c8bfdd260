"""Leader election strategies: pure functions of the assignment, the ISR and the online brokers.

All strategies try the replicas in assignment order, not in ISR order. So the first assigned replica is the preferred
leader. The elect functions return None if no replica is eligible. The caller writes the result with the next leader
epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum, unique

from msgspec import Struct

from barnabas.model import BrokerId


@unique
class Strategy(StrEnum):
    """How a new leader is chosen."""

    OFFLINE = "Offline"
    """The leader is offline. A replica outside the ISR is elected only if the topic allows unclean elections."""
    OFFLINE_UNCLEAN = "OfflineUnclean"
    """Like OFFLINE, but unclean elections are always allowed: an administrator requested the election."""
    REASSIGN = "Reassign"
    """The partition is reassigned and its leader is not among the target replicas."""
    PREFERRED = "Preferred"
    """Leadership returns to the first assigned replica."""
    CONTROLLED_SHUTDOWN = "ControlledShutdown"
    """The leader is shutting down."""


class Election(Struct, frozen=True, kw_only=True):
    """Result of an election: the leader, its initial ISR, and the brokers that get LeaderAndIsr."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]
    recipients: tuple[BrokerId, ...]
    is_unclean: bool = False


def elect_offline(
    assigned: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    online: Collection[BrokerId],
    *,
    unclean_allowed: bool,
) -> Election | None:
    """Elect an online replica. Assigned 1,2,3, ISR 1,2, broker 1 offline: leader 2, ISR 2, recipients 2,3."""
    recipients = tuple(broker for broker in assigned if broker in online)
    for broker in recipients:
        if broker in isr:
            kept = tuple(member for member in isr if member in online)
            return Election(leader=broker, isr=kept, recipients=recipients)
    if unclean_allowed and recipients:
        leader = recipients[0]
        return Election(leader=leader, isr=(leader,), recipients=recipients, is_unclean=True)
    return None


def elect_for_reassignment(
    target: Sequence[BrokerId], isr: Sequence[BrokerId], online: Collection[BrokerId]
) -> Election | None:
    """Elect a target replica. The ISR does not change: replicas to be removed leave it later, one by one."""
    for broker in target:
        if broker in online and broker in isr:
            return Election(leader=broker, isr=tuple(isr), recipients=tuple(target))
    return None


def elect_preferred(
    assigned: Sequence[BrokerId], isr: Sequence[BrokerId], online: Collection[BrokerId]
) -> Election | None:
    """Elect the first assigned replica, if it is online and in the ISR."""
    if assigned and assigned[0] in online and assigned[0] in isr:
        return Election(leader=assigned[0], isr=tuple(isr), recipients=tuple(assigned))
    return None


def elect_for_controlled_shutdown(
    assigned: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    registered: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
) -> Election | None:
    """Elect a replica that is not shutting down.

    `registered` includes brokers that are shutting down. They get LeaderAndIsr too, but cannot be elected.
    """
    recipients = tuple(broker for broker in assigned if broker in registered)
    for broker in recipients:
        if broker in isr and broker not in shutting_down:
            kept = tuple(member for member in isr if member not in shutting_down)
            return Election(leader=broker, isr=kept, recipients=recipients)
    return None
