"""kafkajs: producing and administration. It consumes only in groups."""

from collections.abc import Callable

import pytest

from barnabas import LocalCluster
from support.waiting import eventually
from tests import tools
from tests.compatibility.files import Files
from tests.compatibility.kafkajs_client import KafkaJsError, administer, ask, produce
from tests.compatibility.optional import require
from tests.compatibility.raw import Raw
from tests.compatibility.sample import BIG_VALUE, SAMPLES, TIMESTAMP, TOO_BIG_VALUE, Sample


@pytest.fixture(autouse=True)
def require_kafkajs() -> None:
    require(tools.have_kafkajs(), "kafkajs")


def stored_samples(files: Files, topic: str) -> list[Sample]:
    return [
        Sample(
            record.key,
            record.value,
            tuple((name, value or b"") for name, value in record.headers),
            record.timestamp,
        )
        for batch in files.batches(topic)
        for record in batch.records
    ]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_records_are_stored_with_codec(servers: str, topic: str, files: Files, codec: str) -> None:
    (answer,) = produce(servers, topic, SAMPLES, codec=codec)
    assert (answer["errorCode"], answer["baseOffset"]) == (0, "0")
    assert stored_samples(files, topic) == list(SAMPLES)
    assert files.codecs(topic) == {codec}


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_produce_with_every_acks_setting(servers: str, topic: str, files: Files, acks: int) -> None:
    produce(servers, topic, SAMPLES, acks=acks)
    with Raw(servers) as raw:  # with acks=0 records may still be in flight
        eventually(lambda: raw.list_offset(topic, -1).offset == len(SAMPLES), "all have arrived")
    assert stored_samples(files, topic) == list(SAMPLES)


def test_idempotent_producer_sets_batch_sequences(servers: str, topic: str, files: Files) -> None:
    produce(servers, topic, SAMPLES, idempotent=True)
    (batch,) = files.batches(topic)
    assert batch.header.producer_id >= 0
    assert batch.header.base_sequence == 0


def test_record_above_max_message_bytes_is_rejected(servers: str, topic: str, files: Files) -> None:
    big = [Sample(b"big", BIG_VALUE)]
    produce(servers, topic, big)
    assert stored_samples(files, topic) == big
    with pytest.raises(KafkaJsError) as refusal:
        produce(servers, topic, [Sample(None, TOO_BIG_VALUE)])
    assert refusal.value.kind == "MESSAGE_TOO_LARGE"


def test_producing_to_unknown_topic_creates_it(servers: str, files: Files) -> None:
    produce(servers, "created-by-kafkajs", [Sample(None, b"a")])
    assert files.values("created-by-kafkajs") == [b"a"]


def test_unknown_topic_is_not_created_when_auto_creation_is_off() -> None:
    with (
        LocalCluster(settings={"auto.create.topics.enable": "false"}) as strict,
        pytest.raises(KafkaJsError) as refusal,
    ):
        produce(strict.bootstrap_servers, "nowhere", [Sample(None, b"a")], retries=1)
    assert refusal.value.kind == "UNKNOWN_TOPIC_OR_PARTITION"


# ---- administration


def test_topic_is_created_described_and_deleted(servers: str) -> None:
    name = "made-by-kafkajs"
    configs = [{"name": "retention.ms", "value": "1000"}]
    wanted = {"topic": name, "numPartitions": 3, "configEntries": configs}
    assert administer(servers, "createTopics", topics=[wanted]) is True
    assert administer(servers, "createTopics", topics=[wanted]) is False  # it exists
    (described,) = administer(servers, "fetchTopicMetadata", topics=[name])["topics"]
    assert [partition["leader"] for partition in described["partitions"]] == [1, 1, 1]
    (answer,) = ask(servers, "describeConfigs", topic=name)["resources"]
    entries = {entry["configName"]: entry["configValue"] for entry in answer["configEntries"]}
    assert entries["retention.ms"] == "1000"
    assert name in administer(servers, "listTopics")
    administer(servers, "deleteTopics", topics=[name])
    assert name not in administer(servers, "listTopics")


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"topic": "bad name"}, "INVALID_TOPIC_EXCEPTION"),
        ({"topic": "replicas", "replicationFactor": 3}, "INVALID_REPLICATION_FACTOR"),
        (
            {"topic": "config", "configEntries": [{"name": "no.such", "value": "1"}]},
            "INVALID_CONFIG",
        ),
    ],
)
def test_invalid_topic_creation_returns_error_code(
    servers: str, wanted: dict[str, object], expected: str
) -> None:
    with pytest.raises(KafkaJsError) as refusal:
        administer(servers, "createTopics", topics=[wanted])
    assert refusal.value.kind == expected


def test_describe_cluster(servers: str) -> None:
    described = administer(servers, "describeCluster")
    host, _, port = servers.partition(":")
    assert described["brokers"] == [{"nodeId": 1, "host": host, "port": int(port)}]
    assert described["controller"] == 1


def test_list_offsets_and_delete_records(servers: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    samples = [Sample(None, b"x", timestamp=TIMESTAMP + 1000 * number) for number in range(5)]
    produce(servers, topic, samples)
    (before,) = ask(servers, "administer", method="fetchTopicOffsets", options=topic)
    assert (before["low"], before["high"]) == ("0", "5")
    (after,) = ask(servers, "deleteRecords", topic=topic, offset="3")
    assert (after["low"], after["high"]) == ("3", "5")
    with pytest.raises(KafkaJsError):
        ask(servers, "deleteRecords", topic=topic, offset="77", retries=0)
