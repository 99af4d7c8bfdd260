"""Kafka's own tools of 3.9 and 4 with our broker: they work as with Kafka."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from barnabas.errors import ErrorCode
from barnabas.wire.apis import APIS
from interop.harness.jars import KAFKA_3_9, KAFKA_4
from interop.harness.tools import Outcome, Tools
from support.broker import BrokerProcess
from tests.compatibility.raw import Raw, batch_of

NUMBERS = count()
TIMESTAMP = 1_700_000_000_000
# Requests from the controller to brokers in ZooKeeper mode, which Kafka 4 has removed.
OF_ZOOKEEPER_MODE = {"LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"}


class Cluster:
    """Runs the tools of one release against our broker."""

    def __init__(self, tools: Tools, broker: BrokerProcess) -> None:
        self.tools = tools
        self.broker = broker
        self.servers = broker.bootstrap_servers

    def tool(self, name: str, *arguments: str, stdin: str = "") -> Outcome:
        where = ("--bootstrap-server", self.servers)
        return self.tools.succeed(name, *where, *arguments, stdin=stdin)

    def run_rejected(self, name: str, *arguments: str) -> Outcome:
        outcome = self.tools.run(name, "--bootstrap-server", self.servers, *arguments)
        assert outcome.exit_code != 0, outcome
        return outcome

    def offsets(self, topic: str, *arguments: str) -> list[str]:
        return self.tool("kafka-get-offsets", "--topic", topic, *arguments).lines


@pytest.fixture
def cluster(tools: Tools, ours: BrokerProcess) -> Cluster:
    return Cluster(tools, ours)


@pytest.fixture
def new_topic(ours: BrokerProcess) -> Callable[..., str]:
    """Create a topic with these values in its first partition, one batch and one second each."""

    def make(*values: bytes, partitions: int = 1) -> str:
        name = f"tools-{next(NUMBERS)}"
        with Raw(ours.bootstrap_servers) as raw:
            raw.create_topic(name, partitions=partitions, configs={"retention.ms": "-1"})
            for number, value in enumerate(values):
                raw.produce(name, batch_of(value, timestamp=TIMESTAMP + 1000 * number))
        return name

    return make


# ---- kafka-topics


def test_kafka_topics_creates_describes_lists_and_deletes_topic(cluster: Cluster) -> None:
    name = f"made-{next(NUMBERS)}"
    settings = ("--config", "retention.ms=3600000", "--config", "segment.bytes=1048576")
    made = cluster.tool("kafka-topics", "--create", "--topic", name, "--partitions", "3", *settings)
    assert made.lines == [f"Created topic {name}."]

    head, *partitions = cluster.tool("kafka-topics", "--describe", "--topic", name).lines
    assert re.fullmatch(
        rf"Topic: {name}\tTopicId: [\w-]{{22}}\tPartitionCount: 3\tReplicationFactor: 1\t"
        r"Configs: (retention.ms=3600000,segment.bytes=1048576|segment.bytes=1048576,retention.ms=3600000)",
        head.strip(),
    )
    assert [line.split("\t")[2:6] for line in partitions] == [
        [f"Partition: {index}", "Leader: 1", "Replicas: 1", "Isr: 1"] for index in range(3)
    ]

    assert name in cluster.tool("kafka-topics", "--list").lines
    cluster.tool("kafka-topics", "--delete", "--topic", name)
    assert name not in cluster.tool("kafka-topics", "--list").lines


def test_kafka_topics_shows_kafka_exception_names(
    cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    again = cluster.run_rejected("kafka-topics", "--create", "--topic", topic)
    assert "TopicExistsException" in again.stdout + again.stderr
    wide = cluster.run_rejected(
        "kafka-topics", "--create", "--topic", "wide", "--replication-factor", "2"
    )
    assert "InvalidReplicationFactorException" in wide.stdout + wide.stderr
    strange = ("--config", "no.such.setting=1")
    unknown = cluster.run_rejected("kafka-topics", "--create", "--topic", "strange", *strange)
    assert "InvalidConfigurationException" in unknown.stdout + unknown.stderr
    gone = cluster.run_rejected("kafka-topics", "--delete", "--topic", "nowhere")
    assert "nowhere" in gone.stdout + gone.stderr


def test_kafka_topics_finds_no_unhealthy_partitions(
    cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    new_topic(partitions=2)
    for trouble in ("--under-replicated-partitions", "--unavailable-partitions"):
        assert cluster.tool("kafka-topics", "--describe", trouble).stdout == ""


# ---- kafka-get-offsets, kafka-delete-records, kafka-log-dirs


def test_kafka_get_offsets_of_every_kind(cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(b"a", b"b", b"c", partitions=2)
    assert cluster.offsets(topic) == [f"{topic}:0:3", f"{topic}:1:0"]
    assert cluster.offsets(topic, "--time", "earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert cluster.offsets(topic, "--time", str(TIMESTAMP + 1)) == [f"{topic}:0:1"]
    assert cluster.offsets(topic, "--time", "max-timestamp") == [f"{topic}:0:2"]
    one = ("--topic-partitions", f"{topic}:0")
    assert cluster.tool("kafka-get-offsets", *one).lines == [f"{topic}:0:3"]


@pytest.mark.parametrize("kind", ["earliest-local", "latest-tiered"])
def test_kafka_get_offsets_of_tiered_storage(
    cluster: Cluster, new_topic: Callable[..., str], kind: str
) -> None:
    topic = new_topic(b"a")
    expected = [f"{topic}:0:0"] if kind == "earliest-local" else []
    assert cluster.offsets(topic, "--time", kind) == expected


def test_kafka_delete_records_moves_log_start(
    cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(b"a", b"b", b"c")
    wanted = tmp_path / "delete.json"
    partitions = [{"topic": topic, "partition": 0, "offset": 2}]
    wanted.write_text(json.dumps({"version": 1, "partitions": partitions}))
    done = cluster.tool("kafka-delete-records", "--offset-json-file", str(wanted))
    assert f"partition: {topic}-0\tlow_watermark: 2" in done.lines
    assert cluster.offsets(topic, "--time", "earliest") == [f"{topic}:0:2"]

    partitions[0]["offset"] = 99
    wanted.write_text(json.dumps({"version": 1, "partitions": partitions}))
    beyond = cluster.tool("kafka-delete-records", "--offset-json-file", str(wanted))
    assert "OffsetOutOfRangeException" in beyond.stdout


def test_kafka_log_dirs_reports_log_sizes(cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(b"a" * 1000, partitions=2)
    output = cluster.tool("kafka-log-dirs", "--describe", "--topic-list", topic)
    (broker,) = json.loads(output.lines[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert (broker["broker"], directory["error"]) == (1, None)
    assert Path(directory["logDir"]) == cluster.broker.log_dir
    partitions = {found["partition"]: found for found in directory["partitions"]}
    log = cluster.broker.log_dir / f"{topic}-0" / f"{0:020}.log"
    assert partitions[f"{topic}-0"]["size"] == log.stat().st_size
    empty = partitions[f"{topic}-1"]
    assert (empty["size"], empty["offsetLag"], empty["isFuture"]) == (0, 0, False)


# ---- producing and consuming


def test_kafka_console_producer_and_consumer_round_trip(
    cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    # Kafka 4 renamed the option, and warns about the old name.
    reads, formats = ("--reader-property", "--formatter-property")
    if cluster.tools.release == KAFKA_3_9:
        reads = formats = "--property"
    keyed = (reads, "parse.key=true", reads, "key.separator=:")
    cluster.tool(
        "kafka-console-producer",
        *("--topic", topic, *keyed, "--compression-codec", "lz4"),
        stdin="".join(f"k:value {number}\n" for number in range(5)),
    )
    ends = dict(line.split(":")[1:] for line in cluster.offsets(topic))
    (partition,) = [index for index, end in ends.items() if end == "5"]
    read = cluster.tool(
        "kafka-console-consumer",
        *("--topic", topic, "--partition", partition, "--offset", "2", "--max-messages", "3"),
        *(formats, "print.key=true", formats, "print.offset=true"),
    )
    assert read.lines == [f"Offset:{at}\tk\tvalue {at}" for at in (2, 3, 4)]
    assert "Processed a total of 3 messages" in read.stderr


def test_kafka_console_consumer_reads_partition_until_timeout(
    cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(b"a", b"b")
    read = cluster.tool(
        "kafka-console-consumer",
        *("--topic", topic, "--partition", "0", "--offset", "earliest", "--timeout-ms", "3000"),
        *("--isolation-level", "read_committed"),
    )
    assert read.lines == ["a", "b"]


def test_kafka_producer_perf_test_acknowledges_all_records(
    cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    output = cluster.tools.succeed(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "5000", "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={cluster.servers}", "acks=all"),
    )
    assert "5000 records sent" in output.lines[-1]
    assert sum(int(line.rpartition(":")[2]) for line in cluster.offsets(topic)) == 5000


# ---- kafka-broker-api-versions


def test_kafka_broker_api_versions_can_use_all_apis(cluster: Cluster) -> None:
    output = cluster.tool("kafka-broker-api-versions").stdout
    assert re.match(rf"127\.0\.0\.1:{cluster.broker.port} \(id: 1 rack: null", output)
    offered = dict(re.findall(r"^\t(\w+)\((?:\d+)\): (.+?),?$", output, re.MULTILINE))
    for api in APIS.values():
        usable = rf"{api.versions[0]}( to {api.versions[-1]})? \[usable: \d+\]"
        if cluster.tools.release == KAFKA_4 and api.name in OF_ZOOKEEPER_MODE:
            usable = rf"{api.versions[0]} to {api.versions[-1]} \[unusable: node too new\]"
        assert re.fullmatch(usable, offered[api.name]), (api, offered[api.name])


# ---- kafka-transactions, kafka-features, kafka-cluster


def test_kafka_transactions_describes_producers(
    cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    with Raw(cluster.servers) as raw:
        batch = batch_of(b"a", b"b", producer_id=4711, producer_epoch=3, base_sequence=0)
        assert raw.produce(topic, batch).error_code == ErrorCode.NONE
    where = ("describe-producers", "--topic", topic, "--partition", "0")
    head, *rows = cluster.tool("kafka-transactions", *where).lines
    columns = ("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence")
    assert head.split()[:4] == list(columns)
    assert [row.split() for row in rows if row] == [
        ["4711", "3", "-1", "1", str(TIMESTAMP), "None"]
    ]


def test_kafka_features_reports_none_and_rejects_upgrade(cluster: Cluster) -> None:
    assert "Feature:" not in cluster.tool("kafka-features", "describe").stdout
    rejected = cluster.run_rejected("kafka-features", "upgrade", "--feature", "metadata.version=7")
    assert "not supported" in rejected.stdout + rejected.stderr


def test_kafka_cluster_cannot_unregister_a_broker(cluster: Cluster) -> None:
    """As with Kafka in ZooKeeper mode."""
    where = ("unregister", "--bootstrap-server", cluster.servers, "--id", "9")
    outcome = cluster.tools.run("kafka-cluster", *where)
    assert "does not support the broker unregistration API" in outcome.stdout + outcome.stderr
