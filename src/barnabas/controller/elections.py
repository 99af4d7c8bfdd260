"""Who leads: five strategies, each a pure function of the assignment, the ISR and who is online.

All of them walk the replicas in the order they were assigned. That order, not the order of the ISR, is what makes the
first replica the preferred one. What they return is the whole outcome: the leader, the ISR it starts with, whether it
must recover first, and which brokers are told of it directly. The epoch is not theirs: whoever writes raises it by one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum, unique

from msgspec import Struct

from barnabas.model import BrokerId


@unique
class Strategy(StrEnum):
    """How the new leader is chosen."""

    OFFLINE = "Offline"
    """The leader is gone. Out of sync only where the topic allows unclean elections."""
    OFFLINE_UNCLEAN = "OfflineUnclean"
    """The same, whatever the topic says: an administrator asked for it."""
    REASSIGN = "Reassign"
    """The partition moves to other brokers and the leader is not one of them."""
    PREFERRED = "Preferred"
    """Leadership goes back to the first of the assigned replicas."""
    CONTROLLED_SHUTDOWN = "ControlledShutdown"
    """The leader is about to leave."""


class Election(Struct, frozen=True, kw_only=True):
    leader: BrokerId
    isr: tuple[BrokerId, ...]
    recipients: tuple[BrokerId, ...]
    unclean: bool = False


def elect_offline(
    assigned: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    online: Collection[BrokerId],
    *,
    unclean_allowed: bool,
) -> Election | None:
    """Assigned 1,2,3, ISR 1,2, broker 1 gone: 2 leads with ISR 2, and 2 and 3 are told."""
    recipients = tuple(broker for broker in assigned if broker in online)
    for broker in recipients:
        if broker in isr:
            kept = tuple(member for member in isr if member in online)
            return Election(leader=broker, isr=kept, recipients=recipients)
    if unclean_allowed and recipients:
        leader = recipients[0]
        return Election(leader=leader, isr=(leader,), recipients=recipients, unclean=True)
    return None


def elect_for_reassignment(
    target: Sequence[BrokerId], isr: Sequence[BrokerId], online: Collection[BrokerId]
) -> Election | None:
    """The ISR stays: the replicas that are leaving are taken out of it afterwards, one by one."""
    for broker in target:
        if broker in online and broker in isr:
            return Election(leader=broker, isr=tuple(isr), recipients=tuple(target))
    return None


def elect_preferred(
    assigned: Sequence[BrokerId], isr: Sequence[BrokerId], online: Collection[BrokerId]
) -> Election | None:
    if assigned and assigned[0] in online and assigned[0] in isr:
        return Election(leader=assigned[0], isr=tuple(isr), recipients=tuple(assigned))
    return None


def elect_for_controlled_shutdown(
    assigned: Sequence[BrokerId],
    isr: Sequence[BrokerId],
    registered: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
) -> Election | None:
    """`registered` counts brokers that are shutting down: they still serve, and are told; they only cannot win."""
    recipients = tuple(broker for broker in assigned if broker in registered)
    for broker in recipients:
        if broker in isr and broker not in shutting_down:
            kept = tuple(member for member in isr if member not in shutting_down)
            return Election(leader=broker, isr=kept, recipients=recipients)
    return None
