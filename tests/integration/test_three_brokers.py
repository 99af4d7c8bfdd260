"""Three brokers in this process: killed, stopped, paused and restarted.

Clients are confluent-kafka and kafka-python. They get no hint of the failures.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from barnabas import LocalCluster
from barnabas.client.admin import Admin, NewPartitions, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.view import ClusterView, TopicView
from barnabas.cluster.zookeeper_servers import is_free
from barnabas.errors import ConfigError
from support.ports import free_port
from support.waiting import eventually
from tests.compatibility.raw import Raw, recent_batch_of, wait_until_known

DEADLINE_S = 30.0
QUIET = logging.getLogger("tests.librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as running:
        yield running


# ---- client views --------------------------------------------------------------------------------------------------


def view(cluster: LocalCluster, broker: int) -> ClusterView:
    """The cluster as this broker reports it."""
    with Cluster(cluster.brokers[broker].address) as client:
        return client.refresh(None)


def create(cluster: LocalCluster, name: str, partitions: int = 1, replicas: int = 3) -> None:
    with Cluster(cluster.bootstrap_servers) as client:
        wanted = NewTopic(name=name, partitions=partitions, replication_factor=replicas)
        (outcome,) = Admin(client).create_topics([wanted])
        assert outcome.error is None, outcome.error
    wait_until_known(
        [
            broker.address
            for broker in cluster.brokers.values()
            if broker.is_running and not broker.is_paused
        ],
        name,
    )


def described(cluster: LocalCluster, name: str) -> TopicView:
    with Cluster(cluster.bootstrap_servers) as client:
        (topic,) = Admin(client).describe_topics([name])
        return topic


def partition_count(seen: ClusterView, name: str) -> int:
    return len(seen.topics[name].partitions) if name in seen.topics else 0


def is_healthy(cluster: LocalCluster, name: str) -> bool:
    """Check every broker's view: one that does not know of a failure yet still counts the failed one as in sync."""
    views = [view(cluster, broker.id) for broker in cluster.brokers.values() if broker.is_running]
    return all(
        name in seen.topics
        and not any(
            each.is_offline or each.is_under_replicated for each in seen.topics[name].partitions
        )
        for seen in views
    )


class Writer:
    """A producer that records the acknowledged values."""

    def __init__(self, servers: str, topic: str) -> None:
        self.topic = topic
        self.acknowledged: list[str] = []
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 50,
            },
            logger=QUIET,
        )

    def write(self, *values: str) -> None:
        for value in values:
            self.producer.produce(self.topic, value, on_delivery=self.delivered)
        assert self.producer.flush(DEADLINE_S) == 0

    def delivered(self, error: object, message: object) -> None:
        assert error is None, error
        self.acknowledged.append(message.value().decode())  # type: ignore[attr-defined]


def read_all(servers: str, topic: str, partitions: int = 1) -> list[str]:
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    with contextlib.closing(consumer):
        assigned = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(assigned)
        consumer.seek_to_beginning(*assigned)
        ends = consumer.end_offsets(assigned)
        found: list[str] = []
        deadline = time.monotonic() + DEADLINE_S
        while any(consumer.position(partition) < ends[partition] for partition in assigned):
            assert time.monotonic() < deadline
            for batch in consumer.poll(timeout_ms=500).values():
                found += [record.value.decode() for record in batch]
        return found


# ---- startup -------------------------------------------------------------------------------------------------------


def test_started_cluster_is_known_to_every_broker(
    cluster: LocalCluster,
) -> None:
    assert list(cluster.brokers) == [1, 2, 3]
    assert cluster.bootstrap_servers.count(",") == 2
    for broker in cluster.brokers:
        seen = view(cluster, broker)
        assert sorted(seen.brokers) == [1, 2, 3]
        assert seen.controller == cluster.controller_id


def test_three_brokers_start_within_half_a_second() -> None:
    best = min(seconds_to_start() for _ in range(3))
    assert best < 0.5


def seconds_to_start() -> float:
    began = time.perf_counter()
    with LocalCluster(brokers=3):
        return time.perf_counter() - began


def test_brokers_use_consecutive_ports() -> None:
    ports = iter(free_port, None)
    port = next(port for port in ports if is_free(port + 1) and is_free(port + 2))
    with LocalCluster(brokers=3, port=port) as cluster:
        assert [broker.endpoint.port for broker in cluster.brokers.values()] == [
            port,
            port + 1,
            port + 2,
        ]


def test_settings_that_cannot_be_shared_are_rejected() -> None:
    with pytest.raises(ConfigError, match="several brokers"):
        LocalCluster(brokers=2, settings={"log.dirs": "/nowhere"})
    with pytest.raises(ConfigError, match="at least 1"):
        LocalCluster(brokers=0)


# ---- kill, stop, restart -------------------------------------------------------------------------------------------


def test_topic_survives_leader_failure(cluster: LocalCluster) -> None:
    create(cluster, "letters")
    writer = Writer(cluster.bootstrap_servers, "letters")
    writer.write("one", "two")
    leader = described(cluster, "letters").partitions[0].leader
    cluster.brokers[leader].kill()
    writer.write("three")

    def has_moved() -> bool:
        (partition,) = described(cluster, "letters").partitions
        return partition.leader not in (-1, leader) and leader not in partition.isr

    eventually(has_moved, "all brokers report another leader")
    cluster.brokers[leader].start()
    eventually(lambda: is_healthy(cluster, "letters"), "the killed broker is in sync again")
    writer.write("four")
    assert read_all(cluster.bootstrap_servers, "letters") == ["one", "two", "three", "four"]
    assert writer.acknowledged == ["one", "two", "three", "four"]


@pytest.mark.parametrize("is_controller", [False, True])
def test_acks_all_produce_continues_at_once_after_leader_failure(
    cluster: LocalCluster, is_controller: bool
) -> None:
    """It resumes within 0.1 s on an idle machine. It must not wait until the followers' pending fetches finish."""
    create(cluster, "letters", partitions=3)
    index, dying = next(
        (each.partition, each.leader)
        for each in described(cluster, "letters").partitions
        if (each.leader == cluster.controller_id) == is_controller
    )
    others = [Raw(broker.address) for broker in cluster.brokers.values() if broker.id != dying]
    with contextlib.ExitStack() as stack:
        for raw in others:
            stack.enter_context(raw)
        began = time.monotonic()
        cluster.brokers[dying].kill()
        while all(
            raw.produce("letters", recent_batch_of(b"x"), partition=index).error_code
            for raw in others
        ):
            assert time.monotonic() - began < DEADLINE_S
        assert time.monotonic() - began < 2


def test_new_controller_adds_partitions_and_deletes_topics(
    cluster: LocalCluster,
) -> None:
    with Cluster(cluster.bootstrap_servers) as client:
        admin = Admin(client)
        create(cluster, "grows", replicas=2)
        for count in (2, 3):
            in_charge = cluster.controller_id
            assert in_charge is not None
            cluster.brokers[in_charge].kill()
            (outcome,) = admin.create_partitions([NewPartitions(name="grows", count=count)])
            assert outcome.error is None
            for broker in cluster.brokers.keys() - {in_charge}:
                eventually(
                    lambda broker=broker, count=count: (  # type: ignore[misc]
                        partition_count(view(cluster, broker), "grows") == count
                    ),
                    "all brokers know it",
                )
            cluster.brokers[in_charge].start()
            eventually(lambda: is_healthy(cluster, "grows"), "no replica is missing")
        in_charge = cluster.controller_id
        assert in_charge is not None
        cluster.brokers[in_charge].kill()
        (outcome,) = admin.delete_topics(["grows"])
        assert outcome.error is None
        cluster.brokers[in_charge].start()
        again = NewTopic(name="grows", partitions=3, replication_factor=3)
        eventually(lambda: admin.create_topics([again])[0].error is None, "the name is free again")


def test_new_controller_creates_topics(cluster: LocalCluster) -> None:
    first = cluster.controller_id
    assert first is not None
    create(cluster, "before")
    cluster.brokers[first].kill()
    eventually(lambda: cluster.controller_id not in (None, first), "another controller")
    create(cluster, "after", replicas=2)
    assert described(cluster, "after").partitions[0].leader in cluster.brokers.keys() - {first}

    cluster.brokers[first].start()
    assert cluster.controller_id != first
    assert sorted(view(cluster, first).brokers) == [1, 2, 3]
    assert "after" in view(cluster, first).topics


def test_killing_each_broker_in_turn_loses_nothing(cluster: LocalCluster) -> None:
    create(cluster, "letters", partitions=3)
    writer = Writer(cluster.bootstrap_servers, "letters")
    for number in cluster.brokers:
        writer.write(f"before {number}")
        cluster.brokers[number].kill()
        writer.write(f"without {number}")
        cluster.brokers[number].start()
        eventually(lambda: is_healthy(cluster, "letters"), f"broker {number} is in sync")
    found = read_all(cluster.bootstrap_servers, "letters", partitions=3)
    assert sorted(found) == sorted(writer.acknowledged)
    assert len(found) == 6


def test_controlled_shutdown_moves_leaders(cluster: LocalCluster) -> None:
    create(cluster, "letters", partitions=6)
    before = described(cluster, "letters")
    leaving = before.partitions[0].leader
    cluster.brokers[leaving].stop()
    cluster.brokers[leaving].stop()
    eventually(
        lambda: all(
            partition.leader not in (-1, leaving)
            for partition in described(cluster, "letters").partitions
        ),
        "all brokers report other leaders",
    )
    cluster.brokers[leaving].start()
    cluster.brokers[leaving].start()
    eventually(lambda: is_healthy(cluster, "letters"), "the restarted broker is in sync")


def test_restarted_broker_keeps_address_and_data(cluster: LocalCluster) -> None:
    create(cluster, "letters", replicas=1, partitions=3)
    writer = Writer(cluster.bootstrap_servers, "letters")
    writer.write(*(f"letter {number}" for number in range(20)))
    addresses = {number: broker.address for number, broker in cluster.brokers.items()}
    for broker in cluster.brokers.values():
        broker.kill()
        assert not broker.is_running
        broker.start()
    assert {number: broker.address for number, broker in cluster.brokers.items()} == addresses
    eventually(lambda: is_healthy(cluster, "letters"), "all partitions have leaders")
    found = read_all(cluster.bootstrap_servers, "letters", partitions=3)
    assert sorted(found) == sorted(writer.acknowledged)


def test_cluster_survives_failure_of_all_brokers(tmp_path: Path) -> None:
    with LocalCluster(brokers=3, data=tmp_path) as cluster:
        create(cluster, "letters")
        Writer(cluster.bootstrap_servers, "letters").write("one")
        for broker in cluster.brokers.values():
            broker.kill()
        assert cluster.controller_id is None
        for broker in cluster.brokers.values():
            broker.start()
        eventually(lambda: is_healthy(cluster, "letters"), "all replicas are in sync")
        assert read_all(cluster.bootstrap_servers, "letters") == ["one"]


def test_killed_broker_leaves_no_clean_shutdown_file(tmp_path: Path) -> None:
    with LocalCluster(brokers=3, data=tmp_path) as cluster:
        create(cluster, "letters")
        cluster.brokers[1].kill()
        cluster.brokers[2].stop()
        marks = {path.parent.name for path in tmp_path.glob("broker-*/.kafka_cleanshutdown")}
        assert marks == {"broker-2"}


# ---- session timeouts ----------------------------------------------------------------------------------------------


def test_unexpired_session_delays_failure_detection() -> None:
    settings = {"zookeeper.session.timeout.ms": 1000}
    with LocalCluster(brokers=3, settings=settings) as cluster:
        victim = next(each for each in cluster.brokers if each != cluster.controller_id)
        witness = next(each for each in cluster.brokers if each != victim)
        began = time.monotonic()
        cluster.brokers[victim].kill(expire=False)
        eventually(lambda: victim not in view(cluster, witness).brokers, "its session times out")
        assert time.monotonic() - began >= 0.9


def test_broker_restarts_before_its_session_expires() -> None:
    settings = {"zookeeper.session.timeout.ms": 1000}
    with LocalCluster(brokers=3, settings=settings) as cluster:
        create(cluster, "letters")
        victim = described(cluster, "letters").partitions[0].leader
        cluster.brokers[victim].kill(expire=False)
        cluster.brokers[victim].start()
        eventually(lambda: is_healthy(cluster, "letters"), "all replicas are in sync")
        Writer(cluster.bootstrap_servers, "letters").write("one")
        assert read_all(cluster.bootstrap_servers, "letters") == ["one"]


# ---- pauses --------------------------------------------------------------------------------------------------------


def test_paused_broker_is_unresponsive_until_resumed(cluster: LocalCluster) -> None:
    broker = cluster.brokers[2]
    broker.pause()
    broker.pause()
    assert repr(broker).endswith("paused>")
    assert broker.is_running
    with Cluster(broker.address, timeout_s=0.3) as client, pytest.raises(Exception, match="time"):
        client.refresh([])
    broker.resume()
    broker.resume()
    assert repr(broker).endswith("running>")
    assert sorted(view(cluster, 2).brokers) == [1, 2, 3]


def test_long_paused_leader_returns_as_follower() -> None:
    settings = {"zookeeper.session.timeout.ms": 500}
    with LocalCluster(brokers=3, settings=settings) as cluster:
        create(cluster, "letters")
        writer = Writer(cluster.bootstrap_servers, "letters")
        writer.write("one")
        leader = described(cluster, "letters").partitions[0].leader
        others = [broker for each, broker in cluster.brokers.items() if each != leader]
        cluster.brokers[leader].pause()

        def leader_at(address: str) -> int:
            with Cluster([address]) as client:
                return client.refresh(["letters"]).topic("letters").partitions[0].leader

        eventually(
            lambda: all(leader_at(other.address) not in (-1, leader) for other in others),
            "all other brokers report a new leader",
        )
        # Requests to the paused broker wait there: no connection was closed.
        Writer(",".join(broker.address for broker in others), "letters").write("two")
        cluster.brokers[leader].resume()
        eventually(lambda: is_healthy(cluster, "letters"), "it is in sync again")
        assert sorted(view(cluster, leader).brokers) == [1, 2, 3]
        writer.write("three")
        assert read_all(cluster.bootstrap_servers, "letters") == ["one", "two", "three"]


def test_long_paused_controller_is_replaced() -> None:
    settings = {"zookeeper.session.timeout.ms": 500}
    with LocalCluster(brokers=3, settings=settings) as cluster:
        first = cluster.controller_id
        assert first is not None
        cluster.brokers[first].pause()
        eventually(lambda: cluster.controller_id not in (None, first), "another controller")
        second = cluster.controller_id
        cluster.brokers[first].resume()
        eventually(
            lambda: (
                view(cluster, first).controller == second
                and sorted(view(cluster, first).brokers) == [1, 2, 3]
            ),
            "the former controller knows the new one",
        )
        create(cluster, "letters")


def test_paused_broker_can_be_killed_or_stopped(cluster: LocalCluster) -> None:
    cluster.brokers[1].pause()
    cluster.brokers[1].kill()
    cluster.brokers[2].pause()
    cluster.brokers[2].stop()
    cluster.brokers[2].pause()
    assert not cluster.brokers[2].is_paused
    assert not cluster.brokers[2].is_running
    for number in (1, 2):
        cluster.brokers[number].start()
    create(cluster, "letters")


def test_cluster_stops_with_killed_and_paused_brokers() -> None:
    with LocalCluster(brokers=3) as cluster:
        cluster.brokers[1].kill(expire=False)
        cluster.brokers[2].pause()
    assert not any(broker.is_running for broker in cluster.brokers.values())
