"""Progress of reassignments, and what they wait for."""

from __future__ import annotations

from barnabas.cli.reassign.copying import (
    LINES_MAX,
    CopyMeter,
    brokers_to_ask,
    measure_progress,
    progress_document,
    progress_table,
)
from barnabas.client.reassignment_admin import OngoingReassignment
from barnabas.client.view import BrokerView, ClusterView, PartitionView, TopicView
from barnabas.model import BrokerId
from tests.unit.reassignment.layouts import tp

MOVING = OngoingReassignment(replicas=(3, 2, 1), adding=(3,), removing=(1,))


def view(*alive: int, leader: int = 1, isr: tuple[int, ...] = (1, 2)) -> ClusterView:
    partition = PartitionView(
        partition=0, leader=BrokerId(leader), leader_epoch=0, replicas=(3, 2, 1), isr=isr
    )
    brokers = [BrokerView(id=BrokerId(each), host="localhost", port=9092) for each in alive]
    return ClusterView(
        brokers={each.id: each for each in brokers},
        topics={"a": TopicView(name="a", partitions=(partition,))},
    )


def waits_for(seen: ClusterView, moving: OngoingReassignment = MOVING) -> str:
    (progress,) = measure_progress(seen, {tp("a-0"): moving}, {})
    return progress.waiting_for


def test_bytes_of_new_replicas_are_measured_against_the_leader() -> None:
    logs = {(tp("a-0"), 1): 1000, (tp("a-0"), 3): 250}
    (progress,) = measure_progress(view(1, 2, 3), {tp("a-0"): MOVING}, logs)
    assert (progress.copied, progress.total) == (250, 1000)
    document = progress_document(progress)
    assert (document["from"], document["to"], document["lag_bytes"]) == ([2, 1], [3, 2], 750)
    assert progress_table([document]).split("\n")[1].split()[:3] == ["a-0", "2,1", "3,2"]


def test_only_live_leaders_and_new_replicas_are_asked() -> None:
    ongoing = {tp("a-0"): MOVING}
    assert brokers_to_ask(view(1, 2, 3), ongoing) == {1: [tp("a-0")], 3: [tp("a-0")]}
    assert brokers_to_ask(view(1, 2), ongoing) == {1: [tp("a-0")]}


def test_wait_is_explained() -> None:
    assert waits_for(view(1, 2, 3)) == "broker 3 to catch up"
    assert waits_for(view(1, 2)) == "broker 3, not alive"
    assert waits_for(view(1, 2, 3, leader=-1)) == "a leader: no in-sync replica is alive"
    assert waits_for(view(1, 2, 3, isr=(1, 2, 3))) == "the controller to remove broker 1"
    assert waits_for(ClusterView()) == "the topic is being deleted"


def test_meter_counts_later_batches_and_estimates_the_rest() -> None:
    logs = {(tp("a-0"), 1): 1_000_000, (tp("a-0"), 3): 500_000}
    progress = measure_progress(view(1, 2, 3), {tp("a-0"): MOVING}, logs)
    lines = CopyMeter(3_000_000, started=0.0).lines(progress, waiting=2_000_000, now=10.0)
    assert lines[0] == "a-0    ████████          500 KB of 1.0 MB  waits for broker 3 to catch up"
    assert lines[-1] == "total  ██▋               500 KB of 3.0 MB, 50 KB/s, 50 s left"


def test_meter_shows_a_limited_number_of_partitions() -> None:
    ongoing = {tp(f"a-{number}"): MOVING for number in range(LINES_MAX + 3)}
    lines = CopyMeter(0, 0.0).lines(measure_progress(view(1, 2, 3), ongoing, {}), 0, 1.0)
    assert len(lines) == LINES_MAX + 2
    assert lines[-2] == "… and 3 more partitions"
