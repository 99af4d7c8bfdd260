"""CreatePartitions: every error in order of precedence, and the topic after it has grown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import pytest
from msgspec.structs import replace

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.model import BrokerId
from barnabas.wire.apis import APIS
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
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
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from support.waiting import eventually
from tests.compatibility.raw import Raw, batch_of, values_in, wait_until_known

NUMBERS = count()
BROKERS = (1, 2, 3)
NO_CONTROLLED_SHUTDOWN = {"controlled.shutdown.enable": False}
REFUSED = ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.fixture(scope="module")
def three() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings=NO_CONTROLLED_SHUTDOWN) as running:
        yield running


@pytest.fixture
def controller(three: LocalCluster) -> Iterator[Raw]:
    with at_controller(three) as raw:
        yield raw


@pytest.fixture
def other(three: LocalCluster) -> Iterator[Raw]:
    """A broker that is not the controller."""
    number = next(each for each in BROKERS if each != three.controller_id)
    with Raw(three.brokers[number].address) as raw:
        yield raw


@pytest.fixture
def topic(controller: Raw) -> str:
    """A topic with two partitions of two replicas each."""
    return create(controller, [2, 3], [3, 1])


def at_controller(cluster: LocalCluster) -> Raw:
    assert cluster.controller_id is not None
    return Raw(cluster.brokers[cluster.controller_id].address)


def create(raw: Raw, *assignment: Sequence[int]) -> str:
    name = f"topic-{next(NUMBERS)}"
    assignments = tuple(
        CreatableReplicaAssignment(index, tuple(replicas))
        for index, replicas in enumerate(assignment)
    )
    topic_request = CreatableTopic(name, -1, -1, assignments)
    answer = raw.ask(CreateTopicsRequest(topics=(topic_request,)), CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE, answer
    return name


def grow(
    raw: Raw,
    name: str,
    total: int,
    assignments: Sequence[Sequence[int]] | None = None,
    *,
    version: int | None = None,
    timeout_ms: int = 10_000,
    validate_only: bool = False,
) -> CreatePartitionsTopicResult:
    (result,) = grow_all(
        raw,
        topic_request(name, total, assignments),
        version=version,
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )
    return result


def topic_request(
    name: str, total: int, assignments: Sequence[Sequence[int]] | None = None
) -> CreatePartitionsTopic:
    lists = None
    if assignments is not None:
        lists = tuple(CreatePartitionsAssignment(tuple(each)) for each in assignments)
    return CreatePartitionsTopic(name=name, count=total, assignments=lists)


def grow_all(
    raw: Raw,
    *topics: CreatePartitionsTopic,
    version: int | None = None,
    timeout_ms: int = 10_000,
    validate_only: bool = False,
) -> tuple[CreatePartitionsTopicResult, ...]:
    request = CreatePartitionsRequest(
        topics=topics, timeout_ms=timeout_ms, validate_only=validate_only
    )
    return raw.ask(request, CreatePartitionsResponse, version).results


def describe(raw: Raw, name: str) -> MetadataResponseTopic:
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False
    )
    (topic,) = raw.ask(request, MetadataResponse).topics
    return topic


def brokers_of(raw: Raw) -> list[int]:
    return [each.node_id for each in raw.ask(MetadataRequest(topics=()), MetadataResponse).brokers]


def replicas_of(raw: Raw, name: str) -> list[tuple[int, ...]]:
    partitions = sorted(describe(raw, name).partitions, key=lambda each: each.partition_index)
    assert [each.partition_index for each in partitions] == list(range(len(partitions)))
    return [each.replica_nodes for each in partitions]


# ---- successful requests


@pytest.mark.parametrize("version", APIS[37].versions)
def test_every_version_adds_partitions(
    controller: Raw, other: Raw, topic: str, version: int
) -> None:
    before = describe(controller, topic)
    assert grow(controller, topic, 4, version=version) == (topic, ErrorCode.NONE, None)
    after = describe(controller, topic)
    assert after.topic_id == before.topic_id
    assert all(each.leader_id == each.replica_nodes[0] for each in after.partitions)
    assert all(sorted(each.isr_nodes) == sorted(each.replica_nodes) for each in after.partitions)
    assert replicas_of(controller, topic) == [(2, 3), (3, 1), (1, 3), (2, 3)]
    eventually(lambda: len(describe(other, topic).partitions) == 4, "the other brokers know it")


def test_manual_assignment_is_used(controller: Raw, topic: str) -> None:
    assert grow(controller, topic, 4, [[1, 2], [3, 2]]).error_code == ErrorCode.NONE
    assert replicas_of(controller, topic) == [(2, 3), (3, 1), (1, 2), (3, 2)]


def test_existing_records_stay_and_new_partitions_accept_records(
    three: LocalCluster, controller: Raw
) -> None:
    topic = create(controller, [1, 2])
    with Raw(three.brokers[1].address) as first, Raw(three.brokers[2].address) as second:
        wait_until_known([three.brokers[1].address], topic)
        assert first.produce(topic, batch_of(b"old")).error_code == ErrorCode.NONE
        assert grow(controller, topic, 2, [[2, 1]]).error_code == ErrorCode.NONE
        assert values_in(first.fetch(topic, 0)) == [b"old"]
        eventually(
            lambda: second.produce(topic, batch_of(b"x"), partition=1).error_code == 0,
            "it is the leader",
        )


def test_topic_can_be_expanded_repeatedly(controller: Raw) -> None:
    topic = create(controller, [1])
    for total in (2, 3, 5):
        assert grow(controller, topic, total).error_code == ErrorCode.NONE
    assert replicas_of(controller, topic) == [(1,), (2,), (3,), (1,), (2,)]


def test_validate_only_adds_nothing(controller: Raw, topic: str) -> None:
    assert grow(controller, topic, 5, validate_only=True) == (topic, ErrorCode.NONE, None)
    assert grow(controller, topic, 5, validate_only=True, timeout_ms=0).error_code == 0
    refused = grow(controller, topic, 1, validate_only=True)
    assert refused.error_code == ErrorCode.INVALID_PARTITIONS
    assert len(describe(controller, topic).partitions) == 2


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_partitions_are_created_after_timeout(controller: Raw, topic: str, timeout_ms: int) -> None:
    result = grow(controller, topic, 3, timeout_ms=timeout_ms)
    assert result == (topic, ErrorCode.REQUEST_TIMED_OUT, None)
    eventually(lambda: len(describe(controller, topic).partitions) == 3, "they exist")


def test_topics_in_one_request_fail_independently(controller: Raw, topic: str) -> None:
    another = create(controller, [1])
    results = grow_all(
        controller,
        topic_request(topic, 3),
        topic_request("nowhere", 3),
        topic_request(another, 2),
        topic_request(another, 3),
    )
    assert {each.name: each.error_code for each in results} == {
        topic: ErrorCode.NONE,
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        another: ErrorCode.INVALID_REQUEST,
    }
    assert len(results) == 3
    assert len(describe(controller, another).partitions) == 1


def test_empty_request_returns_empty_response(controller: Raw) -> None:
    assert grow_all(controller) == ()


# ---- rejected requests


@pytest.mark.parametrize("version", APIS[37].versions)
def test_only_controller_adds_partitions(other: Raw, topic: str, version: int) -> None:
    refused = grow(other, topic, 3, version=version)
    assert refused == (topic, ErrorCode.NOT_CONTROLLER, None)
    eventually(lambda: len(describe(other, topic).partitions) == 2, "nothing was added")


@pytest.mark.parametrize(
    ("total", "assignments", "code", "part_of_message"),
    [
        (
            1,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "has 2 partitions, which is higher than the requested 1",
        ),
        (0, None, ErrorCode.INVALID_PARTITIONS, "higher"),
        (-1, [[9]], ErrorCode.INVALID_PARTITIONS, "higher"),
        (2, None, ErrorCode.INVALID_PARTITIONS, "already"),
        (2, [[9]], ErrorCode.INVALID_PARTITIONS, "already"),
        (3, [[1, 9], [1]], REFUSED, "no broker 9"),
        (3, [[-1, 1]], REFUSED, "no broker -1"),
        (3, [], REFUSED, "0 assignments"),
        (3, [[1, 2], [2, 3]], REFUSED, "2 assignments"),
        (4, [[1, 1]], REFUSED, "1 assignments"),
        (4, [[], [1, 1]], REFUSED, "at least one replica"),
        (4, [[1, 1], [1]], REFUSED, "twice"),
        (4, [[1, 2], [1]], REFUSED, "2 replicas"),
        (3, [[1, 2, 3]], REFUSED, "2 replicas"),
        (50_001, None, ErrorCode.POLICY_VIOLATION, "at most 50000"),
    ],
)
def test_invalid_create_partitions_returns_error_code(
    controller: Raw,
    topic: str,
    total: int,
    assignments: list[list[int]] | None,
    code: ErrorCode,
    part_of_message: str,
) -> None:
    refused = grow(controller, topic, total, assignments)
    assert (refused.name, refused.error_code) == (topic, code)
    assert part_of_message in (refused.error_message or "")
    assert len(describe(controller, topic).partitions) == 2


@pytest.mark.parametrize("name", ["nowhere", "bad name", "a/b", "..", "x" * 300])
def test_create_partitions_of_unknown_topic_is_rejected(controller: Raw, name: str) -> None:
    refused = grow(controller, name, 3)
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert f"no topic '{name}'" in (refused.error_message or "")


def test_empty_topic_name_fails_alone(controller: Raw, topic: str) -> None:
    results = grow_all(controller, topic_request("", 3), topic_request(topic, 3))
    codes = {each.name: each.error_code for each in results}
    assert codes == {"": ErrorCode.UNKNOWN_SERVER_ERROR, topic: ErrorCode.NONE}


def test_znode_path_below_topic_is_unknown_topic(controller: Raw, topic: str) -> None:
    refused = grow(controller, f"{topic}/partitions/0/state", 3)
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---- cases that need direct znode access or a separate cluster


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def test_topic_queued_for_deletion_rejects_new_partitions() -> None:
    with (
        LocalCluster(brokers=2, settings=NO_CONTROLLED_SHUTDOWN) as cluster,
        at_controller(cluster) as raw,
    ):
        down = next(each for each in (1, 2) if each != cluster.controller_id)
        topic = create(raw, [1, 2])
        cluster.brokers[down].kill()
        request = DeleteTopicsRequest(topics=(DeleteTopicState(topic),), timeout_ms=10_000)
        assert raw.ask(request, DeleteTopicsResponse).responses[0].error_code == ErrorCode.NONE
        for total in (1, 2):
            refused = grow(raw, topic, total)
            assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert "queued for deletion" in (refused.error_message or "")
        (result,) = set(grow_all(raw, topic_request(topic, 2), topic_request(topic, 2)))
        assert result.error_code == ErrorCode.INVALID_REQUEST
        cluster.brokers[down].start()
        eventually(
            lambda: grow(raw, topic, 2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "it is gone",
        )


def test_too_few_live_brokers_reject_new_partitions() -> None:
    with (
        LocalCluster(brokers=2, settings=NO_CONTROLLED_SHUTDOWN) as cluster,
        at_controller(cluster) as raw,
    ):
        topic = create(raw, [1, 2])
        down = next(each for each in (1, 2) if each != cluster.controller_id)
        cluster.brokers[down].kill()
        eventually(lambda: len(brokers_of(raw)) == 1, "the controller sees the failure")
        refused = grow(raw, topic, 2)
        assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert grow(raw, topic, 2, [[1, 2]]).error_code == REFUSED


def test_partially_set_racks_reject_new_partitions() -> None:
    cluster = LocalCluster(brokers=2, settings=NO_CONTROLLED_SHUTDOWN)
    racked = cluster.brokers[1]
    racked.config = replace(racked.config, broker_rack="a")
    with cluster, at_controller(cluster) as raw:
        topic = create(raw, [1, 2])
        for refused in (grow(raw, topic, 2), grow(raw, topic, 2, [[2, 1]]), grow(raw, "nobody", 2)):
            assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert "rack" in (refused.error_message or "")
