"""Log directories fail, disks are full, and replication is throttled."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from barnabas import LocalCluster
from barnabas.client.log_dir_admin import LogDirAdmin
from barnabas.explain.finding import Cause
from barnabas.metadata import znodes
from barnabas.wire.messages.describe_configs import ResourceType
from tests.explain.live import SETTINGS, LiveCluster, broker, cluster, topic
from tests.faults.volumes import small_volume
from tests.faulty_disk import failing

RATE = "follower_replication_throttled_rate"


def test_failed_log_dir(live: LiveCluster) -> None:
    victim, other = live.spare
    failed = use_second_log_dir(live, victim)
    with live.client() as client:
        names = ("copied", "single", "deleted", "moving")
        LogDirAdmin(client).alter_replica_log_dirs({(name, 0, victim): failed for name in names})
    live.create("copied", [other, victim])
    live.create("single", [victim])
    live.create("deleted", [victim])
    live.create("moving", [other], follower_replication_throttled_replicas="*")
    live.produce("moving", 100, size=10_000)
    live.configure(ResourceType.BROKER, str(victim), **{RATE: "1"})
    live.reassign("moving", victim)
    live.expect(topic("moving", Cause.MOVE_THROTTLED, victim))
    live.produce("copied")
    with failing(Path(failed), errno.EIO):
        live.expect(
            broker(victim, Cause.LOG_DIR_FAILED),
            topic("copied", Cause.FOLLOWER_LOG_DIR_FAILED, victim),
            topic("single", Cause.IN_SYNC_LOG_DIR_FAILED, victim),
            topic("moving", Cause.MOVE_TARGET_LOG_DIR_FAILED, victim),
        )
        live.delete("deleted")
        live.expect(topic("deleted", Cause.DELETION_WAITS_FOR_LOG_DIR, victim))
    live.configure(ResourceType.BROKER, str(victim), **{RATE: None})
    live.cluster.brokers[victim].kill()
    live.restore()


def use_second_log_dir(live: LiveCluster, broker_id: int) -> str:
    """Give a broker another log directory, and return its path. A broker halts if its only directory fails."""
    chosen = live.cluster.brokers[broker_id]
    directory = str(live.data / f"second-{broker_id}")
    chosen.stop()
    chosen.config = replace(chosen.config, log_dirs=(*chosen.config.log_dirs, directory))
    live.restore()
    return directory


def test_followers_that_cannot_write(live: LiveCluster) -> None:
    """A follower is limited by a throttle first. Then it cannot write, so it does not catch up."""
    victim, other = live.spare
    live.create("slow", [other, victim])
    live.create("preferred", [victim, other])
    live.create("moved", [other], follower_replication_throttled_replicas="*")
    live.produce("moved", 100, size=10_000)
    with live.holding_rebalance():
        live.cluster.brokers[victim].kill()
        live.wait_until("preferred", lambda each: each.leader == other, "led by the other broker")
        live.restore()
        live.configure(ResourceType.BROKER, str(victim), **{RATE: "1"})
        live.reassign("moved", other, victim)
        live.expect(topic("moved", Cause.MOVE_THROTTLED, victim))
        first, *others = map(Path, live.cluster.brokers[victim].config.log_dirs)
        with failing(first, errno.ENOSPC, *others):
            live.configure(ResourceType.BROKER, str(victim), **{RATE: None})
            live.produce("slow", 20)
            live.produce("preferred", 20)
            found, *_ = live.expect(
                topic("slow", Cause.FOLLOWER_LAGGING, victim),
                topic("preferred", Cause.PREFERRED_NOT_IN_SYNC, victim),
                topic("moved", Cause.MOVE_CATCHING_UP, victim),
            )
            assert found.lag == 20
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
        "delete.topic.enable": "false",
    }
    with small_volume(tmp_path / "volume", "8m") as volume:
        started = LocalCluster(brokers=2, data=tmp_path / "data", settings=settings)
        second = started.brokers[2]
        second.config = replace(second.config, log_dirs=(str(volume / "broker-2"),))
        with started:
            yield LiveCluster(started, tmp_path / "data")


def test_full_disk_throttle_and_settings(small: LiveCluster, tmp_path: Path) -> None:
    everything = {"follower_replication_throttled_replicas": "*"}
    small.create("full", [1, 2])
    small.create("throttled", [1, 2], **everything)
    small.create("preferred", [2, 1])
    small.create("moved", [1], **everything)
    small.expect(cluster(Cause.OFFSETS_TOPIC_IMPOSSIBLE))
    small.cluster.brokers[2].kill()
    small.wait_until("preferred", lambda each: each.leader == 1, "led by broker 1")
    small.produce("throttled", 100, size=10_000)
    small.produce("moved", 100, size=10_000)
    small.cluster.brokers[2].start()
    small.reassign("moved", 2)
    found, *_ = small.expect(
        topic("throttled", Cause.FOLLOWER_THROTTLED, 2),
        topic("moved", Cause.MOVE_THROTTLED, 2),
        topic("preferred", Cause.PREFERRED_REBALANCE_DISABLED, 2),
    )
    assert found.values["rate"] == 1000
    fill(tmp_path / "volume")
    small.produce("full", 10, size=100_000)
    small.expect(
        topic("full", Cause.FOLLOWER_DISK_FULL, 2),
        topic("moved", Cause.MOVE_TARGET_DISK_FULL, 2),
        broker(2, Cause.DISK_FULL),
    )
    small.cluster.brokers[small.controller].pause()
    path = znodes.delete_topic_path("preferred")
    small.registry(lambda session: session.create(path, b""))
    small.expect(topic("preferred", Cause.DELETION_DISABLED))


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
