"""A broker's disk is lost, or holds the log of a deleted topic with the same name. No acknowledged record is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from barnabas import LocalCluster
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.view import PartitionView
from barnabas.errors import ErrorCode
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from support.waiting import eventually
from tests.compatibility.raw import Raw, recent_batch_of, values_in

TOPIC = "t"
LOSER = 2
"""The preferred leader, whose disk is lost."""
REPLICAS = (LOSER, 1, 3)
WRITTEN = [b"%d" % number for number in range(20)]
SETTINGS = {"log.retention.ms": -1, "zookeeper.session.timeout.ms": 1000}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, data=tmp_path, settings=SETTINGS) as running:
        create(running)
        write(running, LOSER, WRITTEN)
        yield running


def create(cluster: LocalCluster) -> None:
    wanted = CreatableTopic(TOPIC, -1, -1, (CreatableReplicaAssignment(0, REPLICAS),))
    assert cluster.controller_id is not None
    with Raw(cluster.brokers[cluster.controller_id].address) as raw:

        def is_created() -> bool:
            answer = raw.ask(CreateTopicsRequest(topics=(wanted,)), CreateTopicsResponse)
            code = answer.topics[0].error_code
            assert code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), "deletion is pending"
            return code == ErrorCode.NONE

        eventually(is_created, "the name is free")


def write(cluster: LocalCluster, leader: int, values: list[bytes]) -> None:
    with Raw(cluster.brokers[leader].address) as raw:

        def is_written(value: bytes) -> bool:
            code = raw.produce(TOPIC, recent_batch_of(value)).error_code
            assert code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "not known yet"
            return code == ErrorCode.NONE

        for value in values:
            eventually(partial(is_written, value), "the leader knows the topic")


def read(cluster: LocalCluster, broker: int) -> list[bytes | None]:
    """The values that a consumer reads there, from a leader or a follower."""
    with Raw(cluster.brokers[broker].address) as raw:
        fetched = raw.fetch(TOPIC, 0)
        return values_in(fetched) if fetched.error_code == ErrorCode.NONE else []


def partition(cluster: LocalCluster, broker: int) -> PartitionView:
    """The partition as this broker knows it."""
    with Cluster(cluster.brokers[broker].address) as client:
        (topic,) = Admin(client).describe_topics([TOPIC])
        return topic.partitions[0]


def is_healthy(cluster: LocalCluster, broker: int = 1) -> bool:
    found = partition(cluster, broker)
    return not found.is_offline and set(found.isr) == set(REPLICAS)


def wipe(cluster: LocalCluster, broker: int = LOSER) -> None:
    shutil.rmtree(cluster.data / f"broker-{broker}")


def test_broker_with_lost_disk_returns_as_follower(
    cluster: LocalCluster,
) -> None:
    # It restarts before its session expires. It must wait for the expiration, so that the controller notices.
    cluster.brokers[LOSER].kill(expire=False)
    wipe(cluster)
    cluster.brokers[LOSER].start()
    eventually(lambda: partition(cluster, 1).leader != LOSER, "the others learn of a new leader")
    eventually(lambda: is_healthy(cluster), "it is in sync again")
    for other in (1, 3):
        cluster.brokers[other].kill()
    eventually(lambda: partition(cluster, LOSER).leader == LOSER, "it is the only leader")
    eventually(lambda: read(cluster, LOSER) == WRITTEN, "it has all records")


def test_broker_with_lost_disk_does_not_lead_after_total_outage(
    cluster: LocalCluster,
) -> None:
    for broker in cluster.brokers.values():
        broker.kill(expire=False)
    wipe(cluster)
    cluster.cluster.start_brokers([cluster.brokers[each] for each in REPLICAS])
    assert partition(cluster, 1).leader != LOSER
    eventually(lambda: is_healthy(cluster), "it is in sync again")
    assert read(cluster, partition(cluster, 1).leader) == WRITTEN
    eventually(lambda: read(cluster, LOSER) == WRITTEN, "it has copied all records")
    assert not list(cluster.data.glob("*/.barnabas_blank"))


def test_lone_broker_with_lost_disk_refuses_leadership(cluster: LocalCluster) -> None:
    for broker in cluster.brokers.values():
        broker.kill(expire=False)
    wipe(cluster)
    cluster.brokers[LOSER].start()
    eventually(lambda: partition(cluster, LOSER).is_offline, "it refuses to lead")
    with Raw(cluster.brokers[LOSER].address) as raw:
        refused = raw.produce(TOPIC, recent_batch_of(b"lost"))
        assert refused.error_code != ErrorCode.NONE
    for other in (1, 3):
        cluster.brokers[other].start()
        (log,) = (cluster.data / f"broker-{other}" / f"{TOPIC}-0").glob("*.log")
        assert all(value in log.read_bytes() for value in WRITTEN)


def test_last_isr_with_lost_disk_does_not_truncate_others(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    for other in (1, 3):
        cluster.brokers[other].kill()
    eventually(lambda: partition(cluster, LOSER).isr == (LOSER,), "it is the only in-sync replica")
    write(cluster, LOSER, [b"only here"])
    cluster.brokers[LOSER].kill()
    wipe(cluster)
    for broker in (1, 3, LOSER):
        cluster.brokers[broker].start()
    eventually(lambda: partition(cluster, 1).is_offline, "there is no leader")
    with Raw(cluster.brokers[LOSER].address) as raw:
        assert (
            raw.produce(TOPIC, recent_batch_of(b"lost")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        )
    # An operator restarts it first, which must not make it worse.
    cluster.brokers[LOSER].stop()
    cluster.brokers[LOSER].start()
    eventually(lambda: partition(cluster, 1).is_offline, "it refuses to lead again")
    cluster.stop()
    settings = {**SETTINGS, "unclean.leader.election.enable": "true"}
    with LocalCluster(brokers=3, data=tmp_path, settings=settings) as again:
        eventually(lambda: is_healthy(again), "a replica out of sync leads, and all follow it")
        assert read(again, partition(again, 1).leader) == WRITTEN


def test_log_of_former_topic_becomes_stray(cluster: LocalCluster, tmp_path: Path) -> None:
    log = cluster.data / f"broker-{LOSER}" / f"{TOPIC}-0"
    kept = tmp_path / "kept"
    shutil.copytree(log, kept)
    with Cluster(cluster.bootstrap_servers) as client:
        (deleted,) = Admin(client).delete_topics([TOPIC])
        assert deleted.error is None
    eventually(lambda: not log.exists(), "its directory is gone")
    create(cluster)
    write(cluster, LOSER, [b"new"])
    cluster.brokers[LOSER].kill()
    shutil.rmtree(log)
    shutil.copytree(kept, log)
    cluster.brokers[LOSER].start()
    eventually(lambda: is_healthy(cluster), "it is in sync with the new topic")
    eventually(lambda: read(cluster, LOSER) == [b"new"], "it has the new topic's records")
    (aside,) = log.parent.glob(f"{TOPIC}-0.*-stray")
    assert b"".join(path.read_bytes() for path in aside.glob("*.log"))
