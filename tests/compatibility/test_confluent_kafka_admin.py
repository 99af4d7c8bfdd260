"""confluent-kafka's AdminClient: topics, settings, offsets."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.compatibility.raw import Raw
from tests.compatibility.raw_member import wait_until_loaded

NUMBERS = count()
SECONDS = 20


@pytest.fixture
def admin(servers: str) -> Iterator[AdminClient]:
    yield AdminClient({"bootstrap.servers": servers})


def new_name() -> str:
    return f"confluent-{next(NUMBERS)}"


def result(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(SECONDS)


def error_of(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as refusal:
        result(futures)
    code: int = refusal.value.args[0].code()
    return code


def test_topic_is_created_described_and_deleted(admin: AdminClient) -> None:
    name = new_name()
    result(admin.create_topics([NewTopic(name, 3, 1, config={"retention.ms": "1000"})]))
    described = result(admin.describe_topics(TopicCollection([name])))
    assert (described.name, len(described.partitions)) == (name, 3)
    assert [partition.leader.id for partition in described.partitions] == [1, 1, 1]
    assert name in admin.list_topics(timeout=SECONDS).topics
    result(admin.delete_topics([name]))
    assert name not in admin.list_topics(timeout=SECONDS).topics


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (NewTopic("bad name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("too-many-replicas", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("bad-config", 1, 1, config={"retention.ms": "x"}), KafkaError.INVALID_CONFIG),
        (NewTopic("no-config", 1, 1, config={"no.such": "x"}), KafkaError.INVALID_CONFIG),
    ],
)
def test_invalid_topic_creation_returns_error_code(
    admin: AdminClient, topic: NewTopic, expected: int
) -> None:
    assert error_of(admin.create_topics([topic])) == expected


def test_existing_and_missing_topics_return_different_errors(
    admin: AdminClient, topic: str
) -> None:
    assert error_of(admin.create_topics([NewTopic(topic, 1, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS
    assert error_of(admin.delete_topics(["nowhere"])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    described = admin.describe_topics(TopicCollection(["nowhere"]))
    assert error_of(described) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_validate_only_creates_nothing(admin: AdminClient) -> None:
    name = new_name()
    result(admin.create_topics([NewTopic(name, 1, 1)], validate_only=True))
    assert name not in admin.list_topics(timeout=SECONDS).topics


def test_describe_configs_of_topics_and_brokers(
    admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"retention.ms": "1000"})
    found = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    assert found["retention.ms"].value == "1000"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["cleanup.policy"].is_default
    assert "log.segment.bytes" in found["segment.bytes"].synonyms
    broker = result(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert broker["broker.id"].value == "1"
    assert broker["broker.id"].source == ConfigSource.STATIC_BROKER_CONFIG.value


def test_settings_are_changed_incrementally_and_replaced(
    admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"retention.ms": "1000"})

    def change(kind: ResourceType, name: str, *entries: ConfigEntry) -> None:
        result(
            admin.incremental_alter_configs(
                [ConfigResource(kind, name, incremental_configs=list(entries))]
            )
        )

    change(
        ResourceType.TOPIC,
        topic,
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ConfigEntry("flush.ms", "7", incremental_operation=AlterConfigOpType.SET),
    )
    found = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    values = {name: found[name].value for name in ("cleanup.policy", "flush.ms", "retention.ms")}
    assert values == {"cleanup.policy": "delete,compact", "flush.ms": "7", "retention.ms": "1000"}
    replacement = ConfigResource(ResourceType.TOPIC, topic, set_config={"flush.ms": "8"})
    with pytest.deprecated_call():
        futures = admin.alter_configs([replacement])
    result(futures)
    found = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    assert (found["flush.ms"].value, found["cleanup.policy"].is_default) == ("8", True)
    for value, operation in (("900", AlterConfigOpType.SET), (None, AlterConfigOpType.DELETE)):
        entry = ConfigEntry("max.connections", value, incremental_operation=operation)
        change(ResourceType.BROKER, "1", entry)
        broker = result(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
        assert broker["max.connections"].value == (value or "2147483647")


def test_unknown_setting_is_rejected(admin: AdminClient, topic: str) -> None:
    entry = ConfigEntry("retenton.ms", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    assert error_of(admin.incremental_alter_configs([resource])) == KafkaError.INVALID_CONFIG


def test_describe_cluster(admin: AdminClient, servers: str) -> None:
    described = admin.describe_cluster().result(SECONDS)
    (node,) = described.nodes
    assert f"{node.host}:{node.port}" == servers
    assert described.controller.id == node.id == 1
    assert described.cluster_id == admin.list_topics(timeout=SECONDS).cluster_id


def test_records_are_deleted_and_offsets_listed(
    admin: AdminClient, servers: str, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(5):
        producer.produce(topic, b"x", timestamp=1_700_000_000_000 + number)
    assert producer.flush(SECONDS) == 0

    def offset(spec: OffsetSpec) -> int:
        found: int = result(admin.list_offsets({TopicPartition(topic, 0): spec})).offset
        return found

    assert (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())) == (0, 5)
    assert offset(OffsetSpec.for_timestamp(1_700_000_000_002)) == 2
    assert offset(OffsetSpec.max_timestamp()) == 4
    deleted = result(admin.delete_records([TopicPartition(topic, 0, 3)]))
    assert deleted.low_watermark == 3
    assert offset(OffsetSpec.earliest()) == 3
    beyond = admin.delete_records([TopicPartition(topic, 0, 77)])
    assert error_of(beyond) == KafkaError.OFFSET_OUT_OF_RANGE


def test_election_not_needed_for_current_leader(admin: AdminClient, topic: str) -> None:
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 99)]
    for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        errors = admin.elect_leaders(kind, partitions).result(SECONDS)
        assert [errors[each].code() for each in partitions] == [
            KafkaError.ELECTION_NOT_NEEDED,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
        ]


def test_group_offsets_are_altered_listed_and_deleted(admin: AdminClient, raw: Raw) -> None:
    name, group = new_name(), new_name()
    # librdkafka retries while the coordinator loads, but reports success meanwhile.
    wait_until_loaded(raw, group)
    result(admin.create_topics([NewTopic(name, 2, 1)]))
    wanted = [TopicPartition(name, 0, 3), TopicPartition(name, 1, 5)]
    result(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)]))
    listed = result(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    assert {each.partition: each.offset for each in listed.topic_partitions} == {0: 3, 1: 5}
    assert group in [each.group_id for each in admin.list_consumer_groups().result(SECONDS).valid]
    described = result(admin.describe_consumer_groups([group]))
    assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])
    result(admin.delete_consumer_groups([group]))
    assert error_of(admin.delete_consumer_groups([group])) == KafkaError.GROUP_ID_NOT_FOUND
