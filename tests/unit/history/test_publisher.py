from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from uuid import UUID

import pytest

from barnabas.batch.records import Record, records
from barnabas.errors import ErrorCode
from barnabas.history import publisher as publishers
from barnabas.history.journal import Journal
from barnabas.history.publisher import Publisher
from barnabas.history.recorder import EventSink, Recorder
from barnabas.metadata.cache import MetadataCache, PartitionMetadata, TopicMetadata
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import Broker, BrokerId, ControllerEpoch, Endpoint, LeaderEpoch, TopicPartition
from barnabas.wire.codec import Message
from barnabas.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.world.clock import SystemClock
from barnabas.world.network import SocketNetwork
from barnabas.world.ports import World
from barnabas.world.registry.embedded import EmbeddedRegistry
from simulator.disk import ForgetfulDisk
from tests.unit.client.scripted_broker import ScriptedBroker
from tests.unit.controller.cluster import state
from tests.unit.history.test_recorder import leader_and_isr, online

ONE = BrokerId(1)


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishers, "LINGER_S", 0.0)
    monkeypatch.setattr(publishers, "RETRY_S", (0.001, 0.05))


def topic(name: str, leader: int = 1) -> TopicMetadata:
    one = (BrokerId(1),)
    partition = PartitionMetadata(BrokerId(leader), LeaderEpoch(0), one, one)
    return TopicMetadata(name=name, topic_id=UUID(int=len(name)), partitions={0: partition})


class HistoryTarget:
    """Leader and controller that receive the published events."""

    def __init__(self) -> None:
        self.cache = MetadataCache("test")
        self.codes: list[ErrorCode] = []
        """Error codes of the next responses; later requests succeed."""
        self.records: list[Record] = []
        self.created: list[CreateTopicsRequest] = []
        self.loop = asyncio.get_running_loop()
        self.disk = ForgetfulDisk(now_ms=SystemClock().now_ms)
        self.disk.make_directory("/data")

    def create(self, request: CreateTopicsRequest) -> Message:
        self.created.append(request)
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        if not code:
            self.loop.call_soon_threadsafe(self.show, topic(STATE_CHANGES))
        result = CreatableTopicResult(name=STATE_CHANGES, error_code=code)
        return CreateTopicsResponse(topics=(result,))

    def show(self, shown: TopicMetadata) -> None:
        self.cache.put_topic(shown)
        self.cache.wake()

    def produce(self, request: ProduceRequest) -> Message:
        assert request.acks == -1
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        batch = request.topic_data[0].partition_data[0].records
        assert batch is not None
        found = list(records(memoryview(batch)))
        if code is ErrorCode.MESSAGE_TOO_LARGE and len(found) > 1:
            self.codes = [code, code]
        elif not code:
            self.records += found
        answer = PartitionProduceResponse(index=0, error_code=code)
        return ProduceResponse(responses=(TopicProduceResponse(STATE_CHANGES, (answer,)),))

    def ids(self) -> list[object]:
        return [json.loads(record.value or b"")["id"] for record in self.records]

    def publisher(self, *, is_enabled: bool = True) -> Publisher:
        world = World(
            clock=SystemClock(),
            network=SocketNetwork(),
            disk=self.disk,
            registry=EmbeddedRegistry(None, SystemClock()),
            random=Random(1),
        )
        publisher = Publisher(
            world,
            "/data",
            self.cache,
            client_id="broker-1-history",
            listener="PLAINTEXT",
            is_enabled=is_enabled,
        )
        publisher.open()
        return publisher


@pytest.fixture
async def target() -> AsyncIterator[HistoryTarget]:
    other = HistoryTarget()
    answers: dict[type[Message], Callable[..., Message | None]] = {
        CreateTopicsRequest: other.create,
        ProduceRequest: other.produce,
    }
    with ScriptedBroker(answers, node_id=1) as broker:
        endpoint = Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=broker.port)
        other.cache.brokers[ONE] = Broker(id=ONE, endpoints=(endpoint,))
        other.cache.controller_id = ONE
        yield other


@asynccontextmanager
async def publishing(publisher: Publisher) -> AsyncIterator[None]:
    task = asyncio.get_running_loop().create_task(publisher.publish())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        publisher.close()


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.002)


def recorder_to(sink: EventSink, epoch: int = 7) -> Recorder:
    return Recorder(ONE, ControllerEpoch(epoch), SystemClock(), sink)


def record_transitions(recorder: Recorder, count: int) -> None:
    partitions = [TopicPartition("orders", number) for number in range(count)]
    recorder.record_transitions([online(each) for each in partitions])


def names(count: int) -> Iterator[str]:
    return (f"orders-{number}" for number in range(count))


async def test_first_event_creates_the_topic_and_events_keep_their_order(
    target: HistoryTarget,
) -> None:
    publisher = target.publisher()
    recorder = recorder_to(publisher)
    recorder.record_election(cause="Startup#1")
    async with publishing(publisher):
        target.show(topic("orders"))
        record_transitions(recorder, 2_000)
        await wait_until(lambda: len(target.records) == 2_001)
    assert target.ids() == ["controller", *names(2_000)]
    (created,) = target.created[0].topics
    assert (created.name, created.num_partitions, created.replication_factor) == (
        STATE_CHANGES,
        1,
        1,
    )
    configs = {config.name: config.value for config in created.configs}
    assert configs["retention.ms"] == "604800000"


async def test_record_has_epoch_and_sequence_as_key_and_time_of_event(
    target: HistoryTarget,
) -> None:
    target.show(topic(STATE_CHANGES))
    publisher = target.publisher()
    record_transitions(recorder_to(publisher, epoch=12), 1)
    async with publishing(publisher):
        await wait_until(lambda: bool(target.records))
    (record,) = target.records
    assert record.key == b"12-1"
    at = json.loads(record.value or b"")["at"]
    assert at.endswith(f".{record.timestamp % 1000:03d}Z")
    assert not target.created


async def test_topic_is_not_created_before_another_topic(target: HistoryTarget) -> None:
    publisher = target.publisher()
    recorder_to(publisher).record_election(cause="Startup#1")
    async with publishing(publisher):
        await wait_until(lambda: bool(target.cache.waiting))
        assert not target.created
        target.show(topic("orders"))
        await wait_until(lambda: bool(target.records))
    assert len(target.created) == 1


async def test_events_about_history_topic_are_not_published(target: HistoryTarget) -> None:
    target.show(topic(STATE_CHANGES))
    publisher = target.publisher()
    recorder = recorder_to(publisher)
    own = TopicPartition(STATE_CHANGES, 0)
    recorder.record_request(ONE, leader_and_isr((STATE_CHANGES, [0])), cause="TopicsChanged#2")
    recorder.record_transitions([online(own)])
    recorder.record_isr_changes([(own, state(1, (1,)))], cause="AlterPartition#3")
    record_transitions(recorder, 1)
    async with publishing(publisher):
        await wait_until(lambda: bool(target.records))
    assert target.ids() == ["orders-0"]
    (name,) = [name for name in target.disk.list("/data") if name.endswith(".jsonl")]
    assert target.disk.read_bytes(f"/data/{name}").count(b"\n") == 4


async def test_retriable_errors_are_retried(target: HistoryTarget) -> None:
    target.show(topic("orders"))
    target.codes = [
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    ]
    publisher = target.publisher()
    record_transitions(recorder_to(publisher), 3)
    async with publishing(publisher):
        await wait_until(lambda: bool(target.records))
    assert target.ids() == list(names(3))
    assert len(target.created) == 2


async def test_publishing_waits_for_a_leader(target: HistoryTarget) -> None:
    target.show(topic(STATE_CHANGES, leader=-1))
    publisher = target.publisher()
    record_transitions(recorder_to(publisher), 3)
    async with publishing(publisher):
        await wait_until(lambda: bool(target.cache.waiting))
        target.show(topic(STATE_CHANGES))
        await wait_until(lambda: bool(target.records))
    assert target.ids() == list(names(3))


async def test_batch_that_is_too_large_is_split(target: HistoryTarget) -> None:
    target.show(topic(STATE_CHANGES))
    target.codes = [ErrorCode.MESSAGE_TOO_LARGE]
    publisher = target.publisher()
    record_transitions(recorder_to(publisher), 1)
    recorder_to(publisher, epoch=8).record_election(cause="Startup#1")
    async with publishing(publisher):
        await wait_until(lambda: publisher.journal.next_chunk(1_000) is None)
        record_transitions(recorder_to(publisher, epoch=9), 1)
        await wait_until(lambda: bool(target.records))
    assert target.ids()[-1] == "orders-0"


async def test_next_run_publishes_remaining_events(target: HistoryTarget) -> None:
    publisher = target.publisher()
    record_transitions(recorder_to(publisher, epoch=7), 2)
    publisher.close()
    target.show(topic(STATE_CHANGES))
    async with publishing(first := target.publisher()):
        # Also wait until the position is saved: otherwise the next run publishes these events again.
        await wait_until(lambda: first.journal.next_chunk(1_000) is None)
    async with publishing(later := target.publisher()):
        record_transitions(recorder_to(later, epoch=9), 1)
        await wait_until(lambda: len(target.records) == 3)
    assert [record.key for record in target.records] == [b"7-1", b"7-2", b"9-1"]


async def test_disabled_publisher_writes_the_journal_only(target: HistoryTarget) -> None:
    target.show(topic("orders"))
    publisher = target.publisher(is_enabled=False)
    record_transitions(recorder_to(publisher), 2)
    await publisher.publish()
    assert not target.created
    assert publisher.journal.next_chunk(10_000) is not None
    publisher.close()


def is_published(journal: Journal) -> bool:
    return journal.next_chunk(1_000) is None


async def test_events_of_coordinators_are_published_with_their_own_key(
    target: HistoryTarget,
) -> None:
    target.show(topic(STATE_CHANGES))
    runs = []
    for group in ("a", "b"):
        publisher = target.publisher()
        recorder = publisher.coordinator_recorder(ONE)
        assert recorder is not None
        runs.append(recorder.run)
        recorder.record_group(group, {"why": '"epoch":1,"sequence":2'})
        record_transitions(recorder_to(publisher), 1)
        journal = publisher.coordinator_journal
        async with publishing(publisher):
            await wait_until(partial(is_published, journal))
    assert runs[0] < runs[1]
    keys = [record.key for record in target.records]
    assert keys == [b"7-1", f"1-{runs[0]}-1".encode(), b"7-1", f"1-{runs[1]}-1".encode()]


async def test_run_follows_that_of_a_clock_that_was_set_back(target: HistoryTarget) -> None:
    future = 2 * SystemClock().now_ms()
    target.disk.replace_bytes(f"/data/coordinator-events-{future}-000000000001.jsonl", b"{}\n")
    recorder = target.publisher().coordinator_recorder(ONE)
    assert recorder is not None
    assert recorder.run == future + 1


async def test_disabled_history_has_no_events_of_coordinators(target: HistoryTarget) -> None:
    assert target.publisher(is_enabled=False).coordinator_recorder(ONE) is None
    assert target.disk.list("/data") == []


@pytest.mark.parametrize("at", [b"then", b"2026-99-01", b"\xff"])
def test_corrupt_line_becomes_record_without_time(at: bytes) -> None:
    line = b'{"at":"%s","epoch":1,"sequence":2}' % at
    assert publishers.to_record(line, 3) == Record(3, 0, None, line, ())
