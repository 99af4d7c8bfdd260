"""The work of a Spark task without Spark: reading offset ranges from a real broker during failures and changes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import LocalCluster
from barnabas.batch.compression import Compression
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from barnabas.model import TopicPartition
from barnabas.spark.fetching import read_range
from barnabas.spark.kept_clients import kept_clusters
from barnabas.spark.ranges import DataLoss, OffsetRange, parse_fetch_settings
from support.broker import BrokerProcess

SMALL_FETCHES = {"max.partition.fetch.bytes": "65536"}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with LocalCluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(autouse=True)
def close_connections() -> Iterator[None]:
    yield
    kept_clusters.close_idle()


def fill(
    servers: str, topic: str, count: int, compression: Compression = Compression.NONE
) -> OffsetRange:
    with Cluster(servers) as cluster:
        (outcome,) = Admin(cluster).create_topics([NewTopic(name=topic, partitions=1)])
        assert outcome.error is None
        with Producer(cluster, compression=compression) as producer:
            for number in range(count):
                producer.send(topic, b"%d" % number + b"." * 80, key=b"%d" % number)
                if number % 500 == 499:
                    producer.flush()
        topic_id = cluster.topic(topic).id
    return OffsetRange(topic=topic, partition=0, start=0, end=count, topic_id=topic_id)


def keys(servers: str, wanted: OffsetRange, *, fails: bool = True) -> list[bytes]:
    return [key for found in reading(servers, wanted, fails=fails) for key in found]


def reading(servers: str, wanted: OffsetRange, *, fails: bool = True) -> Iterator[list[bytes]]:
    settings = parse_fetch_settings(
        {"bootstrap.servers": servers, **SMALL_FETCHES}, ("key",), fail_on_data_loss=fails
    )
    for found in read_range(wanted, settings):
        yield found.column("key").to_pylist()


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


@pytest.mark.parametrize("codec", list(Compression))
def test_range_is_read_with_every_codec(servers: str, codec: Compression) -> None:
    wanted = fill(servers, f"codec-{codec.name}", 3_000, codec)
    assert keys(servers, wanted) == numbers(0, 3_000)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_range_read_continues_after_broker_restart(
    tmp_path: Path, signal_number: signal.Signals
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        wanted = fill(broker.bootstrap_servers, "orders", 5_000)
        parts = reading(broker.bootstrap_servers, wanted)
        found = next(parts)
        broker.restart(signal_number)
        for part in parts:
            found += part
    assert found == numbers(0, 5_000)


def test_range_read_waits_for_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        wanted = fill(broker.bootstrap_servers, "orders", 100)
        keys(broker.bootstrap_servers, wanted)
        broker.restart(signal.SIGKILL)
        assert keys(broker.bootstrap_servers, wanted) == numbers(0, 100)


def test_records_deleted_during_read_raise_data_loss(servers: str) -> None:
    wanted = fill(servers, "shortened", 5_000)
    parts = reading(servers, wanted)
    found = next(parts)
    with Cluster(servers) as cluster:
        Admin(cluster).delete_records({TopicPartition("shortened", 0): 4_500})
    with pytest.raises(DataLoss, match=r"of shortened-0 are gone: the log begins at 4500") as lost:
        for part in parts:
            found += part
    assert found == numbers(0, lost.value.start)
    assert lost.value.end == 4_500


def test_deleted_records_are_skipped_if_allowed(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = fill(servers, "passed", 5_000)
    with Cluster(servers) as cluster:
        Admin(cluster).delete_records({TopicPartition("passed", 0): 4_700})
    assert keys(servers, wanted, fails=False) == numbers(4_700, 5_000)
    assert "offsets 0 to 4699 of passed-0 are gone" in caplog.text


def test_topic_recreated_during_read_raises_data_loss(
    servers: str,
) -> None:
    wanted = fill(servers, "again", 5_000)
    parts = reading(servers, wanted)
    found = next(parts)
    with Cluster(servers) as cluster:
        Admin(cluster).delete_topics(["again"])
    fill(servers, "again", 5_000)
    with pytest.raises(DataLoss, match="of again-0 are gone: the topic was deleted and created"):
        for part in parts:
            found += part
    assert found == numbers(0, len(found))
