"""A broker's disk is gone, or holds what belongs to a topic of yesterday. No acknowledged record is lost by it."""

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
            assert code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), "still being deleted"
            return code == ErrorCode.NONE

        eventually(is_created, "the name is free")


def write(cluster: LocalCluster, leader: int, values: list[bytes]) -> None:
    with Raw(cluster.brokers[leader].address) as raw:

        def is_written(value: bytes) -> bool:
            code = raw.produce(TOPIC, recent_batch_of(value)).error_code
            assert code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "not heard yet"
            return code == ErrorCode.NONE

        for value in values:
            eventually(partial(is_written, value), "the leader has heard of the topic")


def read(cluster: LocalCluster, broker: int) -> list[bytes | None]:
    """What a consumer finds there, be it a leader or a follower."""
    with Raw(cluster.brokers[broker].address) as raw:
        fetched = raw.fetch(TOPIC, 0)
        return values_in(fetched) if fetched.error_code == ErrorCode.NONE else []


def partition(cluster: LocalCluster, broker: int) -> PartitionView:
    """As this broker knows it."""
    with Cluster(cluster.brokers[broker].address) as client:
        (topic,) = Admin(client).describe_topics([TOPIC])
        return topic.partitions[0]


def is_whole(cluster: LocalCluster, broker: int = 1) -> bool:
    found = partition(cluster, broker)
    return not found.is_offline and set(found.isr) == set(REPLICAS)


def wipe(cluster: LocalCluster, broker: int = LOSER) -> None:
    shutil.rmtree(cluster.data / f"broker-{broker}")


def test_a_broker_that_lost_its_disk_comes_back_as_a_follower_and_copies_everything(
    cluster: LocalCluster,
) -> None:
    # Its session has not ended when it comes back: it waits for that, so that the controller notices.
    cluster.brokers[LOSER].kill(expire=False)
    wipe(cluster)
    cluster.brokers[LOSER].start()
    eventually(lambda: partition(cluster, 1).leader != LOSER, "the others hear that another leads")
    eventually(lambda: is_whole(cluster), "it is in sync again")
    for other in (1, 3):
        cluster.brokers[other].kill()
    eventually(lambda: partition(cluster, LOSER).leader == LOSER, "it leads alone")
    eventually(lambda: read(cluster, LOSER) == WRITTEN, "it has all there was")


def test_when_all_died_who_lost_its_disk_lets_others_lead_though_it_comes_first(
    cluster: LocalCluster,
) -> None:
    for broker in cluster.brokers.values():
        broker.kill(expire=False)
    wipe(cluster)
    cluster.cluster.start_brokers([cluster.brokers[each] for each in REPLICAS])
    assert partition(cluster, 1).leader != LOSER
    eventually(lambda: is_whole(cluster), "it is in sync again")
    assert read(cluster, partition(cluster, 1).leader) == WRITTEN
    eventually(lambda: read(cluster, LOSER) == WRITTEN, "it has copied all there is")
    assert not list(cluster.data.glob("*/.barnabas_blank"))


def test_alone_it_refuses_to_lead_and_the_others_keep_what_they_have(cluster: LocalCluster) -> None:
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


def test_who_was_the_last_in_sync_and_lost_its_disk_never_empties_the_others(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    for other in (1, 3):
        cluster.brokers[other].kill()
    eventually(lambda: partition(cluster, LOSER).isr == (LOSER,), "it is alone")
    write(cluster, LOSER, [b"only here"])
    cluster.brokers[LOSER].kill()
    wipe(cluster)
    for broker in (1, 3, LOSER):
        cluster.brokers[broker].start()
    eventually(lambda: partition(cluster, 1).is_offline, "nobody leads")
    with Raw(cluster.brokers[LOSER].address) as raw:
        assert (
            raw.produce(TOPIC, recent_batch_of(b"lost")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        )
    # To start it again is what an operator does first, and must not make it worse.
    cluster.brokers[LOSER].stop()
    cluster.brokers[LOSER].start()
    eventually(lambda: partition(cluster, 1).is_offline, "it refuses again")
    cluster.stop()
    settings = {**SETTINGS, "unclean.leader.election.enable": "true"}
    with LocalCluster(brokers=3, data=tmp_path, settings=settings) as again:
        eventually(lambda: is_whole(again), "one that was out of sync leads, and all follow it")
        assert read(again, partition(again, 1).leader) == WRITTEN


def test_the_log_of_a_former_topic_of_that_name_is_set_aside_and_never_served(
    cluster: LocalCluster, tmp_path: Path
) -> None:
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
    eventually(lambda: is_whole(cluster), "it is in sync with the new topic")
    eventually(lambda: read(cluster, LOSER) == [b"new"], "it has the new topic's records")
    (aside,) = log.parent.glob(f"{TOPIC}-0.*-stray")
    assert b"".join(path.read_bytes() for path in aside.glob("*.log"))
