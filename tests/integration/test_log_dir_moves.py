"""Replicas of three brokers move between log directories while leaders change, and while the topic is written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from barnabas import LocalCluster
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.log_dir_admin import LogDirAdmin
from barnabas.client.view import PartitionView
from barnabas.errors import BarnabasError, ErrorCode
from barnabas.storage.log_manager import parse_directory_name
from support.waiting import eventually
from tests.compatibility.raw import Raw, recent_batch_of, wait_until_known
from tests.log_dirs import use_log_dirs

TOPIC = "orders"
DEADLINE_S = 60
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "log.retention.ms": "-1",
    "log.segment.bytes": "20000",
}
SLOW = {"replica.alter.log.dirs.io.max.bytes.per.second": "1000"}
VALUE = b"x" * 1000


class MovingCluster:
    """Three brokers with two log directories each, and one topic with three replicas."""

    def __init__(self, cluster: LocalCluster, client: Cluster) -> None:
        self.cluster = cluster
        self.admin = Admin(client)
        self.log_dirs = LogDirAdmin(client)
        self.admin.create_topics([NewTopic(name=TOPIC, partitions=1, replication_factor=3)])
        wait_until_known([broker.address for broker in cluster.brokers.values()], TOPIC)
        self.wait_until_in_sync()

    def partition(self) -> PartitionView:
        (topic,) = self.admin.describe_topics([TOPIC])
        return topic.partitions[0]

    def wait_until_in_sync(self) -> None:
        eventually(lambda: len(self.partition().isr) == 3, "all replicas are in sync", DEADLINE_S)

    def directories(self, broker: int) -> dict[str, bool]:
        """The directories with a log of the topic, and whether it is a future log."""
        (views,) = self.log_dirs.describe_log_dirs([broker]).values()
        return {
            view.path: log.is_future
            for view in views
            for log in view.logs
            if log.partition.topic == TOPIC
        }

    def move(self, broker: int) -> str:
        """Begin to move the replica of a broker, and return the new directory."""
        (target,) = {*self.cluster.brokers[broker].config.log_dirs} - {*self.directories(broker)}
        results = self.log_dirs.alter_replica_log_dirs({(TOPIC, 0, broker): target})
        assert results == {(TOPIC, 0, broker): None}
        return target

    def wait_until_moved(self, broker: int, target: str) -> None:
        def is_moved() -> bool:
            return self.directories(broker) == {target: False}

        eventually(is_moved, f"the replica of {broker} is in {target}", DEADLINE_S)

    def produce(self, value: bytes = VALUE) -> None:
        def is_written() -> bool:
            try:
                leader = self.partition().leader
                with Raw(self.cluster.brokers[leader].address) as raw:
                    answer = raw.produce(TOPIC, recent_batch_of(value))
            except (BarnabasError, OSError, KeyError):
                return False
            return answer.error_code == ErrorCode.NONE

        eventually(is_written, "it is written", DEADLINE_S)

    def files(self, broker: int) -> dict[str, bytes]:
        """The segments of the replica. Call it when nothing is written."""
        found: dict[str, bytes] = {}
        for directory in self.cluster.brokers[broker].config.log_dirs:
            for path in Path(directory).glob(f"{TOPIC}-*"):
                if parse_directory_name(path.name) is not None:
                    found |= {log.name: log.read_bytes() for log in path.glob("*.log")}
        return found

    def assert_replicas_are_equal(self) -> None:
        self.wait_until_in_sync()

        def are_equal() -> bool:
            one, two, three = (b"".join(self.files(each).values()) for each in (1, 2, 3))
            return one == two == three != b""

        eventually(are_equal, "all replicas have the same batches", DEADLINE_S)


@pytest.fixture
def moving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MovingCluster]:
    settings = {**SETTINGS, **getattr(request, "param", {})}
    new_cluster = LocalCluster(brokers=3, data=tmp_path, settings=settings)
    use_log_dirs(new_cluster, 2)
    with new_cluster as cluster, Cluster(cluster.bootstrap_servers) as client:
        yield MovingCluster(cluster, client)


def test_all_replicas_move_during_writes(moving: MovingCluster) -> None:
    for _ in range(50):
        moving.produce()
    stopping = threading.Event()
    written: list[bytes] = []

    def write() -> None:
        while not stopping.is_set():
            moving_writer.produce()
            written.append(VALUE)

    with Cluster(moving.cluster.bootstrap_servers) as client:
        moving_writer = MovingCluster(moving.cluster, client)
        writer = threading.Thread(target=write)
        writer.start()
        try:
            while len(written) < 100:
                targets = {broker: moving.move(broker) for broker in (1, 2, 3)}
                for broker, target in targets.items():
                    moving.wait_until_moved(broker, target)
        finally:
            stopping.set()
            writer.join()
    moving.assert_replicas_are_equal()


@pytest.mark.parametrize("moving", [SLOW], indirect=True, ids=[""])
def test_move_survives_change_of_leader(moving: MovingCluster) -> None:
    for _ in range(20):
        moving.produce()
    for broker in (1, 2, 3):
        moving.move(broker)
    leader = moving.partition().leader
    moving.cluster.brokers[leader].kill()
    eventually(lambda: moving.partition().leader not in (leader, -1), "another leads", DEADLINE_S)
    moving.produce(b"after")
    moving.cluster.brokers[leader].start()
    for broker in (1, 2, 3):
        assert sorted(moving.directories(broker).values()) == [False, True], "it still moves"
    moving.assert_replicas_are_equal()


def test_moved_follower_continues_after_restart(moving: MovingCluster) -> None:
    leader = moving.partition().leader
    follower = next(broker for broker in (1, 2, 3) if broker != leader)
    for round_number in range(3):
        target = moving.move(follower)
        for _ in range(10):
            moving.produce(b"%d" % round_number)
        moving.wait_until_moved(follower, target)
        moving.cluster.brokers[follower].kill()
        moving.cluster.brokers[follower].start()
        moving.wait_until_in_sync()
    moving.assert_replicas_are_equal()


def test_partition_on_other_brokers_is_rejected(moving: MovingCluster) -> None:
    moving.admin.create_topics([NewTopic(name="alone", assignment=((1,),))])
    wait_until_known([broker.address for broker in moving.cluster.brokers.values()], "alone")
    directory = moving.cluster.brokers[2].config.log_dirs[0]
    (error,) = moving.log_dirs.alter_replica_log_dirs({("alone", 0, 2): directory}).values()
    assert error is not None
    assert error.code is ErrorCode.REPLICA_NOT_AVAILABLE


def test_deleted_topic_leaves_nothing(moving: MovingCluster) -> None:
    for _ in range(20):
        moving.produce()
    for broker in (1, 2, 3):
        moving.move(broker)
    (deleted,) = moving.admin.delete_topics([TOPIC])
    assert deleted.error is None

    def is_gone(broker: int) -> bool:
        return not moving.directories(broker)

    for broker in (1, 2, 3):
        eventually(partial(is_gone, broker), f"{broker} has deleted it", DEADLINE_S)
        names = [
            path.name
            for directory in moving.cluster.brokers[broker].config.log_dirs
            for path in Path(directory).glob(f"{TOPIC}-*")
        ]
        assert all(name.endswith("-delete") for name in names)
