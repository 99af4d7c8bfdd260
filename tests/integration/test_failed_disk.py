"""A log directory of one of three brokers fails while the broker keeps running. Other brokers lead its partitions until
the broker restarts. The same holds for a full disk if another replica can lead; a follower waits for space."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas import LocalCluster
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.view import PartitionView
from barnabas.errors import ErrorCode
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.wire.messages.fetch import FetchResponse
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

TOPIC = "orders"
PARTITIONS = 6
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
        self.disk: Path = cluster.data / f"broker-{self.victim}"
        admin.create_topics([NewTopic(name=TOPIC, partitions=PARTITIONS, replication_factor=3)])
        wait_until_known([broker.address for broker in cluster.brokers.values()], TOPIC)
        self.wait_until(lambda each: len(each.isr) == 3, "all in sync")
        self.led = next(each for each in self.partitions() if each.leader == self.victim).partition
        self.followed = next(
            each for each in self.partitions() if each.leader != self.victim
        ).partition

    def partitions(self) -> list[PartitionView]:
        (topic,) = self.admin.describe_topics([TOPIC])
        return list(topic.partitions)

    def wait_until(self, holds: Callable[[PartitionView], bool], what: str) -> None:
        eventually(lambda: all(holds(each) for each in self.partitions()), what, DEADLINE_S)

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

    def log_dir_error(self) -> ErrorCode:
        with self.at(self.victim) as raw:
            answer = raw.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
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
    with (
        LocalCluster(brokers=3, data=tmp_path, settings=settings) as cluster,
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
        )
        failure.wait_until(
            lambda each: each.offline_replicas == (victim,), "it is reported offline"
        )
        assert failure.log_dir_error() is ErrorCode.KAFKA_STORAGE_ERROR
        with failure.at(victim) as raw:
            refused = raw.produce(TOPIC, recent_batch_of(b"lost"), partition=failure.led)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert raw.fetch(TOPIC, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            late = raw.fetch(TOPIC, 0, version=5)
            assert late.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, (
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
