"""One name deleted and created a hundred times, while it is written and read, and with a broker away half of the time.

Producing goes by the name, so a record may end in whatever topic has it when the record arrives. But one that was
acknowledged before a topic was asked for cannot be in it, and none can be in two: each is sent once. Consumers fetch by
topic id, so that what they read is of that topic and no other of its name.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from kazoo.client import KazooClient

from barnabas.errors import ErrorCode
from barnabas.model import ZERO_ID
from barnabas.wire.codec import Message
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.messages.fetch import FetchResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.records import batch_headers, records
from support.cluster import ClusterProcesses
from support.waiting import eventually
from tests.compatibility.raw import Raw, fetch_request, recent_batch_of
from tests.raw_connection import M

NAME, PARTITIONS = "phoenix", 2
ROUNDS = 100
VICTIMS = (3, 2, 1, 3)
SETTINGS = {
    "zookeeper.session.timeout.ms": "2000",
    "log.segment.delete.delay.ms": "500",
    "controlled.shutdown.retry.backoff.ms": "200",
    "barnabas.history.topic.enable": "false",
}
DEADLINE_S = 30.0
TRACES = ("/admin/delete_topics", "/brokers/topics", "/config/topics")
AGAIN_S = 0.02
WRITTEN_EVERY_S = 0.005


class Place(NamedTuple):
    """The topic that has the name now, and who leads its partitions."""

    topic_id: UUID
    leaders: dict[int, str]


class Brokers:
    """Those that are up, from any thread."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self.cluster = cluster
        self.up = set(cluster.brokers)

    def metadata(self) -> MetadataResponse | None:
        wanted = (MetadataRequestTopic(name=NAME),)
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        for number in sorted(self.up):
            with (
                contextlib.suppress(OSError),
                Raw(self.cluster.brokers[number].bootstrap_servers) as raw,
            ):
                return raw.ask(request, MetadataResponse)
        return None

    def place(self) -> Place | None:
        told = self.metadata()
        if told is None or told.topics[0].topic_id == ZERO_ID:
            return None
        addresses = {one.node_id: f"{one.host}:{one.port}" for one in told.brokers}
        leaders = {
            one.partition_index: addresses[one.leader_id]
            for one in told.topics[0].partitions
            if one.leader_id in addresses
        }
        return Place(told.topics[0].topic_id, leaders)

    def ask_controller(self, request: Message, response: type[M]) -> M | None:
        """None as long as there is none."""
        told = self.metadata()
        if told is None or told.controller_id not in self.up:
            return None
        with Raw(self.cluster.brokers[told.controller_id].bootstrap_servers) as raw:
            return raw.ask(request, response)


class Ledger:
    def __init__(self) -> None:
        self.asked_for: dict[UUID, float] = {}
        """When a topic was asked for. It was not there before."""
        self.acknowledged: dict[bytes, float] = {}
        self.seen: dict[UUID, set[bytes]] = defaultdict(set)

    def faults(self) -> list[str]:
        found = []
        where: dict[bytes, UUID] = {}
        for topic_id, values in self.seen.items():
            for value in values:
                if where.setdefault(value, topic_id) != topic_id:
                    found.append(f"{value!r} is in {where[value]} and in {topic_id}")
                if self.acknowledged.get(value, time.monotonic()) < self.asked_for[topic_id]:
                    found.append(f"{value!r} is older than {topic_id}, where it was found")
        return found


class Client(threading.Thread):
    """Does `work` at the leader of its partition, finds the topic again when that ends, until it is told to stop."""

    def __init__(self, brokers: Brokers, ledger: Ledger, partition: int) -> None:
        super().__init__(daemon=True)
        self.brokers = brokers
        self.ledger = ledger
        self.partition = partition
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.wait(AGAIN_S):
                place = self.brokers.place()
                if place is not None and self.partition in place.leaders:
                    with contextlib.suppress(OSError), Raw(place.leaders[self.partition]) as raw:
                        self.work(raw, place.topic_id)
        except BaseException as error:  # noqa: BLE001 - told to the test, which looks at it
            self.error = error

    def work(self, raw: Raw, topic_id: UUID) -> None:
        raise NotImplementedError


class Writer(Client):
    numbers = count()

    def work(self, raw: Raw, topic_id: UUID) -> None:
        while not self.stopping.wait(WRITTEN_EVERY_S):
            value = b"%d" % next(self.numbers)
            if raw.produce(NAME, recent_batch_of(value), partition=self.partition).error_code:
                return
            self.ledger.acknowledged[value] = time.monotonic()


class Reader(Client):
    def work(self, raw: Raw, topic_id: UUID) -> None:
        offset = 0
        while not self.stopping.is_set():
            request = fetch_request(
                NAME, {self.partition: offset}, topic_id=topic_id, max_wait_ms=100
            )
            answer = raw.ask(request, FetchResponse)
            if answer.error_code or answer.responses[0].partitions[0].error_code:
                return
            data = bytes(answer.responses[0].partitions[0].records or b"")
            for at, header in batch_headers(memoryview(data)):
                for record in records(memoryview(data)[at : at + header.size]):
                    assert record.value is not None
                    self.ledger.seen[topic_id].add(bytes(record.value))
                offset = header.last_offset + 1


class Phoenix:
    """The life of the name. Whatever is asked for is asked until it is done, or the test is over."""

    def __init__(self, cluster: ClusterProcesses, zookeeper: KazooClient) -> None:
        self.cluster = cluster
        self.zookeeper = zookeeper
        self.brokers = Brokers(cluster)
        self.ledger = Ledger()
        self.clients = [
            kind(self.brokers, self.ledger, partition)
            for partition in range(PARTITIONS)
            for kind in (Writer, Reader)
        ]
        self.born = 0

    def create(self) -> ErrorCode:
        """On all brokers that are up, in another order each time."""
        up = sorted(self.brokers.up)
        assignments = []
        for partition in range(PARTITIONS):
            turn = (self.born + partition) % len(up)
            assignments.append(CreatableReplicaAssignment(partition, (*up[turn:], *up[:turn])))
        topic = CreatableTopic(NAME, -1, -1, tuple(assignments))
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=10_000)
        asked_at = time.monotonic()
        answer = self.brokers.ask_controller(request, CreateTopicsResponse)
        if answer is None:
            return ErrorCode.NOT_CONTROLLER
        (result,) = answer.topics
        if result.topic_id != ZERO_ID:
            self.ledger.asked_for[result.topic_id] = asked_at
        return ErrorCode(result.error_code)

    def delete(self) -> ErrorCode:
        wanted = (DeleteTopicState(NAME),)
        request = DeleteTopicsRequest(topics=wanted, timeout_ms=10_000)
        answer = self.brokers.ask_controller(request, DeleteTopicsResponse)
        return (
            ErrorCode.NOT_CONTROLLER
            if answer is None
            else ErrorCode(answer.responses[0].error_code)
        )

    def rise(self) -> None:
        """It is there, and somebody has read what somebody wrote."""
        eventually(lambda: self.is_done(self.create()), "the name is free, and taken", DEADLINE_S)
        self.born += 1
        topic_id = list(self.ledger.asked_for)[-1]
        eventually(
            lambda: bool(self.ledger.seen.get(topic_id)), "it is written and read", DEADLINE_S
        )

    def fall(self) -> None:
        eventually(lambda: self.is_done(self.delete()), "it is marked for deletion", DEADLINE_S)

    def is_done(self, code: ErrorCode) -> bool:
        retriable = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NOT_CONTROLLER)
        assert code in (ErrorCode.NONE, *retriable), code
        return code is ErrorCode.NONE

    def is_free(self) -> bool:
        return not any(self.zookeeper.get_children(path) for path in TRACES)

    def live(self, rounds: int) -> None:
        for _ in range(rounds):
            self.rise()
            self.fall()


def test_what_is_looked_for_would_be_found() -> None:
    old, new = UUID(int=1), UUID(int=2)
    ledger = Ledger()
    ledger.asked_for |= {old: 10.0, new: 20.0}
    ledger.acknowledged |= {b"early": 15.0, b"late": 25.0, b"both": 25.0}
    ledger.seen |= {old: {b"early", b"both", b"unanswered"}, new: {b"late"}}
    assert ledger.faults() == []
    ledger.seen[new].add(b"both")
    assert len(ledger.faults()) == 1
    ledger.seen[new] = {b"early"}
    ledger.seen[old] = set()
    assert len(ledger.faults()) == 1


def test_a_name_that_is_used_again_and_again_never_brings_back_what_it_held(
    tmp_path: Path, chroot: str
) -> None:
    with (
        ClusterProcesses(tmp_path, chroot, brokers=3, settings=SETTINGS) as cluster,
        connected(chroot) as zookeeper,
    ):
        phoenix = Phoenix(cluster, zookeeper)
        for client in phoenix.clients:
            client.start()
        try:
            for victim in VICTIMS:
                die_and_come_back(phoenix, victim, rounds=ROUNDS // len(VICTIMS))
        finally:
            for client in phoenix.clients:
                client.stopping.set()
            for client in phoenix.clients:
                client.join(DEADLINE_S)
        assert [client.error for client in phoenix.clients] == [None] * len(phoenix.clients)
        assert phoenix.born == len(phoenix.ledger.asked_for) == ROUNDS
        assert phoenix.ledger.faults() == []
        eventually(phoenix.is_free, "the registry has forgotten it", DEADLINE_S)
        eventually(lambda: not directories(cluster), "and so have the disks", DEADLINE_S)


def die_and_come_back(phoenix: Phoenix, victim: int, rounds: int) -> None:
    broker, up = phoenix.cluster.brokers[victim], phoenix.brokers.up
    half = rounds // 2
    phoenix.live(half)
    # Its copy is on nobody's list when it is back: it must not be taken for one of the next topic.
    phoenix.rise()
    up.discard(victim)
    broker.kill()
    phoenix.fall()
    eventually(lambda: refuses(phoenix), "the name waits for who is away", DEADLINE_S)
    come_back(phoenix, victim)
    phoenix.live(1)
    eventually(phoenix.is_free, "what waited for nobody but it is gone", DEADLINE_S)
    up.discard(victim)
    broker.stop()
    phoenix.live(rounds - half - 2)
    come_back(phoenix, victim)


def come_back(phoenix: Phoenix, victim: int) -> None:
    """Not before all know of it: the controller's broker places no replicas on one that it has not heard of."""
    phoenix.cluster.brokers[victim].start()
    phoenix.cluster.wait_until_ready()
    phoenix.brokers.up.add(victim)


def refuses(phoenix: Phoenix) -> bool:
    code = phoenix.create()
    assert code in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NOT_CONTROLLER), code
    return code is ErrorCode.TOPIC_ALREADY_EXISTS


@contextlib.contextmanager
def connected(chroot: str) -> Iterator[KazooClient]:
    zookeeper = KazooClient(hosts=chroot)
    zookeeper.start()
    try:
        yield zookeeper
    finally:
        zookeeper.stop()
        zookeeper.close()


def directories(cluster: ClusterProcesses) -> Sequence[Path]:
    return [
        path for broker in cluster.brokers.values() for path in broker.log_dir.glob(f"{NAME}-*")
    ]
