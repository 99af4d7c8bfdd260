"""Leader election by strategy."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.elections import (
    Election,
    elect_for_controlled_shutdown,
    elect_for_reassignment,
    elect_offline,
    elect_preferred,
)
from barnabas.model import BrokerId
from tests.unit.controller.cluster import ids


def test_offline_elects_first_assigned_online_in_sync_replica() -> None:
    chosen = elect_offline(ids(1, 2, 3), ids(3, 2, 1), ids(2, 3), unclean_allowed=False)
    assert chosen == Election(leader=BrokerId(2), isr=ids(3, 2), recipients=ids(2, 3))


def test_offline_notifies_online_replicas_out_of_sync() -> None:
    chosen = elect_offline(ids(1, 2, 3), ids(1, 3), ids(2, 3), unclean_allowed=False)
    assert chosen == Election(leader=BrokerId(3), isr=ids(3), recipients=ids(2, 3))


def test_offline_elects_out_of_sync_replica_only_if_unclean_allowed() -> None:
    assert elect_offline(ids(1, 2, 3), ids(1), ids(3, 2), unclean_allowed=False) is None
    chosen = elect_offline(ids(1, 2, 3), ids(1), ids(3, 2), unclean_allowed=True)
    assert chosen == Election(leader=BrokerId(2), isr=ids(2), recipients=ids(2, 3), is_unclean=True)


def test_offline_prefers_clean_election() -> None:
    chosen = elect_offline(ids(1, 2, 3), ids(3), ids(2, 3), unclean_allowed=True)
    assert chosen == Election(leader=BrokerId(3), isr=ids(3), recipients=ids(2, 3))


def test_offline_elects_none_without_online_replica() -> None:
    assert elect_offline(ids(1, 2), ids(1, 2), ids(), unclean_allowed=True) is None


def test_reassign_elects_first_in_sync_target_and_keeps_isr() -> None:
    chosen = elect_for_reassignment(ids(4, 5, 6), ids(1, 2, 5, 6), ids(1, 4, 5, 6))
    assert chosen == Election(leader=BrokerId(5), isr=ids(1, 2, 5, 6), recipients=ids(4, 5, 6))
    assert elect_for_reassignment(ids(4, 5), ids(1, 4), ids(1, 5)) is None


def test_preferred_elects_first_replica_or_none() -> None:
    chosen = elect_preferred(ids(1, 2, 3), ids(3, 1), ids(1, 3))
    assert chosen == Election(leader=BrokerId(1), isr=ids(3, 1), recipients=ids(1, 2, 3))
    assert elect_preferred(ids(1, 2, 3), ids(2, 3), ids(1, 2, 3)) is None
    assert elect_preferred(ids(1, 2, 3), ids(1, 2, 3), ids(2, 3)) is None
    assert elect_preferred((), ids(1), ids(1)) is None


def test_controlled_shutdown_skips_leaving_brokers_and_shrinks_isr() -> None:
    chosen = elect_for_controlled_shutdown(ids(1, 2, 3), ids(1, 2, 3), ids(1, 2, 3), ids(1, 2))
    assert chosen == Election(leader=BrokerId(3), isr=ids(3), recipients=ids(1, 2, 3))


def test_controlled_shutdown_notifies_registered_replicas_only() -> None:
    chosen = elect_for_controlled_shutdown(ids(1, 2, 3), ids(1, 2), ids(1, 2), ids(1))
    assert chosen == Election(leader=BrokerId(2), isr=ids(2), recipients=ids(1, 2))


def test_controlled_shutdown_elects_none_without_other_in_sync_replica() -> None:
    all_brokers = ids(1, 2, 3)
    assert elect_for_controlled_shutdown(all_brokers, ids(1), all_brokers, ids(1)) is None


brokers = st.lists(st.integers(1, 6).map(BrokerId), unique=True, max_size=6).map(tuple)


@given(brokers, brokers, brokers, brokers, st.booleans())
def test_elected_leader_is_assigned_online_and_in_isr(
    assigned: tuple[BrokerId, ...],
    isr: tuple[BrokerId, ...],
    online: tuple[BrokerId, ...],
    leaving: tuple[BrokerId, ...],
    unclean: bool,
) -> None:
    for chosen in (
        elect_offline(assigned, isr, online, unclean_allowed=unclean),
        elect_for_reassignment(assigned, isr, online),
        elect_preferred(assigned, isr, online),
        elect_for_controlled_shutdown(assigned, isr, online, leaving),
    ):
        if chosen is not None:
            assert chosen.leader in assigned
            assert chosen.leader in online
            assert chosen.leader in chosen.isr
            assert chosen.leader in chosen.recipients
            assert chosen.is_unclean == (chosen.leader not in isr)
            assert chosen.is_unclean or set(chosen.isr) <= set(isr)
    assert elect_offline(assigned, isr, online, unclean_allowed=True) is not None or not (
        set(assigned) & set(online)
    )
