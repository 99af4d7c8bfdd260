"""Kafka Streams, Kafka Connect and MirrorMaker 2 run on our brokers, while a broker is killed."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from barnabas import LocalCluster
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.java.find import Java
from interop.harness import jvm
from interop.harness.jars import FRAMEWORKS, INTEROP, Jars
from interop.topics import create_topic, read, read_committed, write
from support.ports import free_port
from support.process import ChildProcess
from support.waiting import eventually

DEADLINE_S = 90.0


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings={"default.replication.factor": "3"}) as running:
        yield running


@contextmanager
def running_java(
    java: Java, jars: Jars, directory: Path, *arguments: str
) -> Iterator[ChildProcess]:
    """Run a Java program. It is killed at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    command = jvm.command(
        java,
        jars.class_path(FRAMEWORKS),
        *arguments,
        scratch=directory,
        options=jvm.SMALL_SERVER,
    )
    process = ChildProcess(
        arguments[0], command, log=directory / "log", directory=directory, is_isolated=True
    )
    try:
        yield process
    finally:
        process.kill()


def wait(condition: Callable[[], bool], describe: Callable[[], str]) -> None:
    try:
        eventually(condition, "the program is done", DEADLINE_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{describe()}") from None


def properties(path: Path, settings: Mapping[str, object]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def test_kafka_streams_counts_words_after_kills(
    java: Java, kafka_jars: Jars, cluster: LocalCluster, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    create_topic(servers, "lines", 3)
    create_topic(servers, "words", 2)
    program = str(INTEROP / "java" / "WordCount.java")
    state = str(tmp_path / "state")
    arguments = (program, servers, "lines", "words", state, "at_least_once")

    def counts() -> dict[str, int]:
        last: dict[str, int] = {}
        for record in read(servers, "words"):
            (count,) = struct.unpack(">q", record.value or b"")
            key = (record.key or b"").decode()
            last[key] = max(count, last.get(key, 0))
        return last

    write(servers, "lines", ["all streams lead to kafka", "hello kafka streams"] * 10)
    with running_java(java, kafka_jars, tmp_path / "first", *arguments):
        expected = {"all": 10, "streams": 20, "lead": 10, "to": 10, "kafka": 20, "hello": 10}
        wait(lambda: counts() == expected, lambda: f"counts: {counts()}")
        killed = cluster.brokers[cluster.controller_id or 1]
        killed.kill()
        write(servers, "lines", ["hello again"] * 5)
        expected |= {"hello": 15, "again": 5}
        wait(lambda: counts() == expected, lambda: f"counts: {counts()}")
        killed.start()
    write(servers, "lines", ["again"] * 5)
    expected["again"] = 10
    # The program was killed. Its state comes from the changelog topic, and no word is lost.
    with running_java(java, kafka_jars, tmp_path / "second", *arguments):
        wait(
            lambda: all(counts().get(word, 0) >= count for word, count in expected.items()),
            lambda: f"counts: {counts()}",
        )


def test_kafka_streams_counts_words_exactly_once(
    java: Java, kafka_jars: Jars, cluster: LocalCluster, tmp_path: Path
) -> None:
    """The counts of each word ascend, whatever is killed. Without transactions, some would appear again."""
    servers = cluster.bootstrap_servers
    create_topic(servers, "lines", 3)
    create_topic(servers, "words", 2)
    program = str(INTEROP / "java" / "WordCount.java")
    state = str(tmp_path / "state")
    arguments = (program, servers, "lines", "words", state, "exactly_once_v2")

    def counts() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for key, value in read_committed(servers, "words", 2):
            found.setdefault(key.decode(), []).append(struct.unpack(">q", value)[0])
        return found

    def has_counted(expected: dict[str, int]) -> bool:
        found = counts()
        assert all(each == sorted(set(each)) for each in found.values()), found
        return {word: each[-1] for word, each in found.items()} == expected

    write(servers, "lines", ["all streams lead to kafka"] * 10)
    expected = {"all": 10, "streams": 10, "lead": 10, "to": 10, "kafka": 10}
    with running_java(java, kafka_jars, tmp_path / "first", *arguments):
        log = tmp_path / "first" / "log"
        wait(lambda: has_counted(expected), lambda: f"{counts()}\n{log.read_text()[-2000:]}")
        killed = cluster.brokers[cluster.controller_id or 1]
        killed.kill()
        write(servers, "lines", ["all again"] * 5)
        expected |= {"all": 15, "again": 5}
        wait(lambda: has_counted(expected), lambda: f"{counts()}\n{log.read_text()[-2000:]}")
        killed.start()
        write(servers, "lines", ["again"] * 100)
    # The program was killed at any time of its work.
    expected["again"] = 105
    with running_java(java, kafka_jars, tmp_path / "second", *arguments):
        log = tmp_path / "second" / "log"
        wait(lambda: has_counted(expected), lambda: f"{counts()}\n{log.read_text()[-2000:]}")


def test_kafka_connect_writes_lines_of_file_exactly_once(
    java: Java, kafka_jars: Jars, cluster: LocalCluster, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    create_topic(servers, "once-lines", 1)
    source = tmp_path / "source.txt"
    expected = [b"line %d" % number for number in range(200)]
    source.write_bytes(b"".join(line + b"\n" for line in expected))
    port = free_port()
    converter = "org.apache.kafka.connect.storage.StringConverter"
    worker = properties(
        tmp_path / "worker.properties",
        {
            "bootstrap.servers": servers,
            "group.id": "workers",
            "exactly.once.source.support": "enabled",
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "status.storage.topic": "connect-status",
            "key.converter": converter,
            "value.converter": converter,
            "listeners": f"HTTP://127.0.0.1:{port}",
            "plugin.discovery": "service_load",
            "scheduled.rebalance.max.delay.ms": 0,
        },
    )
    connector = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(source),
        "topic": "once-lines",
        "exactly.once.support": "required",
    }

    def put_connector() -> bool:
        request = Request(
            f"http://127.0.0.1:{port}/connectors/lines/config",
            json.dumps(connector).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        try:
            with urlopen(request, timeout=10) as response:
                return response.status in (200, 201)
        except OSError:
            return False

    def lines() -> list[bytes]:
        found = [value for _, value in read_committed(servers, "once-lines", 1)]
        assert found == expected[: len(found)], "a line is missing, or there twice"
        return found

    def append(count: int) -> None:
        more = [b"more %d" % number for number in range(count)]
        expected.extend(more)
        with source.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in more))

    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    with running_java(java, kafka_jars, tmp_path / "first", main, worker):
        log = tmp_path / "first" / "log"
        wait(put_connector, lambda: log.read_text()[-2000:])
        wait(lambda: lines() == expected, lambda: log.read_text()[-2000:])
        cluster.brokers[cluster.controller_id or 1].kill()
        append(100)
        wait(lambda: lines() == expected, lambda: log.read_text()[-2000:])
        append(1000)
    # The worker was killed while it copied lines. Its successor continues after the last committed line.
    with running_java(java, kafka_jars, tmp_path / "second", main, worker):
        log = tmp_path / "second" / "log"
        wait(lambda: lines() == expected, lambda: log.read_text()[-2000:])


def test_kafka_connect_copies_file_to_topic_to_file(
    java: Java, kafka_jars: Jars, cluster: LocalCluster, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    create_topic(servers, "file-lines", 1)
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    text = "".join(f"line {number}\n" for number in range(200))
    source.write_text(text)
    converter = "org.apache.kafka.connect.storage.StringConverter"
    worker = properties(
        tmp_path / "worker.properties",
        {
            "bootstrap.servers": servers,
            "key.converter": converter,
            "value.converter": converter,
            "offset.storage.file.filename": tmp_path / "offsets",
            "offset.flush.interval.ms": 500,
            "listeners": f"HTTP://127.0.0.1:{free_port()}",
            "plugin.discovery": "service_load",
        },
    )
    reader = properties(
        tmp_path / "source.properties",
        {
            "name": "file-source",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": source,
            "topic": "file-lines",
        },
    )
    writer = properties(
        tmp_path / "sink.properties",
        {
            "name": "file-sink",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "file": sink,
            "topics": "file-lines",
        },
    )

    def committed() -> list[int]:
        with Cluster(servers) as client:
            found = GroupAdmin(client).committed_offsets("connect-file-sink")
        return [each.offset for each in found.values()]

    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    with running_java(java, kafka_jars, tmp_path / "connect", main, worker, reader, writer):
        wait(
            lambda: sink.exists() and sink.read_text() == text and committed() == [200],
            lambda: (tmp_path / "connect" / "log").read_text()[-2000:],
        )
    assert [record.value for record in read(servers, "file-lines")] == [
        line.encode() for line in text.splitlines()
    ]


def test_mirror_maker_copies_topics_and_offsets(
    java: Java, kafka_jars: Jars, cluster: LocalCluster, tmp_path: Path
) -> None:
    with LocalCluster() as target:
        create_topic(cluster.bootstrap_servers, "orders", 3)
        write(cluster.bootstrap_servers, "orders", [f"order {number}" for number in range(300)])
        settings = {
            "clusters": "here, there",
            "here.bootstrap.servers": cluster.bootstrap_servers,
            "there.bootstrap.servers": target.bootstrap_servers,
            "here->there.enabled": "true",
            "here->there.topics": "orders",
            "there->here.enabled": "false",
            "replication.factor": 1,
            "checkpoints.topic.replication.factor": 1,
            "heartbeats.topic.replication.factor": 1,
            "offset-syncs.topic.replication.factor": 1,
            "config.storage.replication.factor": 1,
            "offset.storage.replication.factor": 1,
            "status.storage.replication.factor": 1,
            "refresh.topics.interval.seconds": 1,
        }
        path = properties(tmp_path / "mm2.properties", settings)
        main = "org.apache.kafka.connect.mirror.MirrorMaker"

        def mirrored() -> list[bytes]:
            found = read(target.bootstrap_servers, "here.orders")
            return sorted(record.value or b"" for record in found)

        with running_java(java, kafka_jars, tmp_path / "mirror", main, path):
            log = tmp_path / "mirror" / "log"
            expected = sorted(b"order %d" % number for number in range(300))
            wait(lambda: mirrored() == expected, lambda: log.read_text()[-2000:])
            write(cluster.bootstrap_servers, "orders", ["last order"])
            wait(
                lambda: mirrored() == sorted([*expected, b"last order"]),
                lambda: log.read_text()[-2000:],
            )
        with Cluster(target.bootstrap_servers) as client:
            assert len(client.topic("here.orders").partitions) == 3
