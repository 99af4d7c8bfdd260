"""Rules for partitions: each situation has one cause, and the brokers that are waited for."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.explain.facts import (
    ClusterFacts,
    ClusterSettings,
    LogDirFacts,
    OpenTransactionFacts,
    Probe,
    TopicSettings,
)
from barnabas.explain.finding import Cause, Finding, Severity
from barnabas.explain.history_facts import BrokerLoss, HistoryFacts
from barnabas.explain.text import cause_text, next_text
from barnabas.explain.topics import explain_topic
from barnabas.metadata.znodes import ReplicaAssignment
from barnabas.model import BrokerId
from tests.unit.explain.facts_of import FIRST, NOW_MS, facts_of, partition, registry_with

SILENT = Probe(is_responding=False, error="no response")
UP = Probe(is_responding=True)
FAILED_DIR = Probe(is_responding=True, log_dirs=(LogDirFacts(path="/d", is_failed=True),))
FULL_DIR = Probe(is_responding=True, log_dirs=(LogDirFacts(path="/d", usable_bytes=0),))
THROTTLED: dict[str, Any] = {
    "topic_settings": {"orders": TopicSettings(throttled_followers="0:2")},
    "settings": ClusterSettings(follower_rates={2: 1000}),
}
LEADER_THROTTLED: dict[str, Any] = {
    "topic_settings": {"orders": TopicSettings(throttled_leaders="0:1")},
    "settings": ClusterSettings(leader_rates={1: 1000}),
}
LOST = HistoryFacts(lost_brokers={2: BrokerLoss(NOW_MS, False)}, known_brokers=frozenset({1, 2}))
STOPPED = HistoryFacts(lost_brokers={2: BrokerLoss(NOW_MS, True)})
MOVE = {
    FIRST: ReplicaAssignment(
        replicas=(BrokerId(1), BrokerId(2)), adding=(BrokerId(2),), removing=(BrokerId(1),)
    )
}

IN_SYNC = partition(1, (1, 2), (1, 2))
SHRUNK = partition(1, (1, 2), (1,))
FAILED_REPLICA = partition(1, (1, 2), (1,), offline=(2,))
ONE_AND_THREE = (1, 3)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (facts_of(IN_SYNC), []),
        # no leader
        (
            facts_of(partition(None, (2, 1), (2,)), alive=(1,)),
            [(Cause.IN_SYNC_REPLICAS_DOWN, (2,))],
        ),
        (
            facts_of(partition(None, (2,), (2,)), alive=(1,)),
            [(Cause.ALL_REPLICAS_DOWN, (2,))],
        ),
        (
            facts_of(partition(None, (2, 3), (2, 3)), alive=(1,)),
            [(Cause.ALL_REPLICAS_DOWN, (2, 3))],
        ),
        (
            facts_of(partition(None, (2, 1), (2,), offline=(2,))),
            [(Cause.IN_SYNC_LOG_DIR_FAILED, (2,))],
        ),
        (
            facts_of(partition(None, (2, 1), (2,))),
            [(Cause.ELECTION_PENDING, (2,))],
        ),
        (
            facts_of(partition(None, (8, 9), (), epoch=-1)),
            [(Cause.NEVER_LED, (8, 9))],
        ),
        (
            facts_of(registry=registry_with({"orders": (8, 9)})),
            [(Cause.NEVER_LED, (8, 9))],
        ),
        (
            facts_of(IN_SYNC, probes={1: SILENT, 2: UP}),
            [(Cause.LEADER_SILENT, (1,))],
        ),
        # missing replicas
        (facts_of(SHRUNK, alive=ONE_AND_THREE), [(Cause.FOLLOWER_DOWN, (2,))]),
        (facts_of(SHRUNK, alive=ONE_AND_THREE, history=LOST), [(Cause.FOLLOWER_DOWN, (2,))]),
        (facts_of(SHRUNK, alive=ONE_AND_THREE, history=STOPPED), [(Cause.FOLLOWER_STOPPED, (2,))]),
        (
            facts_of(
                partition(1, (1, 9), (1,)), history=HistoryFacts(known_brokers=frozenset({1, 2}))
            ),
            [(Cause.FOLLOWER_NEVER_SEEN, (9,))],
        ),
        (facts_of(SHRUNK, history=STOPPED), [(Cause.FOLLOWER_SHUTTING_DOWN, (2,))]),
        (facts_of(SHRUNK, probes={2: SILENT}), [(Cause.FOLLOWER_SILENT, (2,))]),
        (facts_of(FAILED_REPLICA, probes={2: FAILED_DIR}), [(Cause.FOLLOWER_LOG_DIR_FAILED, (2,))]),
        (facts_of(SHRUNK, probes={2: FULL_DIR}), [(Cause.FOLLOWER_DISK_FULL, (2,))]),
        (
            facts_of(SHRUNK, ends={(FIRST, 1): 10, (FIRST, 2): 4}),
            [(Cause.FOLLOWER_LAGGING, (2,))],
        ),
        (
            facts_of(SHRUNK, ends={(FIRST, 1): 10, (FIRST, 2): 4}, **THROTTLED),
            [(Cause.FOLLOWER_THROTTLED, (2,))],
        ),
        (facts_of(SHRUNK, **LEADER_THROTTLED), [(Cause.FOLLOWER_THROTTLED, (2,))]),
        (
            facts_of(SHRUNK, ends={(FIRST, 1): 10, (FIRST, 2): 10}),
            [(Cause.ISR_CHANGE_PENDING, (2,))],
        ),
        (
            facts_of(partition(1, (1, 2, 3), (1,)), alive=(1,)),
            [(Cause.FOLLOWER_DOWN, (2, 3))],
        ),
        # min.insync.replicas
        (
            facts_of(
                SHRUNK,
                alive=ONE_AND_THREE,
                topic_settings={"orders": TopicSettings(min_insync_replicas=2)},
            ),
            [(Cause.BELOW_MIN_ISR, (2,)), (Cause.FOLLOWER_DOWN, (2,))],
        ),
        (
            facts_of(IN_SYNC, topic_settings={"orders": TopicSettings(min_insync_replicas=3)}),
            [(Cause.MIN_ISR_ABOVE_REPLICAS, ())],
        ),
        # preferred leaders
        (
            facts_of(partition(2, (1, 2), (2,)), ends={(FIRST, 2): 5, (FIRST, 1): 1}),
            [(Cause.FOLLOWER_LAGGING, (1,)), (Cause.PREFERRED_NOT_IN_SYNC, (1,))],
        ),
        (
            facts_of(partition(2, (1, 2), (1, 2))),
            [(Cause.PREFERRED_WAITS_FOR_CHECK, (1,))],
        ),
        (
            facts_of(
                partition(2, (1, 2), (1, 2)), settings=ClusterSettings(is_rebalance_enabled=False)
            ),
            [(Cause.PREFERRED_REBALANCE_DISABLED, (1,))],
        ),
        (
            facts_of(
                partition(2, (1, 2), (1, 2)),
                *(partition(1, (1, 2), (1, 2), number=number) for number in range(1, 10)),
            ),
            [(Cause.PREFERRED_BELOW_THRESHOLD, (1,))],
        ),
        # reassignments
        (facts_of(SHRUNK, reassignments=MOVE), [(Cause.MOVE_CATCHING_UP, (2,))]),
        (facts_of(SHRUNK, reassignments=MOVE, alive=(1,)), [(Cause.MOVE_TARGET_DOWN, (2,))]),
        (
            facts_of(SHRUNK, reassignments=MOVE, probes={2: SILENT}),
            [(Cause.MOVE_TARGET_SILENT, (2,))],
        ),
        (
            facts_of(FAILED_REPLICA, reassignments=MOVE, probes={2: FAILED_DIR}),
            [(Cause.MOVE_TARGET_LOG_DIR_FAILED, (2,))],
        ),
        (
            facts_of(SHRUNK, reassignments=MOVE, probes={2: FULL_DIR}, **THROTTLED),
            [(Cause.MOVE_TARGET_DISK_FULL, (2,))],
        ),
        (facts_of(SHRUNK, reassignments=MOVE, **THROTTLED), [(Cause.MOVE_THROTTLED, (2,))]),
        (facts_of(IN_SYNC, reassignments=MOVE), [(Cause.MOVE_FINISHING, ())]),
        # The broker that is replaced is down. It is not needed any more.
        (
            facts_of(partition(3, (2, 1, 3), (3,)), reassignments=MOVE, alive=(2, 3)),
            [(Cause.MOVE_CATCHING_UP, (2,))],
        ),
        (
            facts_of(
                IN_SYNC,
                registry=registry_with({}, requested_moves=frozenset({FIRST})),
            ),
            [(Cause.MOVE_REQUESTED, ())],
        ),
    ],
)
def test_cause_and_brokers(
    facts: ClusterFacts, expected: list[tuple[Cause, tuple[int, ...]]]
) -> None:
    found = explain_topic(facts, "orders")
    assert [(each.cause, each.brokers) for each in found] == expected


def only(findings: list[Finding]) -> Finding:
    (found,) = findings
    return found


def test_unclean_election_names_replica_end_and_time() -> None:
    facts = facts_of(
        partition(None, (2, 1), (2,)),
        alive=(1,),
        ends={(FIRST, 1): 5},
        history=HistoryFacts(
            no_leader_since={FIRST: NOW_MS - 1000}, not_in_sync_since={(FIRST, 1): NOW_MS - 5000}
        ),
    )
    found = only(explain_topic(facts, "orders"))
    assert found.values == {"unclean": 1, "unclean_end": 5, "unclean_since_ms": NOW_MS - 5000}
    assert found.since_ms == NOW_MS - 1000
    assert found.severity is Severity.ERROR


def test_lag_is_the_difference_to_the_leader() -> None:
    facts = facts_of(SHRUNK, ends={(FIRST, 1): 10, (FIRST, 2): 4})
    assert only(explain_topic(facts, "orders")).lag == 6


def test_time_of_missing_replica_is_from_the_history() -> None:
    history = HistoryFacts(not_in_sync_since={(FIRST, 2): NOW_MS - 7})
    facts = facts_of(SHRUNK, alive=ONE_AND_THREE, history=history)
    assert only(explain_topic(facts, "orders")).since_ms == NOW_MS - 7


def test_partitions_with_same_cause_are_merged() -> None:
    facts = facts_of(
        *(partition(1, (1, 2), (1,), number=number) for number in range(5)), alive=ONE_AND_THREE
    )
    found = only(explain_topic(facts, "orders"))
    assert [each.partition for each in found.partitions] == [0, 1, 2, 3, 4]


def test_throttle_needs_rate_and_replica() -> None:
    for options in (
        {"topic_settings": {"orders": TopicSettings(throttled_followers="0:2")}},
        {"settings": ClusterSettings(follower_rates={2: 1000})},
    ):
        facts = facts_of(SHRUNK, ends={(FIRST, 1): 10, (FIRST, 2): 4}, **options)
        assert only(explain_topic(facts, "orders")).cause is Cause.FOLLOWER_LAGGING


def test_wildcard_throttles_every_replica() -> None:
    facts = facts_of(
        SHRUNK,
        topic_settings={"orders": TopicSettings(throttled_followers="*")},
        settings=ClusterSettings(follower_rates={2: 1000}),
    )
    assert only(explain_topic(facts, "orders")).cause is Cause.FOLLOWER_THROTTLED


def test_throttle_names_all_limits_and_the_lowest_rate() -> None:
    facts = facts_of(
        SHRUNK,
        topic_settings={
            "orders": TopicSettings(throttled_followers="0:2", throttled_leaders="0:1")
        },
        settings=ClusterSettings(follower_rates={2: 1000}, leader_rates={1: 500}),
    )
    found = only(explain_topic(facts, "orders"))
    assert found.values == {"throttled_follower": 2, "throttled_leader": 1, "rate": 500}
    assert next_text(found) == (
        "wait, or remove the limit: `barnabas configs reset --broker 2 follower.replication.throttled.rate` and "
        "`barnabas configs reset --broker 1 leader.replication.throttled.rate`"
    )


MIN_ISR = {"orders": TopicSettings(min_insync_replicas=2)}


def test_next_step_of_rejected_writes_is_that_of_the_missing_replica() -> None:
    paused, *_ = explain_topic(
        facts_of(SHRUNK, topic_settings=MIN_ISR, probes={2: SILENT}), "orders"
    )
    assert paused.cause is Cause.BELOW_MIN_ISR
    assert next_text(paused).startswith("check the process of broker 2")
    mixed, *_ = explain_topic(
        facts_of(
            *(partition(1, (1, 2, 3), (1,)),),
            alive=(1, 2),
            topic_settings=MIN_ISR,
            probes={2: SILENT},
        ),
        "orders",
    )
    assert (
        next_text(mixed)
        == "`barnabas partitions explain orders-0` shows why each replica is missing"
    )


def test_partitions_with_the_same_missing_brokers_are_merged() -> None:
    facts = facts_of(
        partition(1, (1, 2, 3), (1,), number=0),
        partition(1, (1, 3, 2), (1,), number=1),
        alive=(1,),
        topic_settings=MIN_ISR,
    )
    causes = [each.cause for each in explain_topic(facts, "orders")]
    assert causes == [Cause.BELOW_MIN_ISR, Cause.FOLLOWER_DOWN]


def test_silent_leader_without_another_in_sync_replica_is_not_replaced() -> None:
    alone = only(explain_topic(facts_of(partition(2, (2,), (2,)), probes={2: SILENT}), "orders"))
    assert cause_text(alone).endswith("No other replica is in sync, so none can be elected")
    replaced = only(explain_topic(facts_of(IN_SYNC, probes={1: SILENT}), "orders"))
    assert cause_text(replaced).endswith(
        "Another replica is elected when its registry session expires"
    )


# ---- transactions -----------------------------------------------------------------------------------------------


def opened(ago_ms: int, state: str | None = "Ongoing") -> dict[str, Any]:
    """A transaction that began `ago_ms` ago. Without a state, no coordinator has it."""
    at_ms = NOW_MS - ago_ms
    if state is None:
        found = OpenTransactionFacts(
            start_offset=42, waiting=8, producer_id=1000, last_record_ms=at_ms
        )
    else:
        found = OpenTransactionFacts(
            start_offset=42,
            waiting=8,
            producer_id=1000,
            last_record_ms=NOW_MS,
            transactional_id="my shop",
            state=state,
            start_ms=at_ms,
            timeout_ms=60_000,
        )
    return {"transactions": {FIRST: found}}


@pytest.mark.parametrize(
    ("state", "cause", "severity", "text", "step"),
    [
        (
            "Ongoing",
            Cause.TRANSACTION_OPEN,
            Severity.NOTE,
            "the open transaction of my shop (producer 1000): 8 records wait",
            "aborts it after 1 min. `barnabas transactions abort 'my shop' -b h:1` aborts it now",
        ),
        (
            "PrepareCommit",
            Cause.TRANSACTION_ENDING,
            Severity.WARNING,
            "which is PrepareCommit: its coordinator has not written all markers: 8 records wait",
            "`barnabas transactions describe 'my shop' -b h:1`",
        ),
        (
            None,
            Cause.TRANSACTION_HANGING,
            Severity.WARNING,
            "a transaction of producer 1000 at offset 42 that no coordinator has",
            "`barnabas transactions abort --partition orders-0 --start-offset 42 -b h:1`",
        ),
    ],
)
def test_long_transactions_hold_back_consumers(
    state: str | None, cause: Cause, severity: Severity, text: str, step: str
) -> None:
    (found,) = explain_topic(facts_of(IN_SYNC, **opened(11_000, state)), "orders")
    assert (found.cause, found.severity, found.lag) == (cause, severity, 8)
    assert found.since_ms == NOW_MS - 11_000
    assert text in cause_text(found)
    assert step in next_text(found, " -b h:1")


@pytest.mark.parametrize("state", ["Ongoing", None])
def test_short_transactions_are_normal(state: str | None) -> None:
    assert explain_topic(facts_of(IN_SYNC, **opened(9_000, state)), "orders") == []
