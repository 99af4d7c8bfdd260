"""One topic name is deleted and created a hundred times under load, with a broker down half of the time.

Produce requests name the topic, so a record may go to any topic with that name. But a record acknowledged before a
topic was requested cannot be in that topic, and no record can be in two topics: each is sent once. Consumers fetch by
topic id, so they read only that topic.
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

from barnabas.batch.header import batch_headers
from barnabas.batch.records import records
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
from support.cluster import ClusterProcesses
from support.waiting import eventually
from tests.compatibility.raw import Raw, fetch_request, recent_batch_of
from tests.raw_connection import M

NAME, PARTITIONS = "recreated", 2
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
RETRY_INTERVAL_S = 0.02
WRITE_INTERVAL_S = 0.005


class TopicLocation(NamedTuple):
    """The current topic of that name and the leaders of its partitions."""

    topic_id: UUID
    leaders: dict[int, str]


class Brokers:
    """The running brokers; thread-safe."""

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

    def locate_topic(self) -> TopicLocation | None:
        metadata = self.metadata()
        if metadata is None or metadata.topics[0].topic_id == ZERO_ID:
            return None
        addresses = {one.node_id: f"{one.host}:{one.port}" for one in metadata.brokers}
        leaders = {
            one.partition_index: addresses[one.leader_id]
            for one in metadata.topics[0].partitions
            if one.leader_id in addresses
        }
        return TopicLocation(metadata.topics[0].topic_id, leaders)

    def ask_controller(self, request: Message, response: type[M]) -> M | None:
        """None while there is no controller."""
        metadata = self.metadata()
        if metadata is None or metadata.controller_id not in self.up:
            return None
        with Raw(self.cluster.brokers[metadata.controller_id].bootstrap_servers) as raw:
            return raw.ask(request, response)


class Ledger:
    def __init__(self) -> None:
        self.requested_at: dict[UUID, float] = {}
        """The time at which each topic was requested. It did not exist before."""
        self.acknowledged: dict[bytes, float] = {}
        self.seen: dict[UUID, set[bytes]] = defaultdict(set)

    def faults(self) -> list[str]:
        found = []
        where: dict[bytes, UUID] = {}
        for topic_id, values in self.seen.items():
            for value in values:
                if where.setdefault(value, topic_id) != topic_id:
                    found.append(f"{value!r} is in {where[value]} and in {topic_id}")
                if self.acknowledged.get(value, time.monotonic()) < self.requested_at[topic_id]:
                    found.append(f"{value!r} is older than its topic {topic_id}")
        return found


class Client(threading.Thread):
    """Runs `work` at the leader of its partition, and locates the topic again when that fails, until stopped."""

    def __init__(self, brokers: Brokers, ledger: Ledger, partition: int) -> None:
        super().__init__(daemon=True)
        self.brokers = brokers
        self.ledger = ledger
        self.partition = partition
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.wait(RETRY_INTERVAL_S):
                location = self.brokers.locate_topic()
                if location is not None and self.partition in location.leaders:
                    with (
                        contextlib.suppress(OSError),
                        Raw(location.leaders[self.partition]) as raw,
                    ):
                        self.work(raw, location.topic_id)
        except BaseException as error:  # noqa: BLE001 - the test checks it
            self.error = error

    def work(self, raw: Raw, topic_id: UUID) -> None:
        raise NotImplementedError


class Writer(Client):
    numbers = count()

    def work(self, raw: Raw, topic_id: UUID) -> None:
        while not self.stopping.wait(WRITE_INTERVAL_S):
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


class RecreatedTopic:
    """A topic that is created and deleted repeatedly. Requests are retried until they succeed or the test ends."""

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
        self.created_count = 0

    def create(self) -> ErrorCode:
        """Create it on all running brokers, in a different order each time."""
        up = sorted(self.brokers.up)
        assignments = []
        for partition in range(PARTITIONS):
            turn = (self.created_count + partition) % len(up)
            assignments.append(CreatableReplicaAssignment(partition, (*up[turn:], *up[:turn])))
        topic = CreatableTopic(NAME, -1, -1, tuple(assignments))
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=10_000)
        asked_at = time.monotonic()
        answer = self.brokers.ask_controller(request, CreateTopicsResponse)
        if answer is None:
            return ErrorCode.NOT_CONTROLLER
        (result,) = answer.topics
        if result.topic_id != ZERO_ID:
            self.ledger.requested_at[result.topic_id] = asked_at
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

    def create_and_use(self) -> None:
        """Create the topic and wait until a record was written and read."""
        eventually(lambda: self.is_done(self.create()), "the topic is created", DEADLINE_S)
        self.created_count += 1
        topic_id = list(self.ledger.requested_at)[-1]
        eventually(
            lambda: bool(self.ledger.seen.get(topic_id)), "it is written and read", DEADLINE_S
        )

    def start_deletion(self) -> None:
        eventually(lambda: self.is_done(self.delete()), "it is marked for deletion", DEADLINE_S)

    def is_done(self, code: ErrorCode) -> bool:
        retriable = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NOT_CONTROLLER)
        assert code in (ErrorCode.NONE, *retriable), code
        return code is ErrorCode.NONE

    def is_free(self) -> bool:
        return not any(self.zookeeper.get_children(path) for path in TRACES)

    def recreate(self, rounds: int) -> None:
        for _ in range(rounds):
            self.create_and_use()
            self.start_deletion()


def test_ledger_detects_misplaced_records() -> None:
    old, new = UUID(int=1), UUID(int=2)
    ledger = Ledger()
    ledger.requested_at |= {old: 10.0, new: 20.0}
    ledger.acknowledged |= {b"early": 15.0, b"late": 25.0, b"both": 25.0}
    ledger.seen |= {old: {b"early", b"both", b"unanswered"}, new: {b"late"}}
    assert ledger.faults() == []
    ledger.seen[new].add(b"both")
    assert len(ledger.faults()) == 1
    ledger.seen[new] = {b"early"}
    ledger.seen[old] = set()
    assert len(ledger.faults()) == 1


def test_recreated_topics_never_contain_old_records(tmp_path: Path, chroot: str) -> None:
    with (
        ClusterProcesses(tmp_path, chroot, brokers=3, settings=SETTINGS) as cluster,
        connected(chroot) as zookeeper,
    ):
        recreated = RecreatedTopic(cluster, zookeeper)
        for client in recreated.clients:
            client.start()
        try:
            for victim in VICTIMS:
                fail_and_restart(recreated, victim, rounds=ROUNDS // len(VICTIMS))
        finally:
            for client in recreated.clients:
                client.stopping.set()
            for client in recreated.clients:
                client.join(DEADLINE_S)
        assert [client.error for client in recreated.clients] == [None] * len(recreated.clients)
        assert recreated.created_count == len(recreated.ledger.requested_at) == ROUNDS
        assert recreated.ledger.faults() == []
        eventually(recreated.is_free, "the registry has removed the topic", DEADLINE_S)
        eventually(lambda: not directories(cluster), "and so have the disks", DEADLINE_S)


def fail_and_restart(recreated: RecreatedTopic, victim: int, rounds: int) -> None:
    broker, up = recreated.cluster.brokers[victim], recreated.brokers.up
    half = rounds // 2
    recreated.recreate(half)
    # Its replica is on no assignment when it restarts. It must not be used for the next topic of that name.
    recreated.create_and_use()
    up.discard(victim)
    broker.kill()
    recreated.start_deletion()
    eventually(
        lambda: rejects_creation(recreated), "deletion waits for the failed broker", DEADLINE_S
    )
    restart(recreated, victim)
    recreated.recreate(1)
    eventually(recreated.is_free, "the pending deletion is complete", DEADLINE_S)
    up.discard(victim)
    broker.stop()
    recreated.recreate(rounds - half - 2)
    restart(recreated, victim)


def restart(recreated: RecreatedTopic, victim: int) -> None:
    """Start it and wait until all know it: the controller places no replicas on a broker it does not know."""
    recreated.cluster.brokers[victim].start()
    recreated.cluster.wait_until_ready()
    recreated.brokers.up.add(victim)


def rejects_creation(recreated: RecreatedTopic) -> bool:
    code = recreated.create()
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
