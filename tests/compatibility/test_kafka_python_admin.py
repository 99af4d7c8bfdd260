"""kafka-python's KafkaAdminClient: topics, settings, offsets, disks."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, OffsetSpec
from kafka.errors import (
    InvalidConfigurationError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from barnabas import LocalCluster

NUMBERS = count()


@pytest.fixture
def admin(servers: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=servers)
    yield client
    client.close()


def new_name() -> str:
    return f"kafka-python-{next(NUMBERS)}"


def test_topic_is_created_described_and_deleted(admin: KafkaAdminClient) -> None:
    name = new_name()
    wanted = {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "1000"}}
    (created,) = admin.create_topics({name: wanted})["topics"]
    assert (created["num_partitions"], created["replication_factor"]) == (2, 1)
    assert created["configs"]["retention.ms"]["value"] == "1000"
    (described,) = admin.describe_topics([name])
    assert described["topic_id"] == created["topic_id"]
    assert [partition["leader_id"] for partition in described["partitions"]] == [1, 1]
    assert name in admin.list_topics()
    admin.delete_topics([name])
    assert name not in admin.list_topics()


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("bad name", {}, InvalidTopicError),
        ("too-many-replicas", {"replication_factor": 3}, InvalidReplicationFactorError),
        ("bad-config", {"configs": {"no.such": "1"}}, InvalidConfigurationError),
    ],
)
def test_invalid_topic_creation_returns_error_code(
    admin: KafkaAdminClient, name: str, options: dict[str, Any], expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        admin.create_topics({name: options})


def test_existing_and_missing_topics_return_different_errors(
    admin: KafkaAdminClient, topic: str
) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([topic])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["nowhere"])
    (missing,) = admin.describe_topics(["nowhere"])
    assert missing["error_code"] == UnknownTopicOrPartitionError.errno


def test_describe_configs_of_topics_and_brokers(
    admin: KafkaAdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"retention.ms": "1000"})
    changed = admin.describe_configs([ConfigResource("topic", topic)])["topic"][topic]
    assert {name: entry["value"] for name, entry in changed.items()} == {"retention.ms": "1000"}
    broker = admin.describe_configs([ConfigResource("broker", "1")], config_filter="all")
    assert broker["broker"]["1"]["broker.id"]["value"] == "1"


def test_settings_of_a_topic_are_changed(
    admin: KafkaAdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"retention.ms": "1000"})
    admin.alter_configs([ConfigResource("topic", topic, configs={"flush.ms": "7"})])
    changed = admin.describe_configs([ConfigResource("topic", topic)])["topic"][topic]
    assert changed["flush.ms"]["value"] == "7"


def test_describe_cluster_and_log_dirs(
    admin: KafkaAdminClient, cluster: LocalCluster, topic: str
) -> None:
    described = admin.describe_cluster()
    (broker,) = described["brokers"]
    assert f"{broker['host']}:{broker['port']}" == cluster.bootstrap_servers
    assert described["controller_id"] == broker["broker_id"] == 1
    (answer,) = admin.describe_log_dirs([topic])
    (directory,) = answer["log_dirs"]
    assert directory["log_dir"] == str(cluster.data / "broker-1")
    assert [found["name"] for found in directory["topics"]] == [topic]


def test_records_are_deleted_and_offsets_listed(
    admin: KafkaAdminClient, servers: str, topic: str
) -> None:
    producer = KafkaProducer(bootstrap_servers=servers)
    for number in range(5):
        producer.send(topic, b"x", timestamp_ms=1_700_000_000_000 + number)
    producer.close()
    partition = TopicPartition(topic, 0)

    def offset(spec: int | OffsetSpec) -> int:
        found: int = admin.list_partition_offsets({partition: spec})[partition].offset
        return found

    assert (offset(OffsetSpec.EARLIEST), offset(OffsetSpec.LATEST)) == (0, 5)
    assert offset(1_700_000_000_002) == 2
    assert offset(OffsetSpec.MAX_TIMESTAMP) == 4
    assert admin.delete_records({partition: 3})[partition]["low_watermark"] == 3
    assert offset(OffsetSpec.EARLIEST) == 3
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({partition: 77})
