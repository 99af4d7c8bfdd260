"""Changes of groups in the history, in both protocols."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest

from barnabas.groups import group_events
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.group import Group
from barnabas.groups.group_transition import JOIN_TIMER, SYNC_TIMER, Timer, TimerKind, session_timer
from barnabas.wire.messages.leave_group import MemberIdentity
from tests.unit.groups.test_consumer_coordinator import (
    ListStore,
    heartbeat,
    join,
    join_classic,
    make_coordinator,
    owned,
    sync_classic,
)
from tests.unit.history.coordinator_events import CoordinatorEventList


class EpochStore(ListStore):
    def coordinator_epoch(self, group_id: str) -> int:
        return 5


@pytest.fixture
async def coordinator() -> AsyncIterator[GroupCoordinator]:
    made = make_coordinator(EpochStore())
    yield made
    await made.stop()


@pytest.fixture
def found(coordinator: GroupCoordinator) -> CoordinatorEventList:
    made = CoordinatorEventList()
    coordinator.recorder = made.recorder
    return made


async def test_classic_group_from_join_to_deletion(
    coordinator: GroupCoordinator, found: CoordinatorEventList
) -> None:
    joined = await join_classic(coordinator)
    await sync_classic(coordinator, joined, 0, 1, 2, 3)
    member = joined.member_id
    coordinator.heartbeat("g", member, None, 1)
    coordinator.leave("g", [MemberIdentity(member, None, "closed")])
    coordinator.delete("g")
    assert found.facts("after", "protocol", "generation", "members", "why") == [
        ("rebalanced", "classic", 1, 1, f"member {member} joins"),
        ("empty", "classic", 2, 0, f"member {member} left: closed"),
        ("deleted", "classic", 2, 0, "a client requested it"),
    ]
    assert set(found.facts("group", "coordinator_epoch")) == {("g", 5)}


async def test_expired_session_of_a_classic_member(
    coordinator: GroupCoordinator, found: CoordinatorEventList
) -> None:
    joined = await join_classic(coordinator)
    await sync_classic(coordinator, joined)
    coordinator.expire_timer(coordinator.groups["g"], session_timer(joined.member_id))
    assert found.facts("after", "member", "client", "member_host", "why")[1:] == [
        (
            "member removed",
            joined.member_id,
            "client",
            "host",
            "its session expired after 10000 ms",
        ),
        (
            "empty",
            None,
            None,
            None,
            f"session of member {joined.member_id} expired after 10000 ms",
        ),
    ]


@pytest.mark.parametrize(
    ("timer", "why"),
    [
        (JOIN_TIMER, "it did not rejoin within the rebalance timeout"),
        (SYNC_TIMER, "it did not send SyncGroup within the rebalance timeout"),
    ],
)
async def test_classic_member_that_misses_a_rebalance(
    coordinator: GroupCoordinator, found: CoordinatorEventList, timer: Timer, why: str
) -> None:
    joined = await join_classic(coordinator)
    group = coordinator.groups["g"]
    assert isinstance(group, Group)
    if timer is JOIN_TIMER:
        await sync_classic(coordinator, joined)
        coordinator.restart_group(group, "a test")
    coordinator.apply(group, group_events.expire_timer, timer)
    if timer is SYNC_TIMER:
        assert found.facts("after", "member", "why")[0] == ("member removed", joined.member_id, why)
    else:
        assert ("member removed", joined.member_id, why) in found.facts("after", "member", "why")
    assert found.facts("after")[-1] == ("empty",)


async def test_consumer_group_records_the_end_of_a_rebalance(
    coordinator: GroupCoordinator, found: CoordinatorEventList
) -> None:
    await join(coordinator, "a")
    await join(coordinator, "b")
    await heartbeat(coordinator, "a", 1, topic_partitions=owned(0, 1, 2, 3))
    assert len(found.events) == 1
    await heartbeat(coordinator, "a", 1, topic_partitions=owned(0, 1))
    await heartbeat(coordinator, "b", 2, topic_partitions=())
    await heartbeat(coordinator, "b", 2, topic_partitions=owned(2, 3))
    assert found.facts("after", "protocol", "generation", "members", "why") == [
        ("rebalanced", "consumer", 1, 1, "member a (client at host) joins"),
        ("rebalanced", "consumer", 2, 2, "member b (client at host) joins"),
    ]


async def test_consumer_group_changes_its_topics_and_members(
    coordinator: GroupCoordinator, found: CoordinatorEventList
) -> None:
    await join(coordinator, "a")
    store = cast(EpochStore, coordinator.store)
    store.set_topic(6)
    await heartbeat(coordinator, "a", 1)
    await heartbeat(coordinator, "a", 2, subscribed_topic_names=("orders", "other"))
    coordinator.expire_timer(coordinator.groups["g"], session_timer("a"))
    await join(coordinator, "b")
    await heartbeat(coordinator, "b", -1)
    assert found.facts("after", "generation", "member", "why")[1:] == [
        ("rebalanced", 2, None, "partitions changed: orders"),
        ("rebalanced", 3, None, "member a changed its subscription"),
        ("member removed", 4, "a", "its session expired"),
        ("empty", 4, None, "member a was removed: its session expired"),
        ("rebalanced", 5, None, "member b (client at host) joins"),
        ("empty", 6, None, "member b left"),
    ]


async def test_member_that_keeps_revoked_partitions(
    coordinator: GroupCoordinator, found: CoordinatorEventList
) -> None:
    await join(coordinator, "a")
    await join(coordinator, "b")
    await heartbeat(coordinator, "a", 1)
    coordinator.expire_timer(coordinator.groups["g"], Timer(TimerKind.REBALANCE, "a"))
    await heartbeat(coordinator, "b", 2)
    why = "it did not release partitions within 60000 ms"
    assert found.facts("after", "member", "members", "why")[1:] == [
        ("member removed", "a", 1, why),
        ("rebalanced", None, 1, "member b (client at host) joins"),
    ]


async def test_migration_in_both_directions(
    coordinator: GroupCoordinator, found: CoordinatorEventList
) -> None:
    classic = await join_classic(coordinator)
    await sync_classic(coordinator, classic, 0, 1, 2, 3)
    await join(coordinator, "new")
    await heartbeat(coordinator, "new", -1)
    migrations = [event for event in found.events if event["after"] == "migrated"]
    assert [(event["protocol"], event["members"], event["why"]) for event in migrations] == [
        ("consumer", 2, "member new (client at host) joins"),
        ("classic", 1, "member new left"),
    ]


async def test_new_coordinator_records_groups_with_members(
    coordinator: GroupCoordinator, found: CoordinatorEventList
) -> None:
    await join(coordinator, "a")
    await join(coordinator, "b")
    store = cast(EpochStore, coordinator.store)
    (loaded,) = store.load()
    second = make_coordinator(store)
    second.recorder = found.recorder
    second.add_loaded_group(loaded, 0)
    second.add_loaded_group(Group(group_id="empty"), 0)
    await heartbeat(second, "a", 1, topic_partitions=owned(0, 1, 2, 3))
    await heartbeat(second, "a", 1, topic_partitions=owned(0, 1))
    await heartbeat(second, "b", 2, topic_partitions=())
    assert found.facts("after", "id", "why")[1:] == [
        ("loaded", "g", None),
        ("rebalanced", "g", "a new coordinator continues it"),
    ]
    await second.stop()
