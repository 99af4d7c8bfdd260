"""Diagnosis of partitions that are offline or under-replicated."""

from __future__ import annotations

import pytest

from barnabas.cli.topics.health import diagnose, name_brokers, suggest_next_step
from barnabas.client.view import PartitionView
from barnabas.model import NO_LEADER, BrokerId


def partition(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionView:
    return PartitionView(
        partition=0, leader=BrokerId(leader), leader_epoch=1, replicas=replicas, isr=isr
    )


@pytest.mark.parametrize(
    ("found", "alive", "diagnosis"),
    [
        (partition(1, (1, 2), (1, 2)), {1, 2}, None),
        (partition(1, (1, 2), (1,)), {1}, "broker 2 is not alive"),
        (partition(1, (1, 2, 3), (1,)), {1}, "brokers 2 and 3 are not alive"),
        (
            partition(1, (1, 2), (1,)),
            {1, 2},
            "broker 2 is alive and catching up with the leader",
        ),
        (
            partition(1, (1, 2, 3), (1,)),
            {1, 3},
            "broker 2 is not alive; broker 3 is alive and catching up with the leader",
        ),
        (
            partition(NO_LEADER, (1, 2), (2,)),
            {1},
            "no leader: the only in-sync replica, on broker 2, is not alive",
        ),
        (
            partition(NO_LEADER, (1, 2), (1, 2)),
            set(),
            "no leader: none of the in-sync replicas, on brokers 1 and 2, is alive",
        ),
        (
            partition(NO_LEADER, (1, 2), (2,)),
            {1, 2},
            "no leader: broker 2 is in sync and alive; the controller has not elected a leader yet",
        ),
        (partition(NO_LEADER, (1,), ()), {1}, "no leader: no replica is in sync"),
    ],
)
def test_diagnosis_names_the_reason(
    found: PartitionView, alive: set[int], diagnosis: str | None
) -> None:
    assert diagnose(found, alive) == diagnosis


def test_diagnosis_reports_rejected_writes() -> None:
    found = partition(1, (1, 2, 3), (1,))
    diagnosis = diagnose(found, {1}, min_insync_replicas=2)
    assert diagnosis is not None
    assert diagnosis.endswith(
        "writes with acks=all are rejected (1 in sync, min.insync.replicas=2)"
    )
    assert "refused" not in (diagnose(found, {1}, min_insync_replicas=1) or "")


def test_next_step_addresses_worst_problem() -> None:
    lagging, gone = partition(1, (1, 2), (1,)), partition(1, (1, 3), (1,))
    offline = partition(NO_LEADER, (3, 1), (3,))
    assert suggest_next_step("orders", [lagging], {1, 2}) == (
        "`barnabas topics history orders` shows what happened"
    )
    assert (
        suggest_next_step("orders", [lagging, gone], {1, 2})
        == "`barnabas brokers list` shows the live brokers"
    )
    assert suggest_next_step("orders", [lagging, gone, offline], {1, 2}).startswith(
        "restart broker 3"
    )


def test_next_step_without_in_sync_replica_shows_the_history() -> None:
    empty = partition(NO_LEADER, (1,), ())
    assert "history orders" in suggest_next_step("orders", [empty], {1})


def test_next_step_keeps_connection_options() -> None:
    offline = partition(NO_LEADER, (3, 1), (3,))
    assert "`barnabas brokers list -b b:1`" in suggest_next_step(
        "orders", [offline], {1}, " -b b:1"
    )


def test_broker_list_is_joined_with_and() -> None:
    assert name_brokers([1]) == "broker 1"
    assert name_brokers([1, 2]) == "brokers 1 and 2"
    assert name_brokers([1, 2, 3]) == "brokers 1, 2 and 3"
