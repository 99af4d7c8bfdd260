"""ElectLeaders as administrators send it: preferred and unclean, one partition or all, and the errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.elect_leaders import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support.waiting import eventually
from tests.compatibility.raw import Raw, batch_of

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN
SETTINGS = {"auto.leader.rebalance.enable": "false", "log.retention.ms": "-1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster whose controller is broker 3. The tests never kill broker 3."""
    with LocalCluster(brokers=3, settings=SETTINGS) as running:
        while running.controller_id != 3:
            controller = running.controller_id
            assert controller is not None
            running.brokers[controller].kill()
            running.brokers[controller].start()
        yield running


def create(cluster: LocalCluster, name: str, *replicas: tuple[int, ...]) -> None:
    assignments = tuple(CreatableReplicaAssignment(*pair) for pair in enumerate(replicas))
    wanted = CreatableTopic(name, -1, -1, assignments)
    with Raw(cluster.brokers[3].address) as raw:
        created = raw.ask(CreateTopicsRequest(topics=(wanted,)), CreateTopicsResponse)
    assert created.topics[0].error_code == ErrorCode.NONE


def elect(
    cluster: LocalCluster,
    kind: int,
    topic: str | None,
    *partitions: int,
    broker: int = 3,
    version: int = 2,
    timeout_ms: int = 30_000,
) -> dict[tuple[str, int], ErrorCode]:
    wanted = None if topic is None else (ElectLeadersTopic(topic, partitions),)
    request = ElectLeadersRequest(
        election_type=kind, topic_partitions=wanted, timeout_ms=timeout_ms
    )
    with Raw(cluster.brokers[broker].address) as raw:
        answer = raw.ask(request, ElectLeadersResponse, version)
    return {
        (found.topic, each.partition_id): ErrorCode(each.error_code)
        for found in answer.replica_election_results
        for each in found.partition_result
    }


def state(cluster: LocalCluster, topic: str, index: int = 0) -> tuple[int, int, tuple[int, ...]]:
    """The partition's leader, leader epoch and ISR, as broker 3 reports them."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
    with Raw(cluster.brokers[3].address) as raw:
        (found,) = raw.ask(request, MetadataResponse).topics
    partition = found.partitions[index]
    return partition.leader_id, partition.leader_epoch, partition.isr_nodes


def bounce(cluster: LocalCluster, broker: int, topic: str) -> None:
    """Restart a broker, so that another replica becomes leader."""
    cluster.brokers[broker].kill()
    cluster.brokers[broker].start()

    def is_back() -> bool:
        leader, _, isr = state(cluster, topic)
        return leader not in (broker, -1) and broker in isr

    eventually(is_back, "the broker is in sync and not the leader")


@pytest.mark.parametrize("version", [0, 1, 2])
def test_preferred_election_restores_preferred_leader(cluster: LocalCluster, version: int) -> None:
    topic = f"preferred-{version}"
    create(cluster, topic, (1, 2, 3))
    bounce(cluster, 1, topic)
    leader, epoch, isr = state(cluster, topic)
    assert leader != 1
    outcome = elect(cluster, PREFERRED, topic, 0, version=version)
    assert outcome == {(topic, 0): ErrorCode.NONE}
    assert state(cluster, topic) == (1, epoch + 1, isr)
    again = elect(cluster, PREFERRED, topic, 0, version=version)
    assert again == {(topic, 0): ErrorCode.ELECTION_NOT_NEEDED}
    assert state(cluster, topic) == (1, epoch + 1, isr)


def test_election_of_all_returns_only_changed_partitions(
    cluster: LocalCluster,
) -> None:
    create(cluster, "moved", (1, 3), (2, 3))
    bounce(cluster, 1, "moved")

    def results() -> dict[int, ErrorCode]:
        """The results for this topic. Other topics may still wait for the restarted broker."""
        found = elect(cluster, PREFERRED, None)
        return {index: code for (name, index), code in found.items() if name == "moved"}

    assert results() == {0: ErrorCode.NONE}
    assert results() == {}


def test_offline_preferred_replica_is_not_elected(cluster: LocalCluster) -> None:
    create(cluster, "away", (2, 3))
    cluster.brokers[2].kill()
    try:
        eventually(lambda: state(cluster, "away")[0] == 3, "broker 3 is the leader")
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert elect(cluster, PREFERRED, "away", 0) == {("away", 0): code}
        assert elect(cluster, UNCLEAN, "away", 0) == {("away", 0): ErrorCode.ELECTION_NOT_NEEDED}
    finally:
        cluster.brokers[2].start()


def test_unclean_election_loses_unreplicated_records(
    cluster: LocalCluster,
) -> None:
    create(cluster, "unclean", (1, 2))
    with Raw(cluster.brokers[1].address) as raw:
        eventually(
            lambda: raw.produce("unclean", batch_of(b"both")).error_code == ErrorCode.NONE,
            "broker 1 is the leader",
        )
        before = raw.produce("unclean", batch_of(b"both")).base_offset
        cluster.brokers[2].kill()
        eventually(lambda: state(cluster, "unclean")[2] == (1,), "only broker 1 is in sync")
        assert raw.produce("unclean", batch_of(b"one")).base_offset == before + 1
    cluster.brokers[1].kill()
    try:
        eventually(lambda: state(cluster, "unclean")[0] == -1, "there is no leader")
        unavailable = {("unclean", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
        assert elect(cluster, UNCLEAN, "unclean", 0) == unavailable
        cluster.brokers[2].start()
        assert state(cluster, "unclean")[0] == -1, "it is not in sync"
        refused = {("unclean", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        assert elect(cluster, PREFERRED, "unclean", 0) == refused
        assert elect(cluster, UNCLEAN, "unclean", 0) == {("unclean", 0): ErrorCode.NONE}
        assert state(cluster, "unclean")[0] == 2
    finally:
        cluster.brokers[2].start()
        cluster.brokers[1].start()
    eventually(
        lambda: state(cluster, "unclean")[2] == (2, 1), "the old leader truncates and follows"
    )
    with Raw(cluster.brokers[2].address) as raw:
        assert raw.produce("unclean", batch_of(b"other")).base_offset == before + 1


def test_unknown_partitions_get_errors_individually(cluster: LocalCluster) -> None:
    create(cluster, "some", (3,))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(cluster, PREFERRED, "some", 0, 9, -1, 9) == {
        ("some", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("some", 9): unknown,
        ("some", -1): unknown,
    }
    assert elect(cluster, UNCLEAN, "nobody", 0) == {("nobody", 0): unknown}
    assert elect(cluster, PREFERRED, "some") == {}


def test_only_controller_elects(cluster: LocalCluster) -> None:
    create(cluster, "there", (3,))
    for kind in (PREFERRED, UNCLEAN):
        outcome = elect(cluster, kind, "there", 0, broker=2)
        assert outcome == {("there", 0): ErrorCode.NOT_CONTROLLER}
        assert set(elect(cluster, kind, None, broker=2).values()) == {ErrorCode.NOT_CONTROLLER}


@pytest.mark.parametrize("kind", [-1, 2, 127])
def test_unknown_election_type_is_rejected(cluster: LocalCluster, kind: int) -> None:
    create(cluster, f"kind-{kind}", (3,))
    refused = {(f"kind-{kind}", 0): ErrorCode.UNKNOWN_SERVER_ERROR}
    assert elect(cluster, kind, f"kind-{kind}", 0) == refused
    assert elect(cluster, kind, None)[f"kind-{kind}", 0] == ErrorCode.UNKNOWN_SERVER_ERROR


def test_election_happens_after_request_timeout(cluster: LocalCluster) -> None:
    create(cluster, "hasty", (1, 3))
    bounce(cluster, 1, "hasty")
    hasty = elect(cluster, PREFERRED, "hasty", 0, timeout_ms=0)
    assert hasty["hasty", 0] in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
    eventually(lambda: state(cluster, "hasty")[0] == 1, "the preferred replica leads")
