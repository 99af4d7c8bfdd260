"""Jobs over whole topics survive SIGKILL: archive, restore, resize and mirror are killed, repeated, and then complete.

BARNABAS_FAULT_ROUNDS sets the number of kills of each job (default 1, because each starts Spark; `make faults` uses
20). BARNABAS_SEED repeats the moments of a run.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from random import Random

import psutil
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Consumer
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.offsets import latest_offsets
from barnabas.client.partitioner import partition_of_key
from barnabas.client.producer import Producer
from barnabas.jobs.archive import run_archive
from barnabas.jobs.archive_directory import ArchiveDirectory
from barnabas.jobs.copy_topic import NewCopy
from barnabas.jobs.manifest import Manifest
from barnabas.jobs.mirror import Mirror, mirror_topic
from barnabas.jobs.mirror_checkpoints import CheckpointStore
from barnabas.jobs.resize import run_resize
from barnabas.jobs.restore import run_restore
from barnabas.jobs.topic_state import look_up_state
from barnabas.model import TopicPartition
from barnabas.spark import session
from support.broker import BrokerProcess
from support.command import COMMAND
from support.process import ChildProcess
from support.seed import choose_seed
from tests.faults.raw_client import RawClient
from tests.processes import assert_ended

ROUNDS = int(os.environ.get("BARNABAS_FAULT_ROUNDS") or 1)
SOURCE = "orders"
PARTITIONS, RESIZED = 4, 3
RECORDS = 30_000
VALUE = b"x" * 100
JOB_SECONDS = 120.0
SPREAD_S = 1.5
"""The kill comes at most this long after the chosen moment."""

Values = dict[int, list[bytes]]


@pytest.fixture
def spark(trained_spark: str) -> Iterator[SparkSession]:
    """The session for the repeated runs."""
    is_new = SparkSession.getActiveSession() is None
    running = session("local[2]", short=True, progress=False)
    running.sparkContext.setLogLevel("OFF")
    yield running
    if is_new:
        running.stop()


class Jobs:
    """The jobs of one cluster, and the moments at which they are killed."""

    def __init__(
        self, broker: BrokerProcess, directory: Path, spark: SparkSession, cluster: Cluster
    ) -> None:
        self.servers = broker.bootstrap_servers
        self.log_dir = broker.log_dir
        self.directory = directory
        self.spark = spark
        self.cluster = cluster
        self.outcomes: Counter[str] = Counter()

    def kill(
        self, name: str, arguments: list[str], moment: Callable[[], bool], chance: Random
    ) -> None:
        """Start a job as a user does, and kill it and its JVM a random time after the moment."""
        command = [*COMMAND, "topics", *arguments, "--master", "local[2]"]
        process = ChildProcess(name, command, log=self.directory / f"{name}.log", is_isolated=True)
        deadline = time.monotonic() + JOB_SECONDS
        while process.is_running and not moment():
            assert time.monotonic() < deadline, process.describe()
            time.sleep(0.001)
        time.sleep(chance.uniform(0, SPREAD_S))
        self.outcomes[f"{name} {'killed' if process.is_running else 'had ended'}"] += 1
        assert process.exit_code in (None, 0), process.describe()
        workers = psutil.Process(process.pid).children(recursive=True) if process.is_running else []
        process.kill()
        if name != "archive":
            # A worker may still send the first batch of a partition that the next run finds empty (docs/topic-jobs.md).
            assert_ended(workers, 60.0)

    def has_bytes(self, topic: str, bytes_min: int) -> bool:
        return self.size(topic) >= bytes_min

    def size(self, topic: str) -> int:
        """Bytes of a topic on disk; -1 if it does not exist."""
        logs = list(self.log_dir.glob(f"{topic}-*/*.log"))
        return sum(path.stat().st_size for path in logs) if logs else -1

    def values(self, topic: str, partitions: int) -> Values:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        self.cluster.refresh([topic])
        left = sum(latest_offsets(self.cluster, places).values())
        consumer = Consumer(self.cluster, dict.fromkeys(places, Beginning()))
        found: Values = {number: [] for number in range(partitions)}
        while left:
            for record in consumer.poll(1.0):
                found[record.partition].append((record.value or b"")[len(VALUE) :])
                left -= 1
        return found

    def open_spark(self, _records: int) -> nullcontext[SparkSession]:
        return nullcontext(self.spark)

    def new_copy(self, name: str, partitions: int) -> NewCopy:
        return NewCopy(name=name, partition_count=partitions, settings={"retention.ms": "-1"})

    # ---- the repeated runs

    def archive(self, root: Path) -> Manifest:
        run = run_archive(
            self.open_spark,
            self.cluster,
            self.servers,
            SOURCE,
            ArchiveDirectory(root / SOURCE),
        )
        assert run.manifest is not None
        return run.manifest

    def restore(self, root: Path, name: str) -> None:
        archive, new = ArchiveDirectory(root / SOURCE), self.new_copy(name, PARTITIONS)
        spark = self.open_spark
        run_restore(spark, self.cluster, self.servers, archive, new)

    def resize(self, name: str) -> None:
        source, new = look_up_state(self.cluster, SOURCE), self.new_copy(name, RESIZED)
        spark = self.open_spark
        run_resize(spark, self.cluster, self.servers, source, new)


def write_source(cluster: Cluster) -> None:
    with Producer(cluster) as producer:
        for number in range(RECORDS):
            producer.send(SOURCE, VALUE + b"%d" % number, key=b"%d" % (number % 1000))


def archived_values(root: Path) -> Values:
    found: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(PARTITIONS)}
    for path in root.rglob("*.parquet"):
        table = pq.ParquetFile(path).read(["offset", "value"]).to_pydict()
        rows = zip(table["offset"], table["value"], strict=True)
        found[int(path.parent.name.partition("=")[2])] += rows
    return {
        number: [value[len(VALUE) :] for _, value in sorted(rows)] for number, rows in found.items()
    }


@pytest.mark.timeout(300 + 180 * ROUNDS)
def test_killed_jobs_complete_when_repeated(tmp_path: Path, spark: SparkSession) -> None:
    chance = Random(choose_seed())
    settings = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        with RawClient(broker.address) as client:
            assert client.create_topic(SOURCE, PARTITIONS) == 0
        with Cluster(broker.bootstrap_servers) as cluster:
            write_source(cluster)
            jobs = Jobs(broker, tmp_path, spark, cluster)
            expected = jobs.values(SOURCE, PARTITIONS)
            assert sum(map(len, expected.values())) == RECORDS
            for number in range(ROUNDS):
                kill_archive(jobs, tmp_path / f"archive-{number}", chance, expected)
                kill_restore(
                    jobs, tmp_path / f"archive-{number}", f"restored-{number}", chance, expected
                )
                kill_resize(jobs, f"resized-{number}", chance, expected)
            groups = [each.group_id for each in GroupAdmin(cluster).list_groups()]
        assert "Traceback" not in broker.log()
    assert not groups, "offsets of a resize are left"
    print(f"jobs: {dict(jobs.outcomes)}")


@pytest.mark.timeout(300 + 60 * ROUNDS)
def test_killed_mirror_loses_and_doubles_no_record(tmp_path: Path, spark: SparkSession) -> None:
    chance = Random(choose_seed())
    with (
        BrokerProcess(tmp_path / "source") as source,
        BrokerProcess(tmp_path / "target") as target,
        Cluster(source.bootstrap_servers) as source_cluster,
        Cluster(target.bootstrap_servers) as target_cluster,
    ):
        with RawClient(source.address) as client:
            assert client.create_topic(SOURCE, PARTITIONS) == 0
        jobs = Jobs(target, tmp_path, spark, target_cluster)
        servers = ["--from", source.bootstrap_servers, "--to", target.bootstrap_servers]
        for _ in range(ROUNDS):
            write_source(source_cluster)
            bytes_min = jobs.size(SOURCE) + chance.choice([0, 1, RECORDS * 30, RECORDS * 100])
            moment = partial(jobs.has_bytes, SOURCE, bytes_min)
            jobs.kill("mirror", ["mirror", SOURCE, *servers], moment, chance)
        store = CheckpointStore(target_cluster, Admin(source_cluster).describe_cluster().cluster_id)
        mirror = Mirror(
            source_cluster,
            source.bootstrap_servers,
            target_cluster,
            target.bootstrap_servers,
            store,
        )
        while mirror_topic(spark, mirror, SOURCE).lag:
            pass
        expected = Jobs(source, tmp_path, spark, source_cluster).values(SOURCE, PARTITIONS)
        assert sum(map(len, expected.values())) == RECORDS * ROUNDS
        assert jobs.values(SOURCE, PARTITIONS) == expected
    print(f"mirror: {dict(jobs.outcomes)}")


def kill_archive(jobs: Jobs, root: Path, chance: Random, expected: Values) -> None:
    patterns = ["_lock", "_staging-*", "_staging-*/date=*", "_staging-*/*.part", "date=*"]
    pattern = chance.choice(patterns)
    arguments = ["archive", SOURCE, "--to", str(root), "-b", jobs.servers]
    jobs.kill("archive", arguments, lambda: any((root / SOURCE).glob(pattern)), chance)
    manifest = jobs.archive(root)
    assert manifest.records == RECORDS
    files = {
        path.relative_to(root / SOURCE).as_posix() for path in root.rglob("*") if path.is_file()
    }
    assert files == {"_lock", "_manifest.json", *(file.path for file in manifest.files)}
    assert archived_values(root) == expected


def kill_restore(jobs: Jobs, root: Path, name: str, chance: Random, expected: Values) -> None:
    bytes_min = chance.choice([0, 1, RECORDS * 30, RECORDS * 100])
    arguments = [
        "restore",
        str(root),
        "--to",
        name,
        "--config",
        "retention.ms=-1",
        "-b",
        jobs.servers,
    ]
    jobs.kill("restore", arguments, lambda: jobs.size(name) >= bytes_min, chance)
    jobs.restore(root, name)
    assert jobs.values(name, PARTITIONS) == expected


def kill_resize(jobs: Jobs, name: str, chance: Random, expected: Values) -> None:
    bytes_min = chance.choice([0, 1, RECORDS * 30, RECORDS * 100])
    partitions = ["--partitions", str(RESIZED), "--config", "retention.ms=-1"]
    arguments = ["resize", SOURCE, *partitions, "--to", name, "-b", jobs.servers]
    jobs.kill("resize", arguments, lambda: jobs.size(name) >= bytes_min, chance)
    jobs.resize(name)
    found = jobs.values(name, RESIZED)
    source_order = {value: at for values in expected.values() for at, value in enumerate(values)}
    for partition, values in found.items():
        by_key: dict[int, list[int]] = {}
        for value in values:
            by_key.setdefault(int(value) % 1000, []).append(source_order[value])
        assert all(positions == sorted(positions) for positions in by_key.values())
        assert all(partition_of_key(b"%d" % key, RESIZED) == partition for key in by_key)
    copied = Counter(value for values in found.values() for value in values)
    assert copied == Counter(value for values in expected.values() for value in values)
