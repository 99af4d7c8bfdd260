"""Consumers with a rack id read from a follower in that rack, and from another replica when it fails."""

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
    """Follower fetches have a long wait, so anything that arrives earlier was not caused by its timeout."""
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


def test_leader_returns_preferred_read_replica_at_once(
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
def test_leader_serves_own_rack_and_racks_without_replica(cluster: LocalCluster, rack: str) -> None:
    with at(cluster, LEADER) as leader:
        answer = fetched(leader, from_rack(rack, 0))
        assert answer.preferred_read_replica == -1
        assert values_in(answer)[0] == b"0"


def test_offset_beyond_followers_is_served_by_leader(cluster: LocalCluster) -> None:
    with at(cluster, LEADER) as leader:
        answer = fetched(leader, from_rack("b", 500))
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert answer.preferred_read_replica == -1


def test_follower_serves_without_redirect(cluster: LocalCluster) -> None:
    with at(cluster, FOLLOWER) as follower:
        request = from_rack("c", 0, max_wait_ms=10_000)
        answer = fetched(follower, request)
        assert answer.preferred_read_replica == -1
        assert values_in(answer)[0] == b"0"


def test_session_fetches_repeat_preferred_read_replica(cluster: LocalCluster) -> None:
    with at(cluster, LEADER) as leader:
        first = leader.ask(from_rack("b", 0, session_epoch=0), FetchResponse, 12)
        assert partitions_of(first)[0].preferred_read_replica == FOLLOWER
        again = from_rack("b", 0, session_id=first.session_id, session_epoch=1, max_wait_ms=60_000)
        for epoch in (1, 2):
            request = replace(again, session_epoch=epoch, topics=())
            answer = leader.ask(request, FetchResponse, 12)
            assert partitions_of(answer)[0].preferred_read_replica == FOLLOWER


def test_follower_learns_high_watermark_at_once(cluster: LocalCluster) -> None:
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
    """A confluent-kafka consumer; its statistics name the broker it reads a partition from."""

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


def test_client_reads_from_rack_follower_and_survives_its_failure(
    cluster: LocalCluster,
) -> None:
    reader = Reader(cluster, "b")
    with contextlib.closing(reader.consumer), at(cluster, LEADER) as leader:
        written = leader.produce(TOPIC, recent_batch_of(b"begin")).base_offset + 1

        def write(count: int) -> int:
            for offset in range(written, written + count):
                assert leader.produce(TOPIC, recent_batch_of(b"%d" % offset)).base_offset == offset
            return written + count

        eventually(lambda: reader.has_read(written), "existing records are read")
        eventually(
            lambda: reader.poll() and reader.source == FOLLOWER, "it reads from the follower"
        )
        written = write(50)
        eventually(lambda: reader.has_read(written), "what was produced")
        assert reader.source == FOLLOWER
        cluster.brokers[FOLLOWER].kill()
        try:
            written = write(50)
            eventually(lambda: reader.has_read(written), "records after the failure are read")
            assert reader.offsets == [*range(written)]
            eventually(lambda: reader.poll() and reader.source == LEADER, "it reads of the leader")
        finally:
            cluster.brokers[FOLLOWER].start()
