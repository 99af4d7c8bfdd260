"""Faults of a LocalCluster, each in one line of a test."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from barnabas import LocalCluster
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from barnabas.client.view import PartitionView
from barnabas.errors import ApiError
from support.waiting import eventually

TOPIC = "orders"
SETTINGS = {
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 30_000,  # no replica leaves the ISR during a cut
    "auto.leader.rebalance.enable": False,
}
CUT_TIMEOUT_S = 1.0
DISK_DELAY_S = 0.4


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings=SETTINGS) as cluster:
        cluster.create_topic(TOPIC, replicas=3)
        yield cluster


@pytest.fixture
def cluster(shared: LocalCluster) -> Iterator[LocalCluster]:
    yield shared
    shared.restore()
    eventually(lambda: len(partition(shared).isr) == 3, "all replicas are in sync")


def partition(cluster: LocalCluster, topic: str = TOPIC) -> PartitionView:
    with Cluster(cluster.bootstrap_servers) as client:
        (found,) = client.refresh([topic]).topic(topic).partitions
        return found


def brokers_seen(cluster: LocalCluster, by: int) -> set[int]:
    with Cluster(cluster.brokers[by].address) as client:
        return set(client.refresh([]).brokers)


def produce(cluster: LocalCluster, timeout_s: float = 30.0) -> float:
    """Produce a record with acks=all. Returns the seconds that it took."""
    started = time.monotonic()
    with Cluster(cluster.bootstrap_servers, timeout_s=timeout_s) as client:
        producer = Producer(client, idempotent=False)
        producer.send(TOPIC, b"value", partition=0)
        producer.flush()
    return time.monotonic() - started


def test_killed_broker_is_replaced_as_leader_and_restored(cluster: LocalCluster) -> None:
    leader = partition(cluster).leader
    cluster.kill(leader)
    assert not cluster.brokers[leader].is_running
    eventually(lambda: partition(cluster).leader not in (leader, -1), "another broker leads")
    cluster.restore()
    assert all(brokers_seen(cluster, broker) == {1, 2, 3} for broker in cluster.brokers)


@pytest.mark.parametrize("is_explicit", [True, False])
def test_partitioned_leader_acknowledges_nothing(cluster: LocalCluster, is_explicit: bool) -> None:
    leader = partition(cluster).leader
    others = set(cluster.brokers) - {leader}
    groups = [{leader}, others] if is_explicit else [{leader}]
    with cluster.partition_network(*groups), pytest.raises(ApiError):
        produce(cluster, timeout_s=CUT_TIMEOUT_S)
    produce(cluster)
    assert partition(cluster).leader == leader


def test_partition_between_followers_does_not_affect_leader(cluster: LocalCluster) -> None:
    first, second = set(cluster.brokers) - {partition(cluster).leader}
    with cluster.partition_network({first}, {second}):
        produce(cluster)


def test_inner_partition_does_not_heal_outer_one(cluster: LocalCluster) -> None:
    leader = partition(cluster).leader
    with cluster.partition_network({leader}):
        with cluster.partition_network({leader}):
            pass
        with pytest.raises(ApiError):
            produce(cluster, timeout_s=CUT_TIMEOUT_S)


def test_cut_survives_restart_of_broker_and_ends_with_restore(cluster: LocalCluster) -> None:
    # Both brokers reach the controller: without it, a broker does not start.
    leader, follower = set(cluster.brokers) - {cluster.controller.id}
    topic = NewTopic(name="cut", assignment=[[leader, follower]])
    with Cluster(cluster.bootstrap_servers) as client:
        Admin(client).create_topics([topic])
    with cluster.partition_network({follower}, {leader}):
        cluster.kill(follower)
        cluster.brokers[follower].start()
        assert follower not in partition(cluster, "cut").isr
        cluster.restore()
        eventually(lambda: follower in partition(cluster, "cut").isr, "the follower is in sync")


def test_slow_disk_delays_acknowledgements(cluster: LocalCluster) -> None:
    leader = partition(cluster).leader
    cluster.slow_disk(leader, DISK_DELAY_S)
    assert produce(cluster) >= DISK_DELAY_S
    cluster.slow_disk(leader, 0)
    eventually(lambda: produce(cluster) < DISK_DELAY_S, "the disk is fast again")


def test_broker_rejoins_after_expired_session(cluster: LocalCluster) -> None:
    broker = cluster.controller
    registry, _ = broker.cluster.open_registry()
    before = set(registry.sessions)
    cluster.expire_session(broker.id)
    assert broker.is_running
    eventually(lambda: len(registry.sessions) == len(before), "the broker has a new session")
    assert set(registry.sessions) != before
    eventually(
        lambda: all(brokers_seen(cluster, each) == {1, 2, 3} for each in cluster.brokers),
        "all brokers know each other",
    )


def test_paused_broker_is_cut_off_when_it_resumes(cluster: LocalCluster) -> None:
    leader = partition(cluster).leader
    follower = next(iter(set(cluster.brokers) - {leader}))
    cluster.brokers[follower].pause()
    with cluster.partition_network({follower}):
        cluster.brokers[follower].resume()
        with pytest.raises(ApiError):
            produce(cluster, timeout_s=CUT_TIMEOUT_S)
    produce(cluster)


def test_wrong_arguments_are_reported(cluster: LocalCluster) -> None:
    unknown = "there is no broker 7; the brokers are 1, 2, 3"
    for call in (cluster.kill, cluster.expire_session):
        with pytest.raises(ValueError, match=unknown):
            call(7)
    with pytest.raises(ValueError, match=unknown), cluster.partition_network({1}, {7}):
        pass
    with pytest.raises(ValueError, match="in two groups"), cluster.partition_network({1}, {1, 2}):
        pass
    with pytest.raises(ValueError, match="0 or more, not -1"):
        cluster.slow_disk(1, -1)


def test_partitioned_cluster_stops_cleanly() -> None:
    cluster = LocalCluster(brokers=2).start()
    with cluster.partition_network({1}, {2}):
        cluster.stop()


async def test_cluster_is_an_async_context_manager() -> None:
    async with LocalCluster() as cluster:
        assert cluster.controller.id == 1
    assert not cluster.data.exists()


def test_advertised_name_need_not_resolve_here() -> None:
    name = "no-such-host.invalid"
    with LocalCluster(brokers=2, host="0.0.0.0", advertised=name) as cluster:
        cluster.create_topic(TOPIC, replicas=2)
        produce(cluster)
        advertised = cluster.advertised_servers.split(",")
        assert all(each.startswith(f"{name}:") for each in advertised)
        ports = [int(each.rpartition(":")[2]) for each in advertised]
        with Cluster([f"127.0.0.1:{port}" for port in ports]) as client:
            known = client.refresh([]).brokers.values()
            assert [(each.host, each.port) for each in known] == [(name, each) for each in ports]


def test_host_without_advertised_name() -> None:
    with LocalCluster(host="localhost") as cluster:
        assert cluster.bootstrap_servers.startswith("localhost:")
        assert cluster.advertised_servers == cluster.bootstrap_servers
