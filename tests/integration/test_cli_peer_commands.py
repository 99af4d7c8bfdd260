"""Commands for offsets, trimming and copying of topics, for log directories, and for the description of a cluster."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas import LocalCluster
from barnabas.cli.bench.commands import wait_for_record
from barnabas.cli.main import run_command
from barnabas.cli.records.topic_selection import MatchingConsumer, compile_patterns
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.blocking import Deadline
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import DEFAULT_NAME, ConfigAdmin, QuotaEntity
from barnabas.client.consumer import Beginning, ConsumedRecord, Consumer
from barnabas.client.offsets import latest_offsets
from barnabas.client.producer import Producer
from barnabas.errors import ApiError
from barnabas.model import TopicPartition
from support.command import COMMAND, run
from support.process import ENVIRONMENT
from support.waiting import eventually

OLD_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with (
        LocalCluster(settings={"log.retention.ms": "-1"}) as running,
        Cluster(running.bootstrap_servers) as client,
    ):
        yield client


class Command:
    """Runs commands in this process, against the cluster of the fixture."""

    def __init__(self, cluster: Cluster, captured: pytest.CaptureFixture[str]) -> None:
        self.servers = ",".join(f"{host}:{port}" for host, port in cluster.bootstrap)
        self.captured = captured

    def run(self, *arguments: str) -> tuple[int, str, str]:
        code = run_command([*arguments, "-b", self.servers])
        out, error = self.captured.readouterr()
        return code, out, error

    def text(self, *arguments: str) -> str:
        code, out, error = self.run(*arguments)
        assert (code, error) == (0, "")
        return out

    def json(self, *arguments: str) -> dict[str, Any]:
        found = json.loads(self.text(*arguments, "-o", "json"))
        assert isinstance(found, dict)
        return found


@pytest.fixture
def command(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> Command:
    return Command(cluster, capfd)


def write(cluster: Cluster, topic: str, partitions: int, count: int) -> None:
    """Create a topic with `count` records per partition. Record n has the timestamp OLD_MS + n."""
    (outcome,) = Admin(cluster).create_topics([NewTopic(name=topic, partitions=partitions)])
    assert outcome.error is None
    with Producer(cluster) as producer:
        for number in range(partitions):
            for n in range(count):
                producer.send(
                    topic,
                    None if n == 1 else f"value {n}".encode(),
                    key=f"key {n}".encode(),
                    headers=(("number", str(n).encode()), ("empty", None)),
                    partition=number,
                    timestamp=OLD_MS + n,
                )


def read(cluster: Cluster, topic: str) -> list[ConsumedRecord]:
    partitions = range(len(cluster.refresh([topic]).topic(topic).partitions))
    starts = {TopicPartition(topic, number): Beginning() for number in partitions}
    return sorted(Consumer(cluster, starts).records(stop_at_end=True))


def test_offsets_by_position_and_time(cluster: Cluster, command: Command) -> None:
    write(cluster, "positions", 2, 10)
    found = command.json("topics", "offsets", "positions", "--at", str(OLD_MS + 4))
    assert found == {
        "timestamp": OLD_MS + 4,
        "offsets": 20,
        "partitions": [
            {
                "topic": "positions",
                "partition": number,
                "earliest": 0,
                "latest": 10,
                "offsets": 10,
                "at_time": 4,
            }
            for number in (0, 1)
        ],
    }
    (row,) = command.json("topics", "offsets", "positions", "-p", "1", "--at", "@-1h")["partitions"]
    assert (row["partition"], row["at_time"]) == (1, None)
    assert "positions" in command.text("topics", "offsets")
    assert command.run("topics", "offsets", "-p", "1")[0] == 2
    assert command.run("topics", "offsets", "positions", "--at", "noon")[0] == 2


def test_trim_deletes_records_before_a_position(cluster: Cluster, command: Command) -> None:
    write(cluster, "trimmed", 2, 10)
    dry = command.json("topics", "trim", "trimmed", "--before", "4", "--dry-run")
    assert (dry["dry_run"], dry["deleted"]) == (True, 8)
    assert len(read(cluster, "trimmed")) == 20
    code, out, error = command.run("topics", "trim", "trimmed", "--before", "4")
    assert (code, out) == (2, "")
    assert "--yes" in error
    text = command.text("topics", "trim", "trimmed", "--before", "4", "-p", "1", "--yes")
    assert text.startswith("deleted 4 records of topic trimmed\n")
    assert [record.partition for record in read(cluster, "trimmed")].count(1) == 6
    command.text("topics", "trim", "trimmed", "--before", f"@{OLD_MS + 8}", "--yes")
    assert {record.offset for record in read(cluster, "trimmed")} == {8, 9}
    command.text("topics", "trim", "trimmed", "--before", "-1", "--yes")
    assert {record.offset for record in read(cluster, "trimmed")} == {9}
    again = command.text("topics", "trim", "trimmed", "--before", "3")
    assert again == "topic trimmed has no records there; nothing to delete\n"
    assert command.json("topics", "trim", "trimmed", "--before", "end", "--yes")["deleted"] == 2
    assert read(cluster, "trimmed") == []


def test_trim_rejects_wrong_positions(cluster: Cluster, command: Command) -> None:
    write(cluster, "kept", 1, 3)
    code, _, error = command.run("topics", "trim", "kept", "--before", "9", "--yes")
    assert code == 1
    assert "kept-0 ends at offset 3, before 9" in error
    for wrong in ("beginning", "soon", "@noon"):
        assert command.run("topics", "trim", "kept", "--before", wrong, "--yes")[0] == 2
    assert len(read(cluster, "kept")) == 3


def test_copy_keeps_keys_headers_and_timestamps(cluster: Cluster, command: Command) -> None:
    write(cluster, "from", 3, 50)
    dry = command.json("topics", "copy", "from", "to", "--dry-run")
    assert (dry["offsets"], dry["records"], dry["created"]) == (150, None, False)
    assert "to" not in cluster.refresh(None).topics
    found = command.json("topics", "copy", "from", "to", "-z", "gzip")
    assert (found["records"], found["created"], found["partitions_kept"]) == (150, True, True)
    assert [record._replace(topic="from") for record in read(cluster, "to")] == read(
        cluster, "from"
    )
    code, _, error = command.run("topics", "copy", "from", "to")
    assert code == 1
    assert "--append" in error
    more = command.text("topics", "copy", "from", "to", "--append", "--from", f"@{OLD_MS + 48}")
    assert more.startswith("copied 6 records of topic from to the existing topic to")
    assert len(read(cluster, "to")) == 156


def test_copy_to_other_partition_count_follows_keys(cluster: Cluster, command: Command) -> None:
    write(cluster, "many", 3, 20)
    write(cluster, "one", 1, 0)
    found = command.json("topics", "copy", "many", "one")
    assert (found["records"], found["partitions_kept"]) == (60, False)
    copied = read(cluster, "one")
    assert sorted(record.key or b"" for record in copied) == sorted(
        record.key or b"" for record in read(cluster, "many")
    )


def test_copy_rejects_targets_that_lose_timestamps(cluster: Cluster, command: Command) -> None:
    write(cluster, "stamped", 1, 1)
    configs = {"message.timestamp.type": "LogAppendTime"}
    Admin(cluster).create_topics([NewTopic(name="appended", configs=configs)])
    code, _, error = command.run("topics", "copy", "stamped", "appended")
    assert code == 1
    assert "LogAppendTime" in error
    assert command.run("topics", "copy", "stamped", "stamped")[0] == 2
    assert command.run("topics", "copy", "missing", "other")[0] == 1


@contextmanager
def slow_writes(cluster: Cluster) -> Iterator[None]:
    """Let each client write 10 KB/s, after a first request of any size."""
    everybody = QuotaEntity(client_id=DEFAULT_NAME)
    admin = ConfigAdmin(cluster)
    admin.alter_client_quotas({everybody: {"producer_byte_rate": 10_000}})
    try:
        yield
    finally:
        admin.alter_client_quotas({everybody: {"producer_byte_rate": None}})


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_interrupted_copy_reports_how_far_it_got(
    cluster: Cluster, command: Command, number: int, code: int
) -> None:
    source, target = f"large-{number}", f"partial-{number}"
    Admin(cluster).create_topics([NewTopic(name=name) for name in (source, target)])
    with Producer(cluster) as producer:
        for _ in range(60):
            producer.send(source, b"x" * 100_000)
    partition = TopicPartition(target, 0)
    with (
        slow_writes(cluster),
        subprocess.Popen(
            [*COMMAND, "topics", "copy", source, target, "-b", command.servers],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        ) as process,
    ):
        eventually(lambda: latest_offsets(cluster, [partition])[partition] > 0, "a part is copied")
        process.send_signal(number)
        out, error = process.communicate(timeout=30)
    assert (process.returncode, out) == (code, "")
    assert f" of 60 offsets copied; topic {target} is incomplete" in error
    assert "Traceback" not in error
    assert latest_offsets(cluster, [partition])[partition] < 60


def test_log_dirs_show_sizes_and_replicas(cluster: Cluster, command: Command) -> None:
    write(cluster, "stored", 2, 5)
    (found,) = command.json("brokers", "log-dirs", "--topic", "stored")["log_dirs"]
    assert found["error"] is None
    assert found["usable_bytes"] > 0
    assert [row["partition"] for row in found["replicas"]] == [0, 1]
    assert found["size_bytes"] == sum(row["size_bytes"] for row in found["replicas"]) > 0
    assert found["path"] in command.text("brokers", "log-dirs", str(found["broker"]))
    assert "stored" in command.text("brokers", "log-dirs", "--replicas")
    code, _, error = command.run("brokers", "log-dirs", "997")
    assert code == 1
    assert "there is no live broker 997" in error


def test_describe_cluster_counts_partitions(cluster: Cluster, command: Command) -> None:
    before = command.json("cluster", "describe")
    write(cluster, "counted", 7, 0)
    after = command.json("cluster", "describe")
    assert after["partitions"] == before["partitions"] + 7
    assert after["topics"] == before["topics"] + 1
    assert (after["offline"], after["under_replicated"]) == (0, 0)
    assert after["cluster_id"] == cluster.view.cluster_id
    text = command.text("cluster", "describe")
    assert "1 alive, 0 not alive" in text
    assert "controller" in text


def test_consume_several_topics_and_patterns(cluster: Cluster, command: Command) -> None:
    for name in ("web-a", "web-b", "other"):
        write(cluster, name, 1, 3)
    lines = command.text("consume", "web-a", "other", "-e", "-f", "%t %k\\n").splitlines()
    assert sorted(lines) == sorted(
        f"{topic} key {n}" for topic in ("web-a", "other") for n in range(3)
    )
    found = command.text("consume", "--regex", "web-.*", "-e", "-o", "json").splitlines()
    assert [json.loads(line)["topic"] for line in sorted(found)] == ["web-a"] * 3 + ["web-b"] * 3
    # A member of a group sets signal handlers, so it gets a process of its own.
    member = ("consume", "--regex", "web-.*", "-e", "-g", "readers", "-f", "%t\\n")
    grouped = run(*member, "-b", command.servers)
    assert sorted(grouped.stdout.split()) == ["web-a"] * 3 + ["web-b"] * 3
    code, _, error = command.run("consume", "--regex", "web", "-e")
    assert code == 1
    assert "no topic matches 'web'" in error
    assert command.run("consume", "--regex", "(", "-e")[0] == 2
    assert command.run("consume", "web-a", "web-b", "-p", "0", "-e")[0] == 2
    assert command.run("consume", "web-a", "web-c", "-e")[0] == 1


def test_matching_consumer_follows_new_and_deleted_topics(cluster: Cluster) -> None:
    write(cluster, "log-a", 1, 2)
    topics = ["log-a"]
    patterns = compile_patterns(["log-.*"])
    consumer = Consumer(
        cluster, {TopicPartition("log-a", 0): Beginning()}, watched_topics=topics, fetch_wait_ms=10
    )
    source = MatchingConsumer(consumer, topics, patterns)
    write(cluster, "log-b", 1, 2)
    source.next_check = Deadline(0)
    seen: list[str] = []
    deadline = Deadline(20)
    while len(seen) < 4 and not deadline.passed:
        seen += [record.topic for record in source.poll(1.0)]
    assert sorted(seen) == ["log-a", "log-a", "log-b", "log-b"]
    assert Admin(cluster).delete_topics(["log-a"])[0].error is None
    source.update_topics()
    assert {each.topic for each in consumer.positions} == {"log-b"}


@pytest.mark.parametrize("kind", ["produce", "consume", "latency"])
def test_bench_measures_and_deletes_its_topic(
    cluster: Cluster, command: Command, kind: str
) -> None:
    options = ("bench", kind, "--records", "500", "--size", "1000", "--partitions", "2")
    before = set(cluster.refresh(None).topics)
    dry = command.json(*options, "--dry-run")
    assert (dry["dry_run"], dry["records"], dry["p99_ms"]) == (True, 0, None)
    found = command.json(*options)
    assert (found["records"], found["bytes"]) == (500, 500_000)
    assert found["records_per_second"] == pytest.approx(500 / found["seconds"], rel=0.01)
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    assert set(cluster.refresh(None).topics) == before
    short = command.json(*options[:2], "--records", "10000000", "--seconds", "0.1")
    assert 0 < short["records"] < 10_000_000
    code, _, error = command.run(*options, "--replication-factor", "9")
    assert code == 1
    assert "INVALID_REPLICATION_FACTOR" in error


def test_bench_latency_gives_up_if_a_record_does_not_arrive(cluster: Cluster) -> None:
    Admin(cluster).create_topics([NewTopic(name="silent")])
    consumer = Consumer(cluster, {TopicPartition("silent", 0): Beginning()}, fetch_wait_ms=10)
    with pytest.raises(ApiError, match="REQUEST_TIMED_OUT: record 7 did not arrive"):
        wait_for_record(consumer, 7, 0.05)


def test_terminated_bench_deletes_its_topic(cluster: Cluster, command: Command) -> None:
    arguments = ("bench", "latency", "--records", "1000000", "--seconds", "60")
    before = set(cluster.refresh(None).topics)
    started = subprocess.Popen([*COMMAND, *arguments, "-b", command.servers], env=ENVIRONMENT)
    try:
        eventually(lambda: set(cluster.refresh(None).topics) > before, "the topic exists")
        started.terminate()
        assert started.wait(30) == 143
    finally:
        started.kill()
        started.wait()
    assert set(cluster.refresh(None).topics) == before


def test_compacted_topic_cannot_be_trimmed(cluster: Cluster, command: Command) -> None:
    Admin(cluster).create_topics(
        [NewTopic(name="kept-keys", configs={"cleanup.policy": "compact"})]
    )
    with Producer(cluster) as producer:
        producer.send("kept-keys", b"value", key=b"key")
    code, _, error = command.run("topics", "trim", "kept-keys", "--before", "end", "--yes")
    assert code == 1
    assert "error: POLICY_VIOLATION" in error
    assert "hint:  records can be deleted only from topics with delete in cleanup.policy" in error
