"""Facts from events: since when, and why."""

from __future__ import annotations

import json
from typing import Any

from barnabas.explain.history_facts import (
    BrokerLoss,
    HistoryFacts,
    RequestedDeletion,
    summarize_history,
)
from barnabas.history.event import AnyEvent, read_event
from tests.unit.explain.facts_of import FIRST

BASE_MS = 1_777_622_400_000


def event(sequence: int, what: str, **fields: Any) -> AnyEvent:
    """An event `sequence` seconds after 2026-05-01 08:00:00."""
    content = {
        "what": what,
        "at": f"2026-05-01T08:00:{sequence:02d}.000Z",
        "broker": 1,
        "epoch": 1,
        "sequence": sequence,
        "cause": "BrokersChanged#1",
        "result": "done",
        "id": "x",
        **fields,
    }
    found = read_event(json.dumps(content).encode())
    assert found is not None, content
    return found


def online(sequence: int, leader: int, isr: list[int], **fields: Any) -> AnyEvent:
    change = {"before": "OnlinePartition", "after": "OnlinePartition", **fields}
    return event(
        *(sequence, "partition"),
        **{
            "topic": "orders",
            "partition": 0,
            "leader": leader,
            "leader_epoch": 1,
            "isr": isr,
            **change,
        },
    )


def offline(sequence: int) -> AnyEvent:
    change = {"before": "OnlinePartition", "after": "OfflinePartition"}
    return event(sequence, "partition", topic="orders", partition=0, **change)


def replica(sequence: int, broker: int, after: str, **fields: Any) -> AnyEvent:
    change = {"replica": broker, "before": "OnlineReplica", "after": after, **fields}
    return event(sequence, "replica", topic="orders", partition=0, **change)


def summarize(*events: AnyEvent) -> HistoryFacts:
    return summarize_history(events)


def test_time_without_leader_starts_with_the_first_offline_event() -> None:
    facts = summarize(online(1, 2, [2]), offline(5), offline(7))
    assert facts.no_leader_since == {FIRST: BASE_MS + 5000}
    assert summarize(offline(5), online(9, 1, [1])).no_leader_since == {}


def test_time_out_of_sync_starts_when_the_replica_leaves_the_isr() -> None:
    facts = summarize(online(1, 1, [1, 2]), online(4, 1, [1]), online(6, 1, [1]))
    assert facts.not_in_sync_since == {(FIRST, 2): BASE_MS + 4000}
    back = summarize(online(1, 1, [1, 2]), online(4, 1, [1]), online(6, 1, [1, 2]))
    assert back.not_in_sync_since == {}
    assert facts.known_brokers == {1, 2}


def test_crash_and_shutdown_are_told_apart() -> None:
    crash = summarize(replica(3, 2, "OfflineReplica"))
    assert crash.lost_brokers == {2: BrokerLoss(BASE_MS + 3000, False)}
    shutdown = replica(3, 2, "OfflineReplica", cause="ControlledShutdownReceived#4")
    stopped = summarize(shutdown, replica(5, 2, "OfflineReplica"))
    assert stopped.lost_brokers == {2: BrokerLoss(BASE_MS + 3000, True)}
    assert summarize(shutdown, replica(7, 2, "OnlineReplica")).lost_brokers == {}


def test_failed_transitions_are_ignored() -> None:
    failed = replica(3, 2, "OfflineReplica", result="failed", why="illegal")
    assert summarize(failed).lost_brokers == {}


def test_pending_deletion_names_request_and_brokers() -> None:
    marked = event(
        2,
        "topic",
        topic="orders",
        after="marked for deletion",
        by="app",
        host="h",
        cause="DeleteTopics",
    )
    facts = summarize(
        marked,
        replica(3, 1, "ReplicaDeletionStarted"),
        replica(4, 1, "ReplicaDeletionSuccessful"),
        replica(4, 2, "ReplicaDeletionIneligible"),
    )
    assert facts.deletions == {"orders": RequestedDeletion(BASE_MS + 2000, "app", (2,))}
    done = summarize(
        marked,
        replica(3, 1, "ReplicaDeletionStarted"),
        replica(4, 1, "ReplicaDeletionSuccessful"),
        replica(5, 1, "NonExistentReplica"),
    )
    assert done.deletions == {}


def test_created_topic_is_not_being_deleted() -> None:
    marked = event(2, "topic", topic="orders", after="marked for deletion", by="app", host="h")
    created = event(9, "topic", topic="orders", after="created", by="app", host="h")
    assert summarize(marked, created).deletions == {}


def test_replica_removed_by_a_reassignment_is_not_a_lost_broker_or_a_deletion() -> None:
    moved = [
        replica(3, 1, "OfflineReplica", cause="ReassignmentsProgressed#7"),
        replica(3, 1, "ReplicaDeletionStarted", cause="ReassignmentsProgressed#7"),
        replica(3, 1, "NonExistentReplica", cause="ReassignmentsProgressed#7"),
    ]
    assert summarize(*moved).lost_brokers == {}
    stopped = summarize(*moved, replica(5, 2, "OfflineReplica", cause="ControlledShutdownReceived"))
    assert stopped.lost_brokers == {2: BrokerLoss(BASE_MS + 5000, True)}
    marked = event(6, "topic", topic="orders", after="marked for deletion", by="app", host="h")
    assert summarize(*moved, marked).deletions == {
        "orders": RequestedDeletion(BASE_MS + 6000, "app")
    }


def test_failed_log_directory_is_not_a_lost_broker() -> None:
    assert summarize(replica(3, 2, "OfflineReplica", cause="LogDirFailed#3")).lost_brokers == {}
