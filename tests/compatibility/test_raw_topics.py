"""CreateTopics, DeleteTopics, DescribeConfigs, DescribeCluster and DescribeLogDirs, in every version."""

from collections.abc import Iterator
from itertools import count
from uuid import uuid4

import pytest

from barnabas import LocalCluster
from barnabas.config.setting import Kind
from barnabas.errors import ErrorCode
from barnabas.model import ZERO_ID
from barnabas.wire.apis import APIS
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.messages.describe_configs import (
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    ResourceType,
)
from barnabas.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from support.waiting import eventually
from tests.compatibility.raw import Raw, batch_of

NUMBERS = count()


def create(
    raw: Raw,
    *topics: CreatableTopic,
    version: int | None = None,
    validate_only: bool = False,
    timeout_ms: int = 10_000,
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only, timeout_ms=timeout_ms)
    return list(raw.ask(request, CreateTopicsResponse, version).topics)


def new_name() -> str:
    return f"created-{next(NUMBERS)}"


@pytest.mark.parametrize("version", APIS[19].versions)
def test_every_version_creates(raw: Raw, version: int) -> None:
    name = new_name()
    configs = (CreatableTopicConfig("retention.ms", "1000"),)
    (result,) = create(raw, CreatableTopic(name, 3, 1, configs=configs), version=version)
    assert (result.name, result.error_code) == (name, ErrorCode.NONE)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        described = {entry.name: entry for entry in result.configs or ()}
        retention = described["retention.ms"]
        assert (retention.value, retention.config_source) == ("1000", ConfigSource.TOPIC_CONFIG)
        assert described["segment.bytes"].config_source == ConfigSource.DEFAULT_CONFIG
    if version >= 7:
        assert result.topic_id == raw.topic_id(name) != ZERO_ID


ONE = (CreatableReplicaAssignment(0, (1,)),)


@pytest.mark.parametrize(
    ("partitions", "replicas", "extra", "expected"),
    [
        (0, 1, {}, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, {}, ErrorCode.INVALID_PARTITIONS),
        (1, 0, {}, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, {}, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 2, {}, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 1, {"configs": (("no.such.setting", "1"),)}, ErrorCode.INVALID_CONFIG),
        (1, 1, {"configs": (("retention.ms", "soon"),)}, ErrorCode.INVALID_CONFIG),
        (1, 1, {"configs": (("cleanup.policy", "burn"),)}, ErrorCode.INVALID_CONFIG),
        (1, 1, {"configs": (("retention.ms", None),)}, ErrorCode.INVALID_CONFIG),
        (1, 1, {"assignments": ONE}, ErrorCode.INVALID_REQUEST),
        (-1, -1, {"assignments": ((0, (9,)),)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, {"assignments": ((1, (1,)),)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, {"assignments": ((0, (1, 1)),)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, {"assignments": ((0, (1,)), (1, (1, 2)))}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, 1, {"assignments": ONE}, ErrorCode.INVALID_REQUEST),
        (1, -1, {"assignments": ONE}, ErrorCode.INVALID_REQUEST),
        (50_001, 1, {}, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_invalid_create_topics_returns_error_code(
    raw: Raw,
    partitions: int,
    replicas: int,
    extra: dict[str, tuple[tuple[object, ...], ...]],
    expected: ErrorCode,
) -> None:
    topic = CreatableTopic(
        new_name(),
        partitions,
        replicas,
        assignments=tuple(CreatableReplicaAssignment(*a) for a in extra.get("assignments", ())),  # type: ignore[arg-type]
        configs=tuple(CreatableTopicConfig(*c) for c in extra.get("configs", ())),  # type: ignore[arg-type]
    )
    (result,) = create(raw, topic)
    assert result.error_code == expected
    assert result.error_message


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "white space", "sl/ash", "ünïcode"])
def test_invalid_topic_name_is_rejected(raw: Raw, name: str) -> None:
    (result,) = create(raw, CreatableTopic(name, 1, 1))
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_replication_factor_error_precedes_name_error(raw: Raw) -> None:
    (result,) = create(raw, CreatableTopic("bad name", 1, 9))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    (result,) = create(raw, CreatableTopic("bad name", 1, 1, configs=(no_value("retention.ms"),)))
    assert result.error_code == ErrorCode.INVALID_CONFIG


def no_value(name: str) -> CreatableTopicConfig:
    return CreatableTopicConfig(name, None)


def test_rejected_creation_returns_no_counts_or_configs(raw: Raw) -> None:
    (result,) = create(raw, CreatableTopic("bad name", 3, 1))
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, ())
    assert result.topic_id == ZERO_ID


def test_min_insync_replicas_may_exceed_replication_factor(raw: Raw) -> None:
    configs = (CreatableTopicConfig("min.insync.replicas", "3"),)
    (result,) = create(raw, CreatableTopic(new_name(), 1, 1, configs=configs))
    assert result.error_code == ErrorCode.NONE


def test_creation_uses_broker_defaults(raw: Raw) -> None:
    (result,) = create(raw, CreatableTopic(new_name(), -1, -1))
    assert (result.num_partitions, result.replication_factor) == (1, 1)


def test_cluster_metadata_topic_is_rejected(raw: Raw) -> None:
    (result,) = create(raw, CreatableTopic("__cluster_metadata", 1, 1))
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_colliding_names_in_one_request_create_one_topic(raw: Raw) -> None:
    names = ("look.alike", "look_alike")
    results = create(raw, *(CreatableTopic(name, 1, 1) for name in names))
    assert [result.error_code for result in results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


def test_create_and_delete_thousand_topics_in_one_request(raw: Raw) -> None:
    topics = [CreatableTopic(f"thousand-{index}", 1, 1) for index in range(1000)]
    results = create(raw, *topics, version=4, timeout_ms=30_000)
    assert {result.error_code for result in results} == {ErrorCode.NONE}
    request = DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(topic.name) for topic in topics), timeout_ms=30_000
    )
    answer = raw.ask(request, DeleteTopicsResponse)
    assert {result.error_code for result in answer.responses} == {ErrorCode.NONE}


def test_existing_or_colliding_name_is_rejected(raw: Raw) -> None:
    assert create(raw, CreatableTopic("taken.name", 1, 1))[0].error_code == ErrorCode.NONE
    (taken,) = create(raw, CreatableTopic("taken.name", 1, 1))
    assert taken.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    (similar,) = create(raw, CreatableTopic("taken_name", 1, 1))
    assert similar.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_duplicate_topic_is_rejected_and_others_are_created(raw: Raw) -> None:
    twice, once = new_name(), new_name()
    results = create(
        raw,
        CreatableTopic(twice, 1, 1),
        CreatableTopic(once, 1, 1),
        CreatableTopic(twice, 2, 1),
    )
    assert {result.name: result.error_code for result in results} == {
        twice: ErrorCode.INVALID_REQUEST,
        once: ErrorCode.NONE,
    }


def test_validate_only_creates_nothing(raw: Raw) -> None:
    topic = CreatableTopic(new_name(), 4, 1)
    (result,) = create(raw, topic, validate_only=True)
    assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 4)
    assert create(raw, topic)[0].error_code == ErrorCode.NONE


def test_create_topics_without_wait_times_out(raw: Raw) -> None:
    for timeout_ms in (0, -1):
        topic = CreatableTopic(new_name(), 1, 1)
        (result,) = create(raw, topic, timeout_ms=timeout_ms)
        assert (result.error_code, result.error_message) == (ErrorCode.REQUEST_TIMED_OUT, None)
        assert create(raw, topic)[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("version", APIS[20].versions)
def test_every_version_deletes(raw: Raw, topic: str, version: int) -> None:
    names = (topic, "nowhere")
    request = (
        DeleteTopicsRequest(topics=tuple(map(DeleteTopicState, names)), timeout_ms=5000)
        if version >= 6
        else DeleteTopicsRequest(topic_names=names, timeout_ms=5000)
    )
    answer = raw.ask(request, DeleteTopicsResponse, version)
    assert {result.name: result.error_code for result in answer.responses} == {
        topic: ErrorCode.NONE,
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    eventually(
        lambda: raw.fetch(topic, 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "its records are gone",
    )


def test_recreated_topic_gets_new_topic_id(raw: Raw, topic: str) -> None:
    before = raw.topic_id(topic)
    raw.produce(topic, batch_of(b"x"))
    states = (DeleteTopicState(topic_id=before), DeleteTopicState(topic_id=uuid4()))
    request = DeleteTopicsRequest(topics=states, timeout_ms=5000)
    deleted, unknown = raw.ask(request, DeleteTopicsResponse).responses
    assert (deleted.name, deleted.error_code) == (topic, ErrorCode.NONE)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    # The topic leaves the metadata before its files are deleted. Until then, its name is taken.
    eventually(
        lambda: create(raw, CreatableTopic(topic, 1, 1))[0].error_code == ErrorCode.NONE,
        "the name is free again",
    )
    assert raw.topic_id(topic) != before
    assert raw.list_offset(topic, -1).offset == 0


def test_name_and_id_together_reject_whole_request(raw: Raw, topic: str) -> None:
    both = DeleteTopicState(topic, raw.topic_id(topic))
    request = DeleteTopicsRequest(topics=(both, DeleteTopicState("other")), timeout_ms=5000)
    answer = raw.ask(request, DeleteTopicsResponse)
    assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_delete_topics_without_wait_times_out(raw: Raw, topic: str) -> None:
    request = DeleteTopicsRequest(topic_names=(topic,), timeout_ms=0)
    (result,) = raw.ask(request, DeleteTopicsResponse, 5).responses
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    eventually(
        lambda: raw.fetch(topic, 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "it is deleted anyway",
    )


@pytest.mark.parametrize("version", APIS[20].versions)
def test_disabled_deletion_deletes_nothing(version: int, undeletable: Raw) -> None:
    request = (
        DeleteTopicsRequest(topics=(DeleteTopicState("kept"),), timeout_ms=5000)
        if version >= 6
        else DeleteTopicsRequest(topic_names=("kept",), timeout_ms=5000)
    )
    (result,) = undeletable.ask(request, DeleteTopicsResponse, version).responses
    disabled = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    assert result.error_code == disabled
    assert undeletable.fetch("kept", 0).error_code == ErrorCode.NONE


@pytest.fixture(scope="module")
def undeletable() -> Iterator[Raw]:
    with (
        LocalCluster(settings={"delete.topic.enable": "false"}) as cluster,
        Raw(cluster.bootstrap_servers) as raw,
    ):
        raw.create_topic("kept")
        yield raw


# ---- configs


def describe(
    raw: Raw, kind: int, name: str, *keys: str, version: int | None = None, more: bool = True
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=(DescribeConfigsResource(kind, name, keys or None),),
        include_synonyms=more,
        include_documentation=more,
    )
    return raw.ask(request, DescribeConfigsResponse, version).results[0]


def by_name(result: DescribeConfigsResult) -> dict[str, DescribeConfigsResourceResult]:
    assert result.error_code == ErrorCode.NONE
    return {entry.name: entry for entry in result.configs}


def test_topic_config_reports_source_and_synonyms(raw: Raw) -> None:
    name = new_name()
    raw.create_topic(name, configs={"segment.bytes": "5000"})
    found = by_name(describe(raw, ResourceType.TOPIC, name))
    segment = found["segment.bytes"]
    assert (segment.value, segment.config_source) == ("5000", ConfigSource.TOPIC_CONFIG)
    assert segment.config_type == Kind.INT
    assert segment.documentation
    assert not (segment.read_only or segment.is_sensitive)
    assert [(s.name, s.value, s.source) for s in segment.synonyms] == [
        ("segment.bytes", "5000", ConfigSource.TOPIC_CONFIG),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
    ]
    assert found["max.message.bytes"].value == "1048588"
    assert found["cleanup.policy"].config_type == Kind.LIST
    assert len(found) > 25


def test_synonyms_and_documentation_are_optional(raw: Raw, topic: str) -> None:
    found = by_name(describe(raw, ResourceType.TOPIC, topic, "retention.ms", more=False))
    (entry,) = found.values()
    assert (entry.synonyms, entry.documentation) == ((), None)


@pytest.mark.parametrize("version", APIS[32].versions)
def test_every_version_describes_topic_and_broker(raw: Raw, topic: str, version: int) -> None:
    for kind, name, key in (
        (ResourceType.TOPIC, topic, "cleanup.policy"),
        (ResourceType.BROKER, "1", "log.cleanup.policy"),
    ):
        found = by_name(describe(raw, kind, name, key, version=version, more=False))
        assert [(entry.name, entry.value) for entry in found.values()] == [(key, "delete")]
        assert found[key].is_default == (version == 0)


def test_broker_configs_report_static_source(raw: Raw) -> None:
    found = by_name(describe(raw, ResourceType.BROKER, "1"))
    assert found["broker.id"].value == "1"
    assert found["broker.id"].config_source == ConfigSource.STATIC_BROKER_CONFIG
    assert found["broker.id"].read_only
    assert found["num.partitions"].config_source == ConfigSource.DEFAULT_CONFIG


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (ResourceType.TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ResourceType.TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ResourceType.BROKER, "77", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER, "one", ErrorCode.INVALID_REQUEST),
        (99, "what", ErrorCode.INVALID_REQUEST),
    ],
)
def test_describe_configs_of_invalid_resource_returns_error(
    raw: Raw, kind: int, name: str, expected: ErrorCode
) -> None:
    result = describe(raw, kind, name)
    assert (result.error_code, result.configs) == (expected, ())


# ---- cluster and log directories


@pytest.mark.parametrize("version", APIS[60].versions)
def test_describe_cluster(raw: Raw, version: int) -> None:
    answer = raw.ask(DescribeClusterRequest(), DescribeClusterResponse, version)
    assert (answer.error_code, answer.controller_id) == (ErrorCode.NONE, 1)
    assert len(answer.cluster_id) == 22
    assert [broker.broker_id for broker in answer.brokers] == [1]


def test_broker_rejects_controller_endpoint_type(raw: Raw) -> None:
    for kind, expected in (
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ):
        answer = raw.ask(DescribeClusterRequest(endpoint_type=kind), DescribeClusterResponse)
        assert answer.error_code == expected


@pytest.mark.parametrize("version", APIS[35].versions)
def test_describe_log_dirs_reports_partition_size(raw: Raw, topic: str, version: int) -> None:
    batch = batch_of(b"x" * 1000)
    raw.produce(topic, batch)
    request = DescribeLogDirsRequest(topics=(DescribableLogDirTopic(topic, (0,)),))
    (directory,) = raw.ask(request, DescribeLogDirsResponse, version).results
    assert directory.error_code == ErrorCode.NONE
    (found,) = directory.topics
    assert found.name == topic
    assert [(p.partition_index, p.partition_size) for p in found.partitions] == [(0, len(batch))]
    if version >= 4:
        assert 0 < directory.usable_bytes <= directory.total_bytes
