"""Rules for consumer groups."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.group_admin import GroupView, MemberView
from barnabas.explain.facts import ClusterSettings, OpenTransactionFacts, Probe
from barnabas.explain.finding import Cause
from barnabas.explain.group_facts import GroupFacts, GroupProgress
from barnabas.explain.groups import explain_group
from barnabas.explain.text import cause_text, next_text
from barnabas.model import TopicPartition
from tests.unit.explain.facts_of import FIRST, NOW_MS, facts_of, partition

OFFSETS = TopicPartition("__consumer_offsets", 0)
LED = facts_of(partition(1, (1, 2), (1, 2)))


def member(name: str, *partitions: TopicPartition) -> MemberView:
    return MemberView(f"{name}-1", None, name, "10.0.0.7", partitions)


def group(state: str, *members: MemberView, **options: Any) -> GroupFacts:
    view = GroupView("billing", state, "consumer", "range", "h:1", members)
    return GroupFacts(group_id="billing", view=view, **{"cluster": LED, **options})


def progress(**values: Any) -> dict[TopicPartition, GroupProgress]:
    return {FIRST: GroupProgress(**values)}


READER = member("app", FIRST)


@pytest.mark.parametrize(
    ("facts", "causes"),
    [
        (group("Stable", READER, progress=progress(committed=5, start=0, end=5)), []),
        (group("Empty"), [Cause.GROUP_EMPTY]),
        (group("PreparingRebalance", READER), [Cause.GROUP_WAITS_FOR_MEMBERS]),
        (group("CompletingRebalance", READER), [Cause.GROUP_WAITS_FOR_ASSIGNMENT]),
        (
            group("Stable", READER, progress=progress(start=0, end=5)),
            [Cause.NEVER_COMMITTED],
        ),
        (
            group(
                *("Stable", READER),
                progress=progress(committed=1, later_committed=1, start=0, end=5),
            ),
            [Cause.NOT_COMMITTING],
        ),
        (
            group(
                *("Stable", READER),
                progress=progress(committed=1, later_committed=2, start=0, end=5),
            ),
            [Cause.LAGGING],
        ),
        (
            group(
                *("Stable", READER),
                progress=progress(
                    committed=1, later_committed=1, start=0, end=5, commit_ms=NOW_MS - 2000
                ),
            ),
            [Cause.LAGGING],
        ),
        # All uncommitted records are younger than ten seconds: the member keeps up.
        (
            group(
                *("Stable", READER),
                progress=progress(committed=1, later_committed=1, start=0, end=5, due=1),
            ),
            [],
        ),
        (
            group(
                *("Stable", READER),
                progress=progress(committed=1, later_committed=2, start=0, end=5, due=4),
            ),
            [Cause.LAGGING],
        ),
        (
            group(*("Stable", READER), progress=progress(start=0, end=5), state_ms=NOW_MS - 2000),
            [],
        ),
        (
            group("Stable", READER, progress=progress(committed=1, start=3, end=5)),
            [Cause.OFFSET_BELOW_START],
        ),
        (
            group("Stable", READER, progress=progress(committed=9, start=3, end=5)),
            [Cause.OFFSET_BEYOND_END],
        ),
        (
            group(
                *("Stable", READER),
                cluster=facts_of(partition(None, (2,), (2,)), alive=(1,)),
                progress=progress(committed=9),
            ),
            [Cause.READS_OFFLINE_PARTITION],
        ),
        (
            group(
                *("Stable", READER),
                cluster=facts_of(partition(2, (2,), (2,)), probes={2: Probe(is_responding=False)}),
                progress=progress(committed=9),
            ),
            [Cause.READS_FROM_SILENT_BROKER],
        ),
        (
            group("Stable", READER, cluster=facts_of(), progress=progress(committed=9)),
            [Cause.READS_DELETED_TOPIC],
        ),
        (group("Stable", member("a", FIRST), member("b")), [Cause.IDLE_MEMBERS]),
    ],
)
def test_group_cause(facts: GroupFacts, causes: list[Cause]) -> None:
    assert [each.cause for each in explain_group(facts)] == causes


def test_stuck_rebalance_names_members_of_last_generation() -> None:
    facts = group(
        *("PreparingRebalance", member("old"), member("new")),
        last_members=frozenset({"old-1"}),
        rebalance_timeout_ms=300_000,
    )
    (found,) = explain_group(facts)
    assert cause_text(found) == (
        "a rebalance waits for old at 10.0.0.7 to rejoin. A member that does not rejoin within 5 min is removed. "
        "Until then no member gets records"
    )


def without_coordinator(**options: Any) -> GroupFacts:
    values = {"group_id": "billing", "coordinator_error": "COORDINATOR_NOT_AVAILABLE", **options}
    return GroupFacts(**values)


def test_offline_coordinator_is_explained_by_its_partition() -> None:
    cluster = facts_of(partition(None, (2,), (2,)), alive=(1,), name="__consumer_offsets")
    found = explain_group(without_coordinator(cluster=cluster, offsets_partition=OFFSETS))
    assert [each.cause for each in found] == [Cause.COORDINATOR_OFFLINE, Cause.ALL_REPLICAS_DOWN]
    assert found[0].brokers == (2,)


def test_silent_coordinator() -> None:
    cluster = facts_of(
        partition(2, (2,), (2,)),
        name="__consumer_offsets",
        probes={2: Probe(is_responding=False)},
    )
    found = explain_group(without_coordinator(cluster=cluster, offsets_partition=OFFSETS))
    assert [(each.cause, each.brokers) for each in found] == [(Cause.COORDINATOR_SILENT, (2,))]


def test_loading_coordinator() -> None:
    found = explain_group(without_coordinator(cluster=LED, is_loading=True))
    assert [each.cause for each in found] == [Cause.COORDINATOR_LOADING]


def test_coordinator_that_rejects_the_request() -> None:
    cluster = facts_of(partition(1, (1,), (1,)), name="__consumer_offsets")
    found = explain_group(without_coordinator(cluster=cluster, offsets_partition=OFFSETS))
    assert cause_text(found[0]) == (
        "no broker coordinates the group: __consumer_offsets-0: COORDINATOR_NOT_AVAILABLE"
    )


def test_offsets_topic_that_cannot_be_created() -> None:
    cluster = facts_of(settings=ClusterSettings(offsets_replication_factor=4))
    found = explain_group(without_coordinator(cluster=cluster))
    assert [each.cause for each in found] == [
        Cause.COORDINATOR_OFFLINE,
        Cause.OFFSETS_TOPIC_IMPOSSIBLE,
    ]
    assert "__consumer_offsets does not exist" in cause_text(found[0])
    assert cause_text(found[1]).endswith("because only 3 brokers are registered")


def test_reset_names_only_the_partitions_that_are_out_of_range() -> None:
    (early,) = explain_group(
        group("Stable", READER, progress=progress(committed=1, start=3, end=5))
    )
    assert "`barnabas groups reset billing --topic orders:0 --to-earliest" in next_text(early)


# ---- transactions -----------------------------------------------------------------------------------------------

OPENED = OpenTransactionFacts(
    start_offset=3,
    waiting=2,
    producer_id=7,
    last_record_ms=NOW_MS,
    transactional_id="shop-1",
    state="Ongoing",
    start_ms=NOW_MS - 60_000,
)
HELD_BACK = facts_of(partition(1, (1, 2), (1, 2)), transactions={FIRST: OPENED})


@pytest.mark.parametrize(
    ("committed", "cause"), [(3, Cause.TRANSACTION_OPEN), (2, Cause.NOT_COMMITTING)]
)
def test_group_that_has_read_up_to_a_transaction_waits_for_it(committed: int, cause: Cause) -> None:
    values = progress(committed=committed, later_committed=committed, start=0, end=5)
    (found,) = explain_group(group("Stable", READER, progress=values, cluster=HELD_BACK))
    assert found.cause is cause


def test_markers_after_the_committed_offset_are_no_lag() -> None:
    read = {FIRST: GroupProgress(committed=4, later_committed=4, start=0, end=5, is_read=True)}
    assert explain_group(group("Stable", READER, progress=read)) == []
