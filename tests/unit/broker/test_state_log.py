from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from random import Random
from uuid import UUID

import pytest

from barnabas.broker import state_log as state_logs
from barnabas.broker.state_log import StateLog
from barnabas.controller.history import History, StateChange
from barnabas.errors import ErrorCode
from barnabas.metadata.cache import MetadataCache, PartitionState, TopicState
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import Broker, BrokerId, ControllerEpoch, Endpoint, LeaderEpoch, TopicPartition
from barnabas.wire.codec import Message
from barnabas.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.wire.messages.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.records import Record, records
from barnabas.world.clock import SystemClock
from barnabas.world.network import SocketNetwork
from barnabas.world.ports import World
from barnabas.world.registry.embedded import EmbeddedRegistry
from simulator.disk import ForgetfulDisk
from tests.unit.client.scripted_broker import ScriptedBroker
from tests.unit.controller.cluster import state
from tests.unit.controller.test_history import leader_and_isr, online

ONE = BrokerId(1)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_logs, "LINGER_S", 0.0)
    monkeypatch.setattr(state_logs, "RETRY_S", (0.001, 0.05))


def topic(name: str, leader: int = 1) -> TopicState:
    one = (BrokerId(1),)
    partition = PartitionState(BrokerId(leader), LeaderEpoch(0), one, one)
    return TopicState(name=name, topic_id=UUID(int=len(name)), partitions={0: partition})


class Published:
    """The other side: a broker that leads and controls, and what it was given."""

    def __init__(self) -> None:
        self.cache = MetadataCache("test")
        self.codes: list[ErrorCode] = []
        """What the next requests are answered with, before all goes well again."""
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

    def show(self, shown: TopicState) -> None:
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

    def state_log(self, *, is_published: bool = True) -> StateLog:
        world = World(
            clock=SystemClock(),
            network=SocketNetwork(),
            disk=self.disk,
            registry=EmbeddedRegistry(None, SystemClock()),
            random=Random(1),
        )
        log = StateLog(
            world,
            "/data",
            self.cache,
            broker_id=ONE,
            listener="PLAINTEXT",
            is_published=is_published,
        )
        log.open()
        return log


@pytest.fixture
async def published() -> AsyncIterator[Published]:
    other = Published()
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
async def publishing(log: StateLog) -> AsyncIterator[None]:
    task = asyncio.get_running_loop().create_task(log.publish())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        log.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.002)


def history(epoch: int = 7) -> History:
    return History(ONE, ControllerEpoch(epoch), SystemClock())


def moves(told: History, count: int) -> list[StateChange]:
    return told.moved([online(TopicPartition("orders", number)) for number in range(count)])


def names(count: int) -> Iterator[str]:
    return (f"orders-{number}" for number in range(count))


async def test_the_topic_is_made_for_the_first_event_and_gets_all_in_order(
    published: Published,
) -> None:
    log = published.state_log()
    told = history()
    log.record(told.elected(cause="Startup#1"))
    async with publishing(log):
        published.show(topic("orders"))
        log.record(moves(told, 2_000))
        await until(lambda: len(published.records) == 2_001)
    assert published.ids() == ["controller", *names(2_000)]
    (asked,) = published.created[0].topics
    assert (asked.name, asked.num_partitions, asked.replication_factor) == (STATE_CHANGES, 1, 1)
    configs = {config.name: config.value for config in asked.configs}
    assert configs["retention.ms"] == "604800000"


async def test_a_record_has_the_events_name_as_its_key_and_the_events_time(
    published: Published,
) -> None:
    published.show(topic(STATE_CHANGES))
    log = published.state_log()
    log.record(moves(history(epoch=12), 1))
    async with publishing(log):
        await until(lambda: bool(published.records))
    (record,) = published.records
    assert record.key == b"12-1"
    at = json.loads(record.value or b"")["at"]
    assert at.endswith(f".{record.timestamp % 1000:03d}Z")
    assert not published.created


async def test_no_topic_is_made_before_there_is_one_to_tell_of(published: Published) -> None:
    log = published.state_log()
    log.record(history().elected(cause="Startup#1"))
    async with publishing(log):
        await until(lambda: bool(published.cache.waiting))
        assert not published.created
        published.show(topic("orders"))
        await until(lambda: bool(published.records))
    assert len(published.created) == 1


async def test_events_about_the_history_itself_stay_in_the_file(published: Published) -> None:
    published.show(topic(STATE_CHANGES))
    log = published.state_log()
    told = history()
    own = TopicPartition(STATE_CHANGES, 0)
    sent = told.sent(ONE, leader_and_isr((STATE_CHANGES, [0])), cause="TopicsChanged#2")
    changes = told.moved([online(own)])
    changes += sent.changes
    changes += told.isr_changed([(own, state(1, (1,)))], cause="AlterPartition#3")
    log.record([*changes, *moves(told, 1)])
    async with publishing(log):
        await until(lambda: bool(published.records))
    assert published.ids() == ["orders-0"]
    (name,) = [name for name in published.disk.list("/data") if name.endswith(".jsonl")]
    assert published.disk.read_bytes(f"/data/{name}").count(b"\n") == 4


async def test_a_refusal_that_may_pass_is_tried_again(published: Published) -> None:
    published.show(topic("orders"))
    published.codes = [
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    ]
    log = published.state_log()
    log.record(moves(history(), 3))
    async with publishing(log):
        await until(lambda: bool(published.records))
    assert published.ids() == list(names(3))
    assert len(published.created) == 2


async def test_a_leader_that_is_away_is_waited_for(published: Published) -> None:
    published.show(topic(STATE_CHANGES, leader=-1))
    log = published.state_log()
    log.record(moves(history(), 3))
    async with publishing(log):
        await until(lambda: bool(published.cache.waiting))
        published.show(topic(STATE_CHANGES))
        await until(lambda: bool(published.records))
    assert published.ids() == list(names(3))


async def test_what_is_too_large_for_a_batch_goes_in_smaller_ones(published: Published) -> None:
    published.show(topic(STATE_CHANGES))
    published.codes = [ErrorCode.MESSAGE_TOO_LARGE]
    log = published.state_log()
    log.record(moves(history(), 1))
    log.record(history(epoch=8).elected(cause="Startup#1"))
    async with publishing(log):
        await until(lambda: log.outbox.unpublished(1_000) is None)
        log.record(moves(history(epoch=9), 1))
        await until(lambda: bool(published.records))
    assert published.ids()[-1] == "orders-0"


async def test_what_one_run_could_not_publish_the_next_one_does(published: Published) -> None:
    log = published.state_log()
    log.record(moves(history(epoch=7), 2))
    log.close()
    published.show(topic(STATE_CHANGES))
    async with publishing(first := published.state_log()):
        # Not only told but known to be told: who ends between the two tells it again.
        await until(lambda: first.outbox.unpublished(1_000) is None)
    async with publishing(later := published.state_log()):
        later.record(moves(history(epoch=9), 1))
        await until(lambda: len(published.records) == 3)
    assert [record.key for record in published.records] == [b"7-1", b"7-2", b"9-1"]


async def test_turned_off_there_is_the_file_alone(published: Published) -> None:
    published.show(topic("orders"))
    log = published.state_log(is_published=False)
    log.record(moves(history(), 2))
    await log.publish()
    assert not published.created
    assert log.outbox.unpublished(10_000) is not None
    log.close()


@pytest.mark.parametrize("at", [b"then", b"2026-99-01", b"\xff"])
def test_a_damaged_line_is_published_without_its_time(at: bytes) -> None:
    line = b'{"at":"%s","epoch":1,"sequence":2}' % at
    assert state_logs.record(line, 3) == Record(3, 0, None, line, ())
