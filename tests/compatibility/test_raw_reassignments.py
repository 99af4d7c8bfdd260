"""AlterPartitionReassignments and ListPartitionReassignments as administrators send them, and the errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopic,
    OngoingPartitionReassignment,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support.waiting import eventually
from tests.compatibility.raw import Raw

Replicas = tuple[int, ...]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Three brokers. Broker 2 is killed and started by some tests; broker 3 is the controller."""
    with LocalCluster(brokers=3, settings={"auto.leader.rebalance.enable": "false"}) as running:
        while running.controller_id != 3:
            controller = running.controller_id
            assert controller is not None
            running.brokers[controller].kill()
            running.brokers[controller].start()
        yield running


@pytest.fixture
def raw(cluster: LocalCluster) -> Iterator[Raw]:
    with Raw(cluster.brokers[3].address) as connection:
        yield connection


@pytest.fixture
def dead(cluster: LocalCluster) -> Iterator[int]:
    """Broker 2 is down during the test."""
    cluster.brokers[2].kill()
    yield 2
    cluster.brokers[2].start()


def create(raw: Raw, name: str, *replicas: Replicas) -> None:
    assignments = tuple(CreatableReplicaAssignment(*pair) for pair in enumerate(replicas))
    topic = CreatableTopic(name, -1, -1, assignments)
    created = raw.ask(CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse)
    assert created.topics[0].error_code == ErrorCode.NONE


def reassign(
    raw: Raw, name: str, targets: dict[int, Replicas | None]
) -> AlterPartitionReassignmentsResponse:
    partitions = tuple(ReassignablePartition(*pair) for pair in targets.items())
    request = AlterPartitionReassignmentsRequest(topics=(ReassignableTopic(name, partitions),))
    return raw.ask(request, AlterPartitionReassignmentsResponse, 0)


def code_of(raw: Raw, name: str, target: Replicas | None, partition: int = 0) -> ErrorCode:
    response = reassign(raw, name, {partition: target})
    assert response.error_code == ErrorCode.NONE
    ((result,),) = [topic.partitions for topic in response.responses]
    assert result.partition_index == partition
    assert (result.error_message is None) == (result.error_code == ErrorCode.NONE)
    return ErrorCode(result.error_code)


def ongoing(
    raw: Raw, *topics: ListPartitionReassignmentsTopic
) -> dict[str, tuple[OngoingPartitionReassignment, ...]]:
    request = ListPartitionReassignmentsRequest(topics=topics or None)
    response = raw.ask(request, ListPartitionReassignmentsResponse, 0)
    assert response.error_code == ErrorCode.NONE
    return {topic.name: topic.partitions for topic in response.topics}


def state_of(raw: Raw, name: str, partition: int = 0) -> tuple[int, Replicas, Replicas]:
    """Leader, replicas and ISR (sorted)."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name=name),))
    (topic,) = raw.ask(request, MetadataResponse, 9).topics
    (found,) = [each for each in topic.partitions if each.partition_index == partition]
    return found.leader_id, found.replica_nodes, tuple(sorted(found.isr_nodes))


def wait_for(raw: Raw, name: str, state: tuple[int, Replicas, Replicas]) -> None:
    eventually(lambda: state_of(raw, name) == state, f"{name} has {state}")


def test_replicas_move_and_leader_follows(raw: Raw) -> None:
    create(raw, "moving", (1, 2), (2, 3))
    response = reassign(raw, "moving", {0: (3, 2), 1: (1,)})
    assert [each.error_code for each in response.responses[0].partitions] == [0, 0]
    wait_for(raw, "moving", (3, (3, 2), (2, 3)))
    eventually(lambda: state_of(raw, "moving", 1) == (1, (1,), (1,)), "partition 1 moved")
    eventually(lambda: not ongoing(raw), "all reassignments completed")


def test_removed_replica_is_deleted_from_its_broker(cluster: LocalCluster, raw: Raw) -> None:
    create(raw, "leaving", (1, 3))
    assert code_of(raw, "leaving", (3, 2)) is ErrorCode.NONE
    wait_for(raw, "leaving", (3, (3, 2), (2, 3)))
    (directory,) = cluster.brokers[1].config.log_dirs
    eventually(lambda: not Path(directory, "leaving-0").exists(), "the log is gone")


def test_reassignment_to_dead_broker_is_rejected(raw: Raw, dead: int) -> None:
    create(raw, "to-dead", (1,))
    assert code_of(raw, "to-dead", (dead,)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_waiting_reassignment_is_listed_cancelled_and_blocks_expansion(
    cluster: LocalCluster, raw: Raw
) -> None:
    create(raw, "waiting", (1,), (1,))
    cluster.brokers[2].pause()
    try:
        assert code_of(raw, "waiting", (2, 3)) is ErrorCode.NONE
        expected = OngoingPartitionReassignment(0, (2, 3, 1), (2, 3), (1,))
        assert ongoing(raw)["waiting"] == (expected,)
        one = ListPartitionReassignmentsTopic("waiting", (0, 1, 7))
        other = ListPartitionReassignmentsTopic("unknown", (0,))
        assert ongoing(raw, one, other) == {"waiting": (expected,)}
        grown = raw.ask(
            CreatePartitionsRequest(
                topics=(CreatePartitionsTopic(name="waiting", count=3, assignments=None),),
                timeout_ms=1000,
            ),
            CreatePartitionsResponse,
            3,
        )
        assert grown.results[0].error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS
        assert code_of(raw, "waiting", None) is ErrorCode.NONE
        assert "waiting" not in ongoing(raw)
        wait_for(raw, "waiting", (1, (1,), (1,)))
    finally:
        cluster.brokers[2].resume()


def test_later_request_replaces_the_earlier_one(cluster: LocalCluster, raw: Raw) -> None:
    create(raw, "replaced", (1,))
    cluster.brokers[2].pause()
    try:
        assert code_of(raw, "replaced", (2,)) is ErrorCode.NONE
        assert code_of(raw, "replaced", (3,)) is ErrorCode.NONE
        wait_for(raw, "replaced", (3, (3,), (3,)))
    finally:
        cluster.brokers[2].resume()
    assert not ongoing(raw)


def test_topic_is_deleted_while_it_moves(cluster: LocalCluster, raw: Raw) -> None:
    create(raw, "deleted", (1,))
    cluster.brokers[2].pause()
    try:
        assert code_of(raw, "deleted", (2,)) is ErrorCode.NONE
        request = DeleteTopicsRequest(topics=(DeleteTopicState("deleted"),), timeout_ms=10_000)
        deleted = raw.ask(request, DeleteTopicsResponse, 6)
        assert deleted.responses[0].error_code == ErrorCode.NONE
        assert ongoing(raw) == {}
        assert code_of(raw, "deleted", (3,)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    finally:
        cluster.brokers[2].resume()


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((2, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((-1,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 99), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_invalid_target_is_rejected(raw: Raw, target: Replicas | None, code: ErrorCode) -> None:
    name = f"invalid-{abs(hash(target))}"
    create(raw, name, (1,))
    assert code_of(raw, name, target) is code
    assert state_of(raw, name) == (1, (1,), (1,))


def test_unknown_partition_is_rejected_alone(raw: Raw) -> None:
    create(raw, "known", (1,))
    response = reassign(raw, "known", {0: (2,), 5: (2,)})
    codes = {each.partition_index: each.error_code for each in response.responses[0].partitions}
    assert codes == {0: ErrorCode.NONE, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    wait_for(raw, "known", (2, (2,), (2,)))


def test_other_brokers_are_not_the_controller(cluster: LocalCluster) -> None:
    with Raw(cluster.brokers[1].address) as raw:
        response = reassign(raw, "t", {0: (1,)})
        assert (response.error_code, response.responses) == (ErrorCode.NOT_CONTROLLER, ())
        listed = raw.ask(ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse, 0)
        assert listed.error_code == ErrorCode.NOT_CONTROLLER


def test_empty_request_changes_nothing(raw: Raw) -> None:
    response = raw.ask(
        AlterPartitionReassignmentsRequest(topics=()), AlterPartitionReassignmentsResponse, 0
    )
    assert (response.error_code, response.responses) == (ErrorCode.NONE, ())
