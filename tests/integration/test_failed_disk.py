"""One of two log directories of a broker fails while the broker keeps running. Other brokers lead its partitions until
the broker restarts. The same holds for a full disk if another replica can lead; a follower waits for space. If the last
log directory fails, the broker halts."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas import LocalCluster
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.log_dir_admin import LogDirAdmin
from barnabas.client.view import PartitionView
from barnabas.errors import ErrorCode, StorageError
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.wire.messages.fetch import FetchResponse
from support.broker import BrokerProcess
from support.command import COMMAND
from support.process import ChildProcess
from support.waiting import eventually
from tests.compatibility.raw import (
    Raw,
    fetch_request,
    partitions_of,
    recent_batch_of,
    values_in,
    wait_until_known,
)
from tests.faulty_disk import failing
from tests.log_dirs import use_log_dirs

TOPIC = "orders"
PARTITIONS = 12
DEADLINE_S = 30
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "log.retention.ms": "-1",
    # On an idle disk, the periodic checkpoints detect the failure.
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
    "barnabas.history.topic.enable": "false",
}
# For tests in which a follower falls behind. In the others it must not, even if the machine stalls: a leader that is
# the only in-sync replica has no successor.
IMPATIENT = {"replica.lag.time.max.ms": "1500"}


class DiskFailure:
    """Three brokers with a replica of everything. The disk of one, a leader but not the controller, fails."""

    def __init__(self, cluster: LocalCluster, admin: Admin) -> None:
        self.cluster = cluster
        self.admin = admin
        self.victim = next(each for each in cluster.brokers if each != cluster.controller_id)
        self.disk, self.spare = map(Path, cluster.brokers[self.victim].config.log_dirs)
        admin.create_topics([NewTopic(name=TOPIC, partitions=PARTITIONS, replication_factor=3)])
        wait_until_known([broker.address for broker in cluster.brokers.values()], TOPIC)
        self.wait_until(lambda each: len(each.isr) == 3, "all in sync")
        self.on_disk = self.partitions_in(self.disk)
        assert 0 < len(self.on_disk) < PARTITIONS
        affected = [each for each in self.partitions() if each.partition in self.on_disk]
        self.led = next(each for each in affected if each.leader == self.victim).partition
        self.followed = next(each for each in affected if each.leader != self.victim).partition

    def partitions(self) -> list[PartitionView]:
        (topic,) = self.admin.describe_topics([TOPIC])
        return list(topic.partitions)

    def partitions_in(self, directory: Path, topic: str = TOPIC) -> set[int]:
        names = [path.name for path in directory.glob(f"{topic}-*")]
        return {int(name.rpartition("-")[2]) for name in names if not name.endswith("-delete")}

    def wait_until(
        self, holds: Callable[[PartitionView], bool], what: str, *, only_on_disk: bool = False
    ) -> None:
        def hold() -> bool:
            return all(
                holds(each)
                for each in self.partitions()
                if not only_on_disk or each.partition in self.on_disk
            )

        eventually(hold, what, DEADLINE_S)

    def at(self, broker: int) -> Raw:
        return Raw(self.cluster.brokers[broker].address)

    def produce(self, partition: int, value: bytes) -> ErrorCode:
        """Produce to the partition's leader. A broker that does not know its leadership yet is retried."""
        codes: list[ErrorCode] = []

        def is_led() -> bool:
            with self.at(self.partitions()[partition].leader) as raw:
                answer = raw.produce(TOPIC, recent_batch_of(value), partition=partition)
            codes.append(ErrorCode(answer.error_code))
            return codes[-1] is not ErrorCode.NOT_LEADER_OR_FOLLOWER

        eventually(is_led, f"{TOPIC}-{partition} has a leader", DEADLINE_S)
        return codes[-1]

    def fetch_error(self, raw: Raw, version: int = 12) -> ErrorCode:
        answer = raw.ask(fetch_request(TOPIC, {self.led: 0}), FetchResponse, version)
        return ErrorCode(partitions_of(answer)[self.led].error_code)

    def log_dir_error(self) -> ErrorCode:
        with self.at(self.victim) as raw:
            answer = raw.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        assert [each.log_dir for each in answer.results] == [str(self.disk), str(self.spare)]
        assert answer.results[1].error_code == ErrorCode.NONE
        return ErrorCode(answer.results[0].error_code)

    def restart(self) -> None:
        self.cluster.brokers[self.victim].kill()
        self.cluster.brokers[self.victim].start()
        self.wait_until(
            lambda each: len(each.isr) == 3 and not each.offline_replicas, "back in sync"
        )


@pytest.fixture
def failure(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DiskFailure]:
    """The cluster; tests may override settings."""
    settings = {**SETTINGS, **getattr(request, "param", {})}
    new_cluster = LocalCluster(brokers=3, data=tmp_path, settings=settings)
    use_log_dirs(new_cluster, 2)
    with (
        new_cluster as cluster,
        Cluster(cluster.bootstrap_servers, client_id="test") as client,
    ):
        yield DiskFailure(cluster, Admin(client))


@pytest.mark.parametrize(
    ("code", "is_written_to"),
    [(errno.EROFS, True), (errno.EIO, False), (errno.ENOSPC, True)],
    ids=["read-only and in use", "broken and idle", "full and in use"],
)
def test_leaders_move_off_failed_disk_until_restart(
    failure: DiskFailure, code: int, is_written_to: bool
) -> None:
    victim = failure.victim
    assert failure.produce(failure.led, b"before") is ErrorCode.NONE
    with failing(failure.disk, code):
        if is_written_to:
            with failure.at(victim) as raw:
                refused = raw.produce(TOPIC, recent_batch_of(b"lost"), partition=failure.led)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        failure.wait_until(
            lambda each: each.leader not in (victim, -1) and victim not in each.isr,
            "no partition is led from the failed disk",
            only_on_disk=True,
        )
        failure.wait_until(
            lambda each: (
                each.offline_replicas == ((victim,) if each.partition in failure.on_disk else ())
            ),
            "it is reported offline",
        )
        assert failure.log_dir_error() is ErrorCode.KAFKA_STORAGE_ERROR
        with failure.at(victim) as raw:
            refused = raw.produce(TOPIC, recent_batch_of(b"lost"), partition=failure.led)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert failure.fetch_error(raw) is ErrorCode.KAFKA_STORAGE_ERROR
            assert failure.fetch_error(raw, version=5) is ErrorCode.NOT_LEADER_OR_FOLLOWER, (
                "offline replicas are hidden"
            )
        assert failure.produce(failure.led, b"after") is ErrorCode.NONE
    assert failure.log_dir_error() is ErrorCode.KAFKA_STORAGE_ERROR, (
        "offline until the broker restarts"
    )
    failure.restart()
    with failure.at(failure.partitions()[failure.led].leader) as raw:
        assert raw.produce(TOPIC, recent_batch_of(b"again"), partition=failure.led).base_offset == 2


def test_sole_replica_on_full_disk_rejects_until_space(
    failure: DiskFailure,
) -> None:
    directory = {("alone", 0, failure.victim): str(failure.disk)}
    (rejected,) = LogDirAdmin(failure.admin.cluster).alter_replica_log_dirs(directory).values()
    assert rejected is not None
    assert rejected.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "but the directory is stored"
    failure.admin.create_topics([NewTopic(name="alone", assignment=((failure.victim,),))])
    with failure.at(failure.victim) as raw:
        eventually(
            lambda: raw.produce("alone", recent_batch_of(b"before")).error_code == ErrorCode.NONE,
            "it has a leader",
        )
        with failing(failure.disk, errno.ENOSPC):
            refused = raw.produce("alone", recent_batch_of(b"lost"))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert failure.log_dir_error() is ErrorCode.NONE
        assert raw.produce("alone", recent_batch_of(b"after")).base_offset == 1


@pytest.mark.parametrize("failure", [IMPATIENT], indirect=True, ids=[""])
def test_follower_with_full_disk_leaves_isr_and_catches_up(
    failure: DiskFailure,
) -> None:
    partition, victim = failure.followed, failure.victim
    with failing(failure.disk, errno.ENOSPC):
        # The produce waits for the follower as long as it is in sync.
        assert failure.produce(partition, b"first") in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
        eventually(
            lambda: victim not in failure.partitions()[partition].isr, "it fell behind", DEADLINE_S
        )
        assert failure.produce(partition, b"second") is ErrorCode.NONE
    eventually(lambda: victim in failure.partitions()[partition].isr, "it caught up", DEADLINE_S)
    with failure.at(failure.partitions()[partition].leader) as raw:
        assert raw.fetch(TOPIC, 0).error_code == ErrorCode.NONE
    assert failure.log_dir_error() is ErrorCode.NONE


def test_failed_disk_loses_no_acknowledged_records(failure: DiskFailure) -> None:
    written = [b"%d" % number for number in range(20)]
    for value in written[:10]:
        assert failure.produce(failure.led, value) is ErrorCode.NONE
    with failing(failure.disk, errno.EIO):
        for value in written[10:]:
            eventually(
                lambda value=value: failure.produce(failure.led, value) is ErrorCode.NONE,  # type: ignore[misc]
                "another broker leads",
                DEADLINE_S,
            )
        with failure.at(failure.partitions()[failure.led].leader) as raw:
            fetched = raw.ask(fetch_request(TOPIC, {failure.led: 0}), FetchResponse, 12)
    assert values_in(partitions_of(fetched)[failure.led]) == written


def test_other_directory_keeps_serving(failure: DiskFailure) -> None:
    victim = failure.victim
    led_elsewhere = next(
        each.partition
        for each in failure.partitions()
        if each.leader == victim and each.partition not in failure.on_disk
    )
    with failing(failure.disk, errno.EIO):
        eventually(
            lambda: failure.log_dir_error() is ErrorCode.KAFKA_STORAGE_ERROR,
            "the failure is detected",
            DEADLINE_S,
        )
        with failure.at(victim) as raw:
            answer = raw.produce(TOPIC, recent_batch_of(b"x"), partition=led_elsewhere)
            assert answer.error_code == ErrorCode.NONE
        failure.wait_until(
            lambda each: each.partition in failure.on_disk or victim in each.isr,
            "the replicas in the other directory stay in sync",
        )
        assert failure.partitions()[led_elsewhere].leader == victim


def test_new_replicas_avoid_failed_directory(failure: DiskFailure) -> None:
    with failing(failure.disk, errno.EIO):
        eventually(
            lambda: failure.log_dir_error() is ErrorCode.KAFKA_STORAGE_ERROR,
            "the failure is detected",
            DEADLINE_S,
        )
        assignment = ((failure.victim,),) * 3
        (created,) = failure.admin.create_topics([NewTopic(name="new", assignment=assignment)])
        assert created.error is None
        with failure.at(failure.victim) as raw:
            for index in range(3):
                eventually(
                    lambda index=index: (  # type: ignore[misc]
                        raw.produce("new", recent_batch_of(b"x"), partition=index).error_code
                        == ErrorCode.NONE
                    ),
                    "it has a leader",
                    DEADLINE_S,
                )
    assert failure.partitions_in(failure.spare, "new") == {0, 1, 2}
    assert failure.partitions_in(failure.disk, "new") == set()


def test_broker_halts_when_last_directory_fails(failure: DiskFailure) -> None:
    victim = failure.victim
    broker = failure.cluster.brokers[victim]
    assert failure.produce(failure.led, b"before") is ErrorCode.NONE
    assert broker.failure is None
    with failing(failure.disk, errno.EIO, failure.spare):
        eventually(lambda: broker.failure is not None, "it halts", DEADLINE_S)
        assert not broker.is_running
        assert "failed" in repr(broker)
        failure.wait_until(
            lambda each: each.leader not in (victim, -1) and victim not in each.isr,
            "other brokers lead",
        )
        eventually(
            lambda: victim not in failure.admin.cluster.refresh([]).brokers,
            "it is not registered",
            DEADLINE_S,
        )
        assert failure.produce(failure.led, b"meanwhile") is ErrorCode.NONE
        with pytest.raises(StorageError):
            broker.start()
    broker.start()
    assert broker.failure is None
    failure.wait_until(lambda each: len(each.isr) == 3, "back in sync")
    with failure.at(failure.partitions()[failure.led].leader) as raw:
        fetched = raw.ask(fetch_request(TOPIC, {failure.led: 0}), FetchResponse, 12)
    assert values_in(partitions_of(fetched)[failure.led]) == [b"before", b"meanwhile"]


def test_cluster_with_halted_broker_stops(failure: DiskFailure) -> None:
    controller = failure.cluster.brokers[failure.cluster.controller_id or 0]
    one, two = map(Path, controller.config.log_dirs)
    with failing(one, errno.EIO, two):
        eventually(lambda: controller.failure is not None, "it halts", DEADLINE_S)
    eventually(
        lambda: failure.cluster.controller_id not in (None, controller.id),
        "another broker is controller",
        DEADLINE_S,
    )
    failure.cluster.stop()


def test_broker_process_exits_when_its_directory_fails(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    properties = tmp_path / "server.properties"
    settings = {"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(logs)}
    settings |= {"replica.high.watermark.checkpoint.interval.ms": "100"}
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    log = tmp_path / "server.log"
    process = ChildProcess("a broker", [*COMMAND, "broker", str(properties)], log=log)
    try:
        eventually(lambda: "broker started id=1" in log.read_text(), "it runs", DEADLINE_S)
        shutil.rmtree(logs)
        assert process.wait() == 1
    finally:
        process.kill()
    lines = log.read_text()
    assert "broker halts, all log directories have failed id=1" in lines
    assert lines.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in lines


def test_up_exits_when_all_its_brokers_have_failed(tmp_path: Path) -> None:
    settings = {"replica.high.watermark.checkpoint.interval.ms": "100"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        shutil.rmtree(broker.log_dir)
        assert broker.wait() == 1
    assert "broker halts, all log directories have failed id=1" in broker.log()


def test_removed_directory_is_described_as_offline(tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    settings = {"log.dirs": f"{paths[0]},{paths[1]}/"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        with Raw(broker.bootstrap_servers) as raw:
            shutil.rmtree(paths[1])
            answer = raw.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        assert [(each.log_dir, each.error_code) for each in answer.results] == [
            (str(paths[0]), ErrorCode.NONE),
            (str(paths[1]), ErrorCode.KAFKA_STORAGE_ERROR),
        ]
