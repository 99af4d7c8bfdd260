"""DescribeConfigs: effective settings, loggers, and requests that repeat a resource."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import count

import pytest

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.metadata import znodes
from barnabas.storage.log import Log
from barnabas.wire.apis import APIS
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.describe_configs import (
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    ResourceType,
)
from support.waiting import eventually
from tests.compatibility.raw import Raw, batch_of, wait_until_known

NUMBERS = count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, settings={"log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture
def controller(cluster: LocalCluster) -> Iterator[Raw]:
    assert cluster.controller_id is not None
    with Raw(cluster.brokers[cluster.controller_id].address) as raw:
        yield raw


def new_topic(cluster: LocalCluster, raw: Raw, replicas: tuple[int, ...], **configs: str) -> str:
    name = f"set-{next(NUMBERS)}"
    wanted = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=(CreatableReplicaAssignment(0, replicas),),
        configs=tuple(
            CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()
        ),
    )
    (made,) = raw.ask(CreateTopicsRequest(topics=(wanted,)), CreateTopicsResponse).topics
    assert made.error_code == ErrorCode.NONE, made
    wait_until_known([broker.address for broker in cluster.brokers.values()], name)
    return name


def write_znode(cluster: LocalCluster, topic: str, settings: Mapping[str, str]) -> None:
    """Change a topic's settings as Kafka's tools do with --zookeeper."""
    registry, keeper = cluster.cluster.open_registry()

    async def write() -> None:
        session = await registry.connect(10_000)
        data = znodes.encode_config(settings)
        await session.set(znodes.topic_config_path(topic), data)
        await session.close()

    keeper.run(write())


def notify(cluster: LocalCluster, topic: str) -> None:
    """Create the notification of a change, as Kafka's tools do with --zookeeper."""
    registry, keeper = cluster.cluster.open_registry()

    async def write() -> None:
        session = await registry.connect(10_000)
        data = znodes.encode_config_change(f"topics/{topic}")
        await session.create(znodes.CONFIG_CHANGE_PREFIX, data, sequential=True)
        await session.close()

    keeper.run(write())


def describe(
    raw: Raw, *resources: DescribeConfigsResource, version: int | None = None
) -> tuple[DescribeConfigsResult, ...]:
    request = DescribeConfigsRequest(resources=resources)
    return raw.ask(request, DescribeConfigsResponse, version).results


def settings_of(
    cluster: LocalCluster, broker: int, topic: str
) -> dict[str, DescribeConfigsResourceResult]:
    with Raw(cluster.brokers[broker].address) as raw:
        (result,) = describe(raw, DescribeConfigsResource(ResourceType.TOPIC, topic))
    assert result.error_code == ErrorCode.NONE
    return {entry.name: entry for entry in result.configs}


def value(cluster: LocalCluster, broker: int, topic: str, key: str) -> tuple[str | None, int]:
    found = settings_of(cluster, broker, topic)[key]
    return found.value, found.config_source


# ---- effective settings


def logs_of(cluster: LocalCluster, broker: int, topic: str) -> list[Log]:
    life = cluster.brokers[broker].instance
    assert life is not None
    assert life.broker.logs is not None
    logs = life.broker.logs.logs
    return [log for partition, log in logs.items() if partition.topic == topic]


@pytest.mark.parametrize("broker", [1, 2])
def test_every_broker_reports_the_znode(
    cluster: LocalCluster, controller: Raw, broker: int
) -> None:
    topic = new_topic(cluster, controller, (1,), retention_ms="5")
    assert value(cluster, broker, topic, "retention.ms") == ("5", ConfigSource.TOPIC_CONFIG)
    write_znode(cluster, topic, {"retention.ms": "7"})
    assert value(cluster, broker, topic, "retention.ms") == ("7", ConfigSource.TOPIC_CONFIG)


def test_value_too_long_for_a_response_is_null(cluster: LocalCluster, controller: Raw) -> None:
    topic = new_topic(cluster, controller, (1,))
    key = "leader.replication.throttled.replicas"
    write_znode(cluster, topic, {key: "0:1," * 10_000 + "0:1", "retention.ms": "7"})
    assert value(cluster, 1, topic, key) == (None, ConfigSource.TOPIC_CONFIG)
    assert value(cluster, 1, topic, "retention.ms") == ("7", ConfigSource.TOPIC_CONFIG)


def test_znode_written_by_hand_is_applied_after_its_notification(
    cluster: LocalCluster, controller: Raw
) -> None:
    topic = new_topic(cluster, controller, (1,), max_message_bytes="2000")
    (log,) = logs_of(cluster, 1, topic)
    write_znode(cluster, topic, {"max.message.bytes": "100"})
    assert log.config.max_message_bytes == 2000
    notify(cluster, topic)
    eventually(lambda: log.config.max_message_bytes == 100, "the log uses the setting")
    with Raw(cluster.brokers[1].address) as raw:
        code = raw.produce(topic, batch_of(b"x" * 1000)).error_code
    assert code == ErrorCode.MESSAGE_TOO_LARGE


def test_new_partition_gets_the_known_topic_settings(
    cluster: LocalCluster, controller: Raw
) -> None:
    topic = new_topic(cluster, controller, (1,), max_message_bytes="100")
    write_znode(cluster, topic, {"max.message.bytes": "2000"})
    grown = CreatePartitionsTopic(name=topic, count=40)
    request = CreatePartitionsRequest(topics=(grown,), timeout_ms=10_000)
    (result,) = controller.ask(request, CreatePartitionsResponse).results
    assert result.error_code == ErrorCode.NONE
    wait_until_known([broker.address for broker in cluster.brokers.values()], topic)
    assert {log.config.max_message_bytes for log in logs_of(cluster, 1, topic)} == {100}
    notify(cluster, topic)

    def is_applied() -> bool:
        return {log.config.max_message_bytes for log in logs_of(cluster, 1, topic)} == {2000}

    eventually(is_applied, "all logs use the setting")


@pytest.mark.parametrize("broker", [1, 2])
def test_invalid_setting_is_neither_applied_nor_reported(
    cluster: LocalCluster, controller: Raw, broker: int
) -> None:
    topic = new_topic(cluster, controller, (1,))
    write_znode(cluster, topic, {"retention.ms": "soon", "no.such.setting": "1"})
    assert value(cluster, broker, topic, "retention.ms")[1] != ConfigSource.TOPIC_CONFIG


# ---- loggers


@pytest.mark.parametrize("version", APIS[32].versions)
def test_broker_loggers_are_described_with_levels(cluster: LocalCluster, version: int) -> None:
    levels = {5: "TRACE", 10: "DEBUG", 20: "INFO", 25: "WARN", 30: "WARN", 40: "ERROR", 50: "FATAL"}
    for level in levels:
        logging.getLogger(f"barnabas.test.level-{level}").setLevel(level)
    logging.getLogger("barnabas.test.level-40.child")
    with Raw(cluster.brokers[2].address) as raw:
        wanted = DescribeConfigsResource(ResourceType.BROKER_LOGGER, "2")
        (result,) = describe(raw, wanted, version=version)
    assert result.error_code == ErrorCode.NONE
    found = {entry.name: entry for entry in result.configs}
    for level, name in levels.items():
        assert found[f"barnabas.test.level-{level}"].value == name
    assert found["barnabas.test.level-40.child"].value == "ERROR"
    assert {"root", "barnabas.network"} <= found.keys()
    assert all(name == "root" or name.split(".")[0] == "barnabas" for name in found)
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG if version >= 1 else -1
    for entry in found.values():
        assert (entry.config_source, entry.synonyms) == (source, ())
        assert not (entry.read_only or entry.is_sensitive or entry.is_default)


def test_describe_one_logger_by_name(cluster: LocalCluster) -> None:
    wanted = DescribeConfigsResource(ResourceType.BROKER_LOGGER, "1", ("barnabas.network", "no"))
    with Raw(cluster.brokers[1].address) as raw:
        (result,) = describe(raw, wanted)
    assert [entry.name for entry in result.configs] == ["barnabas.network"]


@pytest.mark.parametrize("name", ["2", "", "one"])
def test_loggers_of_other_broker_are_rejected(cluster: LocalCluster, name: str) -> None:
    with Raw(cluster.brokers[1].address) as raw:
        (result,) = describe(raw, DescribeConfigsResource(ResourceType.BROKER_LOGGER, name))
    assert (result.error_code, result.configs) == (ErrorCode.INVALID_REQUEST, ())


# ---- repeated resources


def test_duplicate_resource_is_answered_once(cluster: LocalCluster, controller: Raw) -> None:
    topic = new_topic(cluster, controller, (1,))
    wanted = [
        DescribeConfigsResource(kind, name, keys)
        for kind, name in (
            (ResourceType.TOPIC, topic),
            (ResourceType.BROKER, "1"),
            (ResourceType.BROKER_LOGGER, "1"),
            (ResourceType.TOPIC, "nowhere"),
        )
        for keys in (None, (), ("x", "y"), ("y", "x", "x"))
    ]
    with Raw(cluster.brokers[1].address) as raw:
        results = describe(raw, *wanted * 500)
    assert [(each.resource_type, bool(each.configs)) for each in results] == [
        (ResourceType.TOPIC, True),
        (ResourceType.TOPIC, False),
        (ResourceType.BROKER, True),
        (ResourceType.BROKER, False),
        (ResourceType.BROKER_LOGGER, True),
        (ResourceType.BROKER_LOGGER, False),
        (ResourceType.TOPIC, False),
        (ResourceType.TOPIC, False),
    ]
