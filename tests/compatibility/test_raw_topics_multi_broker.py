"""CreateTopics, DeleteTopics and automatic creation in a cluster of several brokers."""

from __future__ import annotations

import select
from collections.abc import Iterator
from itertools import count

import pytest
from msgspec.structs import replace

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.model import ZERO_ID
from barnabas.wire.apis import APIS
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from support.waiting import eventually
from tests.compatibility.raw import Raw, batch_of, wait_until_known

NUMBERS = count()
BROKERS = (1, 2, 3)
NO_CONTROLLED_SHUTDOWN = {"controlled.shutdown.enable": False}
"""Brokers that all stop at once have no other broker to hand their partitions to."""


@pytest.fixture(scope="module")
def three() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings=NO_CONTROLLED_SHUTDOWN) as running:
        yield running


@pytest.fixture
def controller(three: LocalCluster) -> Iterator[Raw]:
    assert three.controller_id is not None
    with Raw(three.brokers[three.controller_id].address) as raw:
        yield raw


@pytest.fixture
def other(three: LocalCluster) -> Iterator[Raw]:
    """A broker that is not the controller."""
    number = next(each for each in BROKERS if each != three.controller_id)
    with Raw(three.brokers[number].address) as raw:
        yield raw


def new_name() -> str:
    return f"topic-{next(NUMBERS)}"


def create(
    raw: Raw, topic: CreatableTopic, *, version: int | None = None, timeout_ms: int = 10_000
) -> CreatableTopicResult:
    request = CreateTopicsRequest(topics=(topic,), timeout_ms=timeout_ms)
    (result,) = raw.ask(request, CreateTopicsResponse, version).topics
    return result


def delete(raw: Raw, name: str, version: int = 6) -> DeletableTopicResult:
    request = (
        DeleteTopicsRequest(topics=(DeleteTopicState(name),), timeout_ms=10_000)
        if version >= 6
        else DeleteTopicsRequest(topic_names=(name,), timeout_ms=10_000)
    )
    (result,) = raw.ask(request, DeleteTopicsResponse, version).responses
    return result


def describe(raw: Raw, name: str, *, may_create: bool = False) -> MetadataResponseTopic:
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=may_create
    )
    (topic,) = raw.ask(request, MetadataResponse).topics
    return topic


def is_led(topic: MetadataResponseTopic, partitions: int) -> bool:
    return len(topic.partitions) == partitions and all(
        each.error_code == ErrorCode.NONE and each.leader_id in BROKERS for each in topic.partitions
    )


def test_controller_knows_topic_when_create_returns(controller: Raw, other: Raw) -> None:
    name = new_name()
    result = create(controller, CreatableTopic(name, 6, 3))
    assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 6)
    found = describe(controller, name)
    assert found.topic_id == result.topic_id
    assert is_led(found, 6)
    assert all(sorted(each.isr_nodes) == [*BROKERS] for each in found.partitions)
    assert sorted(each.leader_id for each in found.partitions) == [1, 1, 2, 2, 3, 3]
    eventually(lambda: is_led(describe(other, name), 6), "the other broker knows it")


def test_manual_assignment_is_kept_and_first_replica_leads(controller: Raw) -> None:
    name = new_name()
    assignments = (CreatableReplicaAssignment(0, (3, 1)), CreatableReplicaAssignment(1, (2, 3)))
    assert create(controller, CreatableTopic(name, -1, -1, assignments)).error_code == 0
    found = describe(controller, name)
    assert [each.replica_nodes for each in found.partitions] == [(3, 1), (2, 3)]
    assert [each.leader_id for each in found.partitions] == [3, 2]


@pytest.mark.parametrize("version", APIS[19].versions)
def test_only_controller_creates(other: Raw, version: int) -> None:
    result = create(other, CreatableTopic(new_name(), 1, 1), version=version)
    assert result.error_code == ErrorCode.NOT_CONTROLLER
    assert (result.topic_id, result.num_partitions) == (ZERO_ID, -1)


@pytest.mark.parametrize("version", APIS[20].versions)
def test_only_controller_deletes(controller: Raw, other: Raw, version: int) -> None:
    name = new_name()
    create(controller, CreatableTopic(name, 1, 1))
    assert delete(other, name, version).error_code == ErrorCode.NOT_CONTROLLER
    assert delete(controller, name, version).error_code == ErrorCode.NONE


def test_replication_factor_above_broker_count_is_rejected(controller: Raw) -> None:
    result = create(controller, CreatableTopic(new_name(), 1, 4))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


# ---- automatic creation


@pytest.mark.parametrize("version", [0, 1, 4, 12])
def test_metadata_request_creates_topic_via_any_broker(
    controller: Raw, other: Raw, version: int
) -> None:
    for raw in (controller, other):
        name = new_name()
        request = MetadataRequest(topics=(MetadataRequestTopic(name=name),))
        (topic,) = raw.ask(request, MetadataResponse, version).topics
        assert topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        eventually(lambda raw=raw, name=name: is_led(describe(raw, name), 1), "it exists")  # type: ignore[misc]


def test_colliding_names_auto_create_one_topic(other: Raw) -> None:
    name = new_name()
    names = (f"{name}.x", f"{name}_x")
    request = MetadataRequest(topics=tuple(MetadataRequestTopic(name=each) for each in names))
    answer = other.ask(request, MetadataResponse)
    assert sorted(topic.error_code for topic in answer.topics) == [
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


def test_topic_is_not_auto_created_if_disallowed_or_invalid(other: Raw) -> None:
    name = new_name()
    assert describe(other, name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    bad = describe(other, "bad name", may_create=True)
    assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert describe(other, name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_one_auto_creation_per_topic_in_flight(three: LocalCluster, other: Raw) -> None:
    assert three.controller_id is not None
    in_charge = three.brokers[three.controller_id]
    name = new_name()
    request = MetadataRequest(topics=(MetadataRequestTopic(name=name),))
    host, port = other.socket.getpeername()[:2]
    with Raw(f"{host}:{port}") as another:
        in_charge.pause()
        try:
            pending = [(raw, *raw.begin(request)) for raw in (other, another)]
            # Only the second is answered while the controller does not answer the first.
            ready, _, _ = select.select([other.socket, another.socket], [], [], 10)
            assert len(ready) == 1
        finally:
            in_charge.resume()
        codes = [
            raw.answer(MetadataResponse, version, correlation_id).topics[0].error_code
            for raw, version, correlation_id in pending
        ]
    assert sorted(codes) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE]
    eventually(lambda: is_led(describe(other, name), 1), "it exists")


def test_auto_creation_reports_too_few_brokers() -> None:
    settings = {**NO_CONTROLLED_SHUTDOWN, "default.replication.factor": 3}
    with LocalCluster(brokers=2, settings=settings) as cluster:
        for broker in cluster.brokers.values():
            with Raw(broker.address) as raw:
                found = describe(raw, "wanted", may_create=True)
                assert found.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


# ---- cases with a failed broker


def test_auto_creation_waits_for_next_controller() -> None:
    # As in Kafka, replicas are placed on the last known brokers, which may include the one that just failed.
    two_replicas = {**NO_CONTROLLED_SHUTDOWN, "default.replication.factor": "2"}
    with LocalCluster(brokers=3, settings=two_replicas) as cluster:
        assert cluster.controller_id is not None
        first = cluster.controller_id
        pending = next(each for each in BROKERS if each != first)
        with Raw(cluster.brokers[pending].address) as raw:
            cluster.brokers[first].kill()
            found = describe(raw, "t", may_create=True)
            assert found.error_code == ErrorCode.LEADER_NOT_AVAILABLE
            eventually(lambda: is_led(describe(raw, "t", may_create=True), 1), "it exists")
            assert cluster.controller_id not in (None, first)


def test_topic_with_pending_deletion_cannot_be_created() -> None:
    with LocalCluster(brokers=3, settings=NO_CONTROLLED_SHUTDOWN) as cluster:
        down = next(each for each in BROKERS if each != cluster.controller_id)
        assert cluster.controller_id is not None
        with Raw(cluster.brokers[cluster.controller_id].address) as raw:
            before = create(raw, CreatableTopic("t", 1, 3)).topic_id
            leader = describe(raw, "t").partitions[0].leader_id
            wait_until_known([cluster.brokers[leader].address], "t")
            with Raw(cluster.brokers[leader].address) as to_leader:
                assert to_leader.produce("t", batch_of(b"x")).error_code == ErrorCode.NONE
            cluster.brokers[down].kill()
            assert delete(raw, "t").error_code == ErrorCode.NONE, "gone from the metadata"
            refused = create(raw, CreatableTopic("t", 1, 1))
            assert refused.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            assert "marked for deletion" in (refused.error_message or "")
            hidden = describe(raw, "t", may_create=True)
            assert hidden.error_code == ErrorCode.LEADER_NOT_AVAILABLE
            cluster.brokers[down].start()
            eventually(
                lambda: create(raw, CreatableTopic("t", 1, 3)).error_code == ErrorCode.NONE,
                "the name is free again",
            )
            assert describe(raw, "t").topic_id != before


def test_partially_set_racks_reject_automatic_placement() -> None:
    cluster = LocalCluster(brokers=2, settings=NO_CONTROLLED_SHUTDOWN)
    racked = cluster.brokers[1]
    racked.config = replace(racked.config, broker_rack="a")
    with cluster:
        assert cluster.controller_id is not None
        with Raw(cluster.brokers[cluster.controller_id].address) as raw:
            refused = create(raw, CreatableTopic("t", 1, 1))
            assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert "rack" in (refused.error_message or "")
            placed = CreatableTopic("t", -1, -1, (CreatableReplicaAssignment(0, (1, 2)),))
            assert create(raw, placed).error_code == ErrorCode.NONE
