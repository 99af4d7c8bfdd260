"""Topics are mirrored to another cluster, with their partitions, settings and records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from click.testing import CliRunner

from barnabas import LocalCluster
from barnabas.batch.compression import Compression
from barnabas.cli.main import cli
from barnabas.client.admin import Admin, NewPartitions
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigChange, ConfigResource
from barnabas.client.log_dir_admin import LogDirAdmin
from barnabas.client.producer import Producer
from barnabas.jobs import mirror as mirror_module
from barnabas.jobs import mirror_lease
from barnabas.jobs.errors import CopyDiffers, JobRefused
from barnabas.jobs.mirror import Mirror, mirror_topic
from barnabas.jobs.mirror_checkpoints import CheckpointStore
from barnabas.jobs.mirror_lease import MirrorLease
from barnabas.jobs.topic_state import find_state, topic_settings
from barnabas.model import TopicPartition
from barnabas.wire.messages.describe_configs import ResourceType
from tests.spark.topics import Topics, numbered


@pytest.fixture(scope="module")
def other(topics: Topics) -> Iterator[Topics]:
    """The topics of the target cluster."""
    settings = {"auto.create.topics.enable": "false", "log.retention.ms": "-1"}
    with LocalCluster(brokers=1, settings=settings) as running:
        yield Topics(topics.spark, running.bootstrap_servers)


@pytest.fixture
def mirror(topics: Topics, other: Topics) -> Iterator[Mirror]:
    with ExitStack() as stack:
        source = stack.enter_context(Cluster(topics.servers))
        target = stack.enter_context(Cluster(other.servers))
        source_id = Admin(source).describe_cluster().cluster_id
        store = CheckpointStore(target, source_id)
        yield Mirror(source, target, store, prefix="copy.")


def check_equal(topics: Topics, other: Topics, topic: str) -> None:
    def contents(found: Topics, name: str) -> dict[int, list[object]]:
        return {
            partition: [(each.key, each.value, each.timestamp, each.headers) for each in records]
            for partition, records in found.records(name).items()
        }

    assert contents(other, f"copy.{topic}") == contents(topics, topic)


def test_mirror_follows_records_partitions_and_settings(
    topics: Topics, other: Topics, mirror: Mirror
) -> None:
    topic = topics.create(partitions=2, segment_bytes="2000000")
    headers = [("h", b"x"), ("h", None)]
    topics.write(topic, numbered(50), keyed=True, headers=headers)
    topics.write(topic, ["old"], timestamps=[1_500_000_000_000])
    first = mirror_topic(topics.spark, mirror, topic)
    assert (first.records, first.lag, first.partitions) == (51, 0, 2)
    check_equal(topics, other, topic)
    assert topic_settings(mirror.target, f"copy.{topic}") == {
        "message.timestamp.type": "CreateTime",
        "segment.bytes": "2000000",
    }

    assert mirror_topic(topics.spark, mirror, topic).records == 0
    Admin(mirror.source).create_partitions([NewPartitions(name=topic, count=3)])
    topics.write(topic, numbered(9, "w"), partition=2)
    topics.write(topic, numbered(3, "x"), partition=0)
    assert mirror_topic(topics.spark, mirror, topic).records == 12
    check_equal(topics, other, topic)


def test_mirrored_batches_are_compressed(topics: Topics, other: Topics, mirror: Mirror) -> None:
    topic = topics.create()
    topics.write(topic, ["x" * 1000] * 500)
    mirror_topic(topics.spark, mirror._replace(compression=Compression.ZSTD), topic)
    check_equal(topics, other, topic)
    described = LogDirAdmin(mirror.target).describe_log_dirs(
        partitions=[TopicPartition(f"copy.{topic}", 0)]
    )
    ((found,),) = described.values()
    assert 0 < found.logs[0].size_bytes < 50_000


def test_interrupted_run_is_continued(topics: Topics, other: Topics, mirror: Mirror) -> None:
    """A run is killed after it has copied records, before it stores the checkpoints."""

    class Killed(Exception):
        pass

    class FailingStore(CheckpointStore):
        def save(self, topic: str, target: str, checkpoints: object) -> None:
            if any(each.source_offset for each in checkpoints.values()):  # type: ignore[attr-defined]
                raise Killed
            super().save(topic, target, checkpoints)  # type: ignore[arg-type]

    topic = topics.create(partitions=2)
    topics.write(topic, numbered(30), partition=0)
    topics.write(topic, numbered(20), partition=1)
    failing = mirror._replace(checkpoints=FailingStore(mirror.target, mirror.checkpoints.source_id))
    with pytest.raises(Killed):
        mirror_topic(topics.spark, failing, topic)
    topics.write(topic, numbered(5, "w"), partition=1)
    assert mirror_topic(topics.spark, mirror, topic).records == 55
    check_equal(topics, other, topic)


def test_records_are_copied_in_several_ranges(
    topics: Topics, other: Topics, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "OFFSETS_MAX", 20)
    topic = topics.create()
    topics.write(topic, numbered(50))
    topics.delete_records({TopicPartition(topic, 0): 10})
    lags: list[int] = []
    while not lags or lags[-1]:
        lags.append(mirror_topic(topics.spark, mirror, topic).lag)
    assert lags == [20, 0]
    copied = other.records(f"copy.{topic}")[0]
    assert [(each.value or b"").decode() for each in copied] == numbered(50)[10:]


def test_foreign_records_in_target_are_found(topics: Topics, other: Topics, mirror: Mirror) -> None:
    topic = topics.create()
    topics.write(topic, numbered(5))
    mirror_topic(topics.spark, mirror, topic)
    topics.write(topic, numbered(5, "w"))
    other.write(f"copy.{topic}", ["w0000", "foreign"])
    with pytest.raises(CopyDiffers, match="position 0: timestamp differs"):
        mirror_topic(topics.spark, mirror, topic)


def test_target_that_is_no_mirror_is_refused(topics: Topics, other: Topics, mirror: Mirror) -> None:
    topic = topics.create(partitions=2, retention_ms="1000")
    topics.write(topic, numbered(5))
    other.create(f"copy.{topic}", mark=False)
    with Producer(mirror.target) as producer:
        producer.send(f"copy.{topic}", b"own")
    with pytest.raises(JobRefused, match="exists in the target cluster and is not a mirror"):
        mirror_topic(topics.spark, mirror, topic)
    state = find_state(mirror.target, f"copy.{topic}")
    assert state is not None and (state.partition_count, state.settings) == (1, {})
    assert [each.value for each in other.records(f"copy.{topic}")[0]] == [b"own"]


def test_deleted_topics_are_mirrored_again(topics: Topics, other: Topics, mirror: Mirror) -> None:
    topic = topics.create()
    target = f"copy.{topic}"
    topics.write(topic, numbered(5))
    mirror_topic(topics.spark, mirror, topic)
    other.delete(target)
    assert mirror_topic(topics.spark, mirror, topic).records == 5
    check_equal(topics, other, topic)

    topics.recreate(topic)
    topics.write(topic, numbered(3, "w"))
    with pytest.raises(JobRefused, match="created again in the source") as refused:
        mirror_topic(topics.spark, mirror, topic)
    assert f"delete topic {target}" in str(refused.value)
    other.delete(target)
    assert mirror_topic(topics.spark, mirror, topic).records == 3
    check_equal(topics, other, topic)


def run_command(topics: Topics, other: Topics, *arguments: str) -> str:
    servers = ["--from", topics.servers, "--to", other.servers, "--prefix", "copy."]
    result = CliRunner().invoke(cli, ["topics", "mirror", *servers, *arguments])
    return result.stdout + str(result.exception or "")


def test_dry_run_shows_offsets_and_changes(topics: Topics, other: Topics, mirror: Mirror) -> None:
    topic = topics.create("planets", partitions=2)
    topics.write(topic, numbered(7), partition=0)

    def plan() -> list[str]:
        found = run_command(topics, other, topic, "--dry-run", "-o", "json")
        (planned,) = json.loads(found)["topics"]
        return [
            planned[name] for name in ("offsets", "lost", "exists", "new_partitions", "settings")
        ]

    assert plan() == [7, 0, False, 0, []]
    assert find_state(mirror.target, f"copy.{topic}") is None
    mirror_topic(topics.spark, mirror, topic)
    assert plan() == [0, 0, True, 0, []]

    topics.write(topic, numbered(4, "w"), partition=0)
    topics.delete_records({TopicPartition(topic, 0): 9})
    Admin(mirror.source).create_partitions([NewPartitions(name=topic, count=3)])
    topics.write(topic, numbered(5, "x"), partition=2)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    changes = [ConfigChange("segment.bytes", "3000000")]
    ConfigAdmin(mirror.source).incremental_alter_configs({resource: changes})
    assert plan() == [7, 2, True, 1, ["segment.bytes"]]
    text = run_command(topics, other, topic, "--dry-run")
    assert "would copy 7 offsets of 1 topic" in text
    assert "1 new partition; settings segment.bytes" in text
    state = find_state(mirror.target, f"copy.{topic}")
    assert state is not None and state.partition_count == 2

    other.create(f"copy.{topic}-2", mark=False)
    other.write(f"copy.{topic}-2", ["own"])
    topics.create(f"{topic}-2", mark=False)
    assert "is not a mirror" in run_command(topics, other, f"{topic}-2", "--dry-run")


def test_refused_topic_does_not_stop_the_others(topics: Topics, other: Topics) -> None:
    names = [topics.create(f"comets{number}") for number in range(3)]
    for name in names:
        topics.write(name, numbered(2))
    other.create(f"copy.{names[0]}", mark=False)
    other.write(f"copy.{names[0]}", ["own"])
    pattern = f"({'|'.join(names)})"
    planned = run_command(topics, other, pattern, "--dry-run")
    assert "would copy 4 offsets of 2 topics" in planned
    assert f"topic copy.{names[0]} exists in the target cluster and is not a mirror" in planned


def test_mirrors_in_the_same_cluster_are_not_mirrored(topics: Topics) -> None:
    topic = topics.create("moons")
    topics.create(f"copy.{topic}", mark=False)
    found = run_command(topics, topics, f".*{topic}", "--dry-run", "-o", "json")
    assert [each["topic"] for each in json.loads(found)["topics"]] == [topic]


def test_command_rejects_bad_input(topics: Topics, other: Topics) -> None:
    topic = topics.create()
    assert "no topic" in run_command(topics, other, "zzz")
    assert "PATTERN: '[' is not a regular expression" in run_command(topics, other, "[")
    same = run_command(topics, topics, topic, "--prefix", "")
    assert "--to: is the same cluster as --from" in same


def test_second_run_at_the_same_time_is_refused(
    topics: Topics, other: Topics, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create()
    topics.write(topic, numbered(3))
    mirror.checkpoints.ensure_topic()
    target = f"copy.{topic}"
    with MirrorLease(mirror.target, target) as lease:
        with pytest.raises(JobRefused, match=f"another run, process .* mirrors to topic {target}"):
            mirror_topic(topics.spark, mirror, topic)
        assert find_state(mirror.target, target) is None
        # A run that was killed does not renew its lease, so the next run takes it.
        lease.ended.set()
        monkeypatch.setattr(mirror_lease, "EXPIRY_S", 0.5)
        assert mirror_topic(topics.spark, mirror, topic).records == 3
        with MirrorLease(mirror.target, target), pytest.raises(JobRefused, match="wait for its en"):
            lease.check()
    check_equal(topics, other, topic)
    assert mirror_topic(topics.spark, mirror, topic).records == 0
