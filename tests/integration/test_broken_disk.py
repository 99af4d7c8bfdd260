"""A log directory breaks under a broker of three that goes on running, and others lead what was on it until the broker
is started again. So it is with a full one where somebody else can lead; a follower waits for room."""

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
    # A disk that nobody writes records to is met by what is written by the clock.
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
    "barnabas.history.topic.enable": "false",
}
# Where a follower is to fall behind. Elsewhere it must not, though the machine stands still for so long: a leader that
# is alone in sync has nobody to hand over to.
IMPATIENT = {"replica.lag.time.max.ms": "1500"}


class Story:
    """Three brokers with a copy of everything each; the disk of one, which leads and is not the controller, fails."""

    def __init__(self, cluster: LocalCluster, admin: Admin) -> None:
        self.cluster = cluster
        self.admin = admin
        self.victim = next(each for each in cluster.brokers if each != cluster.controller_id)
        self.disk: Path = cluster.data / f"broker-{self.victim}"
        admin.create_topics([NewTopic(name=TOPIC, partitions=PARTITIONS, replication_factor=3)])
        wait_until_known([broker.address for broker in cluster.brokers.values()], TOPIC)
        self.until(lambda each: len(each.isr) == 3, "all in sync")
        self.led = next(each for each in self.partitions() if each.leader == self.victim).partition
        self.followed = next(
            each for each in self.partitions() if each.leader != self.victim
        ).partition

    def partitions(self) -> list[PartitionView]:
        (topic,) = self.admin.describe_topics([TOPIC])
        return list(topic.partitions)

    def until(self, holds: Callable[[PartitionView], bool], what: str) -> None:
        eventually(lambda: all(holds(each) for each in self.partitions()), what, DEADLINE_S)

    def at(self, broker: int) -> Raw:
        return Raw(self.cluster.brokers[broker].address)

    def produce(self, partition: int, value: bytes) -> ErrorCode:
        """To whoever leads it. One that has not heard of it yet has written nothing, and is asked again."""
        codes: list[ErrorCode] = []

        def is_led() -> bool:
            with self.at(self.partitions()[partition].leader) as raw:
                answer = raw.produce(TOPIC, recent_batch_of(value), partition=partition)
            codes.append(ErrorCode(answer.error_code))
            return codes[-1] is not ErrorCode.NOT_LEADER_OR_FOLLOWER

        eventually(is_led, f"{TOPIC}-{partition} is led", DEADLINE_S)
        return codes[-1]

    def log_dir_error(self) -> ErrorCode:
        with self.at(self.victim) as raw:
            answer = raw.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        return ErrorCode(answer.results[0].error_code)

    def start_again(self) -> None:
        self.cluster.brokers[self.victim].kill()
        self.cluster.brokers[self.victim].start()
        self.until(lambda each: len(each.isr) == 3 and not each.offline_replicas, "back in sync")


@pytest.fixture
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    """With settings of its own, if that is asked for."""
    settings = {**SETTINGS, **getattr(request, "param", {})}
    with (
        LocalCluster(brokers=3, data=tmp_path, settings=settings) as cluster,
        Cluster(cluster.bootstrap_servers, client_id="test") as client,
    ):
        yield Story(cluster, Admin(client))


@pytest.mark.parametrize(
    ("code", "is_written_to"),
    [(errno.EROFS, True), (errno.EIO, False), (errno.ENOSPC, True)],
    ids=["read-only and in use", "broken and idle", "full and in use"],
)
def test_others_lead_what_was_on_a_broken_disk_and_it_comes_back_with_the_broker(
    story: Story, code: int, is_written_to: bool
) -> None:
    victim = story.victim
    assert story.produce(story.led, b"before") is ErrorCode.NONE
    with failing(story.disk, code):
        if is_written_to:
            with story.at(victim) as raw:
                refused = raw.produce(TOPIC, recent_batch_of(b"lost"), partition=story.led)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        story.until(
            lambda each: each.leader not in (victim, -1) and victim not in each.isr,
            "nobody is led by a broken disk",
        )
        story.until(lambda each: each.offline_replicas == (victim,), "the controller tells of it")
        assert story.log_dir_error() is ErrorCode.KAFKA_STORAGE_ERROR
        with story.at(victim) as raw:
            refused = raw.produce(TOPIC, recent_batch_of(b"lost"), partition=story.led)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert raw.fetch(TOPIC, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            late = raw.fetch(TOPIC, 0, version=5)
            assert late.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it knows no broken disks"
        assert story.produce(story.led, b"after") is ErrorCode.NONE
    assert story.log_dir_error() is ErrorCode.KAFKA_STORAGE_ERROR, (
        "until the broker is started again"
    )
    story.start_again()
    with story.at(story.partitions()[story.led].leader) as raw:
        assert raw.produce(TOPIC, recent_batch_of(b"again"), partition=story.led).base_offset == 2


def test_a_leader_that_is_alone_in_sync_takes_nothing_until_its_full_disk_has_room(
    story: Story,
) -> None:
    story.admin.create_topics([NewTopic(name="alone", assignment=((story.victim,),))])
    with story.at(story.victim) as raw:
        eventually(
            lambda: raw.produce("alone", recent_batch_of(b"before")).error_code == ErrorCode.NONE,
            "led",
        )
        with failing(story.disk, errno.ENOSPC):
            refused = raw.produce("alone", recent_batch_of(b"lost"))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert story.log_dir_error() is ErrorCode.NONE
        assert raw.produce("alone", recent_batch_of(b"after")).base_offset == 1


@pytest.mark.parametrize("story", [IMPATIENT], indirect=True, ids=[""])
def test_a_follower_whose_disk_is_full_holds_nobody_up_and_catches_up_when_there_is_room(
    story: Story,
) -> None:
    partition, victim = story.followed, story.victim
    with failing(story.disk, errno.ENOSPC):
        # It waits for the follower as long as that one is in sync.
        assert story.produce(partition, b"first") in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
        eventually(
            lambda: victim not in story.partitions()[partition].isr, "it fell behind", DEADLINE_S
        )
        assert story.produce(partition, b"second") is ErrorCode.NONE
    eventually(lambda: victim in story.partitions()[partition].isr, "it caught up", DEADLINE_S)
    with story.at(story.partitions()[partition].leader) as raw:
        assert raw.fetch(TOPIC, 0).error_code == ErrorCode.NONE
    assert story.log_dir_error() is ErrorCode.NONE


def test_what_a_broken_disk_had_was_acknowledged_by_others_too(story: Story) -> None:
    written = [b"%d" % number for number in range(20)]
    for value in written[:10]:
        assert story.produce(story.led, value) is ErrorCode.NONE
    with failing(story.disk, errno.EIO):
        for value in written[10:]:
            eventually(
                lambda value=value: story.produce(story.led, value) is ErrorCode.NONE,  # type: ignore[misc]
                "another leads",
                DEADLINE_S,
            )
        with story.at(story.partitions()[story.led].leader) as raw:
            fetched = raw.ask(fetch_request(TOPIC, {story.led: 0}), FetchResponse, 12)
    assert values_in(partitions_of(fetched)[story.led]) == written
