"""Consumers that say which rack they stand in read from a follower there, and from somebody else when it dies."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from msgspec.structs import replace

from barnabas import LocalCluster
from barnabas.config.load import RACK_AWARE_SELECTOR
from barnabas.errors import ErrorCode
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from support.waiting import eventually
from tests.compatibility.raw import (
    Raw,
    fetch_request,
    partitions_of,
    recent_batch_of,
    values_in,
    wait_until_known,
)

LEADER, FOLLOWER, OTHER = 1, 2, 3
RACKS = {LEADER: "a", FOLLOWER: "b", OTHER: "c"}
WAIT_MS = 10_000
TOPIC = "t"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """The wait of a follower's fetch is long: whatever comes sooner was not brought by its end."""
    settings = {
        "replica.selector.class": RACK_AWARE_SELECTOR,
        "replica.fetch.wait.max.ms": WAIT_MS,
        "log.retention.ms": -1,
    }
    cluster = LocalCluster(brokers=3, settings=settings)
    for number, broker in cluster.brokers.items():
        broker.config = replace(broker.config, broker_rack=RACKS[number])
    wanted = CreatableTopic(TOPIC, -1, -1, (CreatableReplicaAssignment(0, (1, 2, 3)),))
    with cluster:
        assert cluster.controller_id is not None
        with at(cluster, cluster.controller_id) as raw:
            created = raw.ask(CreateTopicsRequest(topics=(wanted,)), CreateTopicsResponse)
        assert created.topics[0].error_code == ErrorCode.NONE
        wait_until_known([broker.address for broker in cluster.brokers.values()], TOPIC)
        with at(cluster, LEADER) as raw:
            assert raw.produce(TOPIC, recent_batch_of(b"0")).error_code == ErrorCode.NONE
        yield cluster


def at(cluster: LocalCluster, broker: int) -> Raw:
    return Raw(cluster.brokers[broker].address)


def from_rack(rack: str, offset: int, **options: Any) -> FetchRequest:
    return replace(fetch_request(TOPIC, {0: offset}, **options), rack_id=rack)


def fetched(raw: Raw, request: FetchRequest, version: int = 12) -> PartitionData:
    return partitions_of(raw.ask(request, FetchResponse, version))[0]


def test_the_leader_names_the_follower_in_the_rack_at_once_and_sends_nothing(
    cluster: LocalCluster,
) -> None:
    with at(cluster, LEADER) as leader:
        waiting = from_rack("b", 0, max_wait_ms=60_000, min_bytes=1 << 20)
        answer = fetched(leader, waiting)
        assert answer.error_code == ErrorCode.NONE
        assert answer.preferred_read_replica == FOLLOWER
        assert not answer.records
        assert answer.high_watermark > answer.log_start_offset == 0


@pytest.mark.parametrize("rack", ["a", "elsewhere", ""])
def test_the_leader_serves_its_own_rack_and_who_has_no_replica_near(
    cluster: LocalCluster, rack: str
) -> None:
    with at(cluster, LEADER) as leader:
        answer = fetched(leader, from_rack(rack, 0))
        assert answer.preferred_read_replica == -1
        assert values_in(answer)[0] == b"0"


def test_what_no_follower_holds_is_asked_of_the_leader(cluster: LocalCluster) -> None:
    with at(cluster, LEADER) as leader:
        answer = fetched(leader, from_rack("b", 500))
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert answer.preferred_read_replica == -1


def test_a_follower_serves_and_sends_nobody_on(cluster: LocalCluster) -> None:
    with at(cluster, FOLLOWER) as follower:
        request = from_rack("c", 0, max_wait_ms=10_000)
        answer = fetched(follower, request)
        assert answer.preferred_read_replica == -1
        assert values_in(answer)[0] == b"0"


def test_in_a_session_it_is_told_with_every_fetch(cluster: LocalCluster) -> None:
    with at(cluster, LEADER) as leader:
        first = leader.ask(from_rack("b", 0, session_epoch=0), FetchResponse, 12)
        assert partitions_of(first)[0].preferred_read_replica == FOLLOWER
        again = from_rack("b", 0, session_id=first.session_id, session_epoch=1, max_wait_ms=60_000)
        for epoch in (1, 2):
            request = replace(again, session_epoch=epoch, topics=())
            answer = leader.ask(request, FetchResponse, 12)
            assert partitions_of(answer)[0].preferred_read_replica == FOLLOWER


def test_a_follower_hears_of_the_high_watermark_at_once(cluster: LocalCluster) -> None:
    with at(cluster, LEADER) as leader, at(cluster, FOLLOWER) as follower:
        end = leader.produce(TOPIC, recent_batch_of(b"first")).base_offset + 1
        began = time.monotonic()
        for offset in range(end, end + 10):
            ticket = follower.begin(from_rack("b", offset, max_wait_ms=60_000), 12)
            leader.produce(TOPIC, recent_batch_of(b"%d" % offset))
            answer = partitions_of(follower.answer(FetchResponse, *ticket))[0]
            assert values_in(answer) == [b"%d" % offset]
        assert time.monotonic() - began < WAIT_MS / 1000


class Reader:
    """confluent-kafka, which tells in its statistics whom it reads a partition from."""

    def __init__(self, cluster: LocalCluster, rack: str) -> None:
        self.source = -1
        self.offsets: list[int] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "reader",
                "client.rack": rack,
                "enable.auto.commit": False,
                "statistics.interval.ms": 20,
                "stats_cb": self.take_statistics,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 500,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        self.consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def take_statistics(self, text: str) -> None:
        partitions = json.loads(text)["topics"].get(TOPIC, {}).get("partitions", {})
        if "0" in partitions:
            self.source = partitions["0"]["broker"]

    def poll(self) -> bool:
        message = self.consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.offsets.append(message.offset())
        return True

    def has_read(self, count: int) -> bool:
        return self.poll() and len(self.offsets) >= count


def test_a_client_reads_from_the_follower_in_its_rack_and_goes_on_when_that_dies(
    cluster: LocalCluster,
) -> None:
    reader = Reader(cluster, "b")
    with contextlib.closing(reader.consumer), at(cluster, LEADER) as leader:
        written = leader.produce(TOPIC, recent_batch_of(b"begin")).base_offset + 1

        def write(count: int) -> int:
            for offset in range(written, written + count):
                assert leader.produce(TOPIC, recent_batch_of(b"%d" % offset)).base_offset == offset
            return written + count

        eventually(lambda: reader.has_read(written), "what was there")
        eventually(lambda: reader.poll() and reader.source == FOLLOWER, "it reads of the follower")
        written = write(50)
        eventually(lambda: reader.has_read(written), "what was produced")
        assert reader.source == FOLLOWER
        cluster.brokers[FOLLOWER].kill()
        try:
            written = write(50)
            eventually(lambda: reader.has_read(written), "what was produced after its death")
            assert reader.offsets == [*range(written)]
            eventually(lambda: reader.poll() and reader.source == LEADER, "it reads of the leader")
        finally:
            cluster.brokers[FOLLOWER].start()
