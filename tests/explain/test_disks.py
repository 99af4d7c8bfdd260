"""Log directories fail, disks are full, and replication is throttled."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from barnabas import LocalCluster
from barnabas.client.admin import Admin
from barnabas.client.log_dir_admin import LogDirAdmin
from barnabas.explain.finding import Cause
from barnabas.metadata import znodes
from tests.explain.live import SETTINGS, LiveCluster
from tests.faults.volumes import small_volume
from tests.faulty_disk import failing


def test_failed_log_dir(live: LiveCluster) -> None:
    victim, other = live.spare
    failed = use_second_log_dir(live, victim)
    with live.client() as client:
        wanted = {(name, 0, victim): failed for name in ("copied", "single", "deleted")}
        LogDirAdmin(client).alter_replica_log_dirs(wanted)
    live.create("copied", [other, victim])
    live.create("single", [victim])
    live.create("deleted", [victim])
    live.produce("copied")
    with failing(Path(failed), errno.EIO):
        live.expect_broker(victim, Cause.LOG_DIR_FAILED)
        live.expect_topic("copied", Cause.FOLLOWER_LOG_DIR_FAILED, victim)
        live.expect_topic("single", Cause.IN_SYNC_LOG_DIR_FAILED, victim)
        with live.client() as client:
            Admin(client).delete_topics(["deleted"])
        live.expect_topic("deleted", Cause.DELETION_WAITS_FOR_LOG_DIR, victim)
    live.cluster.brokers[victim].kill()
    live.restore()


def use_second_log_dir(live: LiveCluster, broker_id: int) -> str:
    """Give a broker another log directory, and return its path. A broker halts if its only directory fails."""
    broker = live.cluster.brokers[broker_id]
    directory = str(live.data / f"second-{broker_id}")
    broker.stop()
    broker.config = replace(broker.config, log_dirs=(*broker.config.log_dirs, directory))
    live.restore()
    return directory


def test_follower_that_cannot_write_is_lagging(live: LiveCluster) -> None:
    victim, other = live.spare
    live.create("slow", [other, victim])
    live.create("preferred", [victim, other])
    live.cluster.brokers[victim].kill()
    live.wait_until("preferred", lambda each: each.leader == other, "led by the other broker")
    live.restore()
    first, *others = map(Path, live.cluster.brokers[victim].config.log_dirs)
    with failing(first, errno.ENOSPC, *others):
        live.produce("slow", 20)
        live.produce("preferred", 20)
        found = live.expect_topic("slow", Cause.FOLLOWER_LAGGING, victim)
        assert found.lag == 20
        live.expect_topic("preferred", Cause.PREFERRED_NOT_IN_SYNC, victim)
    live.cluster.brokers[victim].kill()
    live.restore()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LiveCluster]:
    """Two brokers with throttled replication; the logs of broker 2 are on a small volume."""
    settings = {
        **SETTINGS,
        "auto.leader.rebalance.enable": "false",
        "offsets.topic.replication.factor": "3",
        "follower.replication.throttled.rate": "1000",
        "replica.fetch.max.bytes": "100000",
        "delete.topic.enable": "false",
    }
    with small_volume(tmp_path / "volume", "8m") as volume:
        cluster = LocalCluster(brokers=2, data=tmp_path / "data", settings=settings)
        second = cluster.brokers[2]
        second.config = replace(second.config, log_dirs=(str(volume / "broker-2"),))
        with cluster:
            yield LiveCluster(cluster, tmp_path / "data")


def test_full_disk_throttle_and_settings(small: LiveCluster, tmp_path: Path) -> None:
    small.create("full", [1, 2])
    small.create("throttled", [1, 2], follower_replication_throttled_replicas="*")
    small.create("moved", [2, 1])
    small.expect_cluster(Cause.OFFSETS_TOPIC_IMPOSSIBLE)
    small.cluster.brokers[2].kill()
    small.wait_until("moved", lambda each: each.leader == 1, "led by broker 1")
    small.produce("throttled", 100, size=10_000)
    small.cluster.brokers[2].start()
    found = small.expect_topic("throttled", Cause.FOLLOWER_THROTTLED, 2)
    assert found.values["rate"] == 1000
    small.expect_topic("moved", Cause.PREFERRED_REBALANCE_DISABLED, 2)
    fill(tmp_path / "volume")
    small.produce("full", 10, size=100_000)
    small.expect_topic("full", Cause.FOLLOWER_DISK_FULL, 2)
    small.expect_broker(2, Cause.DISK_FULL)
    small.cluster.brokers[small.controller].pause()
    path = znodes.delete_topic_path("moved")
    small.registry(lambda session: session.create(path, b""))
    small.expect_topic("moved", Cause.DELETION_DISABLED)


def fill(volume: Path) -> None:
    descriptor = os.open(volume / "filler", os.O_WRONLY | os.O_CREAT)
    try:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while os.write(descriptor, bytes(size)):
                    continue
            except OSError:
                continue
    finally:
        os.close(descriptor)
