"""Repeated identical fetches, which take a fast path, return the same as a first fetch."""

from collections.abc import Callable, Iterator

import pytest

from barnabas.broker import repeated_requests, router
from barnabas.broker.connection import API_KEY, Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.produce_appends import Produce
from barnabas.errors import ErrorCode
from barnabas.model import ZERO_ID
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.world.ports import Part
from support.waiting import eventually
from tests.compatibility.raw import Raw, recent_batch_of

NewTopic = Callable[..., str]
VERSIONS = (11, 12, 13, 17)


class FastPathCounter:
    def __init__(self) -> None:
        self.answers = 0


@pytest.fixture
def fast_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[FastPathCounter]:
    """Count the responses that took the fast path. The broker runs in this process and is otherwise unmodified."""
    count, ordinary = FastPathCounter(), repeated_requests.serve_repeated

    def serve_repeated(
        context: BrokerContext, frame: memoryview, connection: Connection
    ) -> list[Part] | Produce | None:
        response = ordinary(context, frame, connection)
        count.answers += response is not None and API_KEY.unpack_from(frame)[0] == ApiKey.FETCH
        return response

    monkeypatch.setattr(router, "serve_repeated", serve_repeated)
    yield count


class Reader:
    """Fetches all partitions of a topic, each from an offset."""

    def __init__(self, servers: str, topic: str, version: int, **options: int) -> None:
        self.servers, self.topic, self.version, self.options = servers, topic, version, options
        self.raw = Raw(servers)
        self.topic_id = self.raw.topic_id(topic) if version >= 13 else ZERO_ID

    def ask(self, raw: Raw, offsets: tuple[int, ...], epoch: int = -1) -> FetchResponse:
        options = self.options
        size = options.get("partition_max_bytes", 1 << 20)
        partitions = tuple(
            FetchPartition(
                index, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=size
            )
            for index, offset in enumerate(offsets)
        )
        name = "" if self.version >= 13 else self.topic
        topics = (FetchTopic(name, self.topic_id, partitions),)
        request = FetchRequest(
            topics=topics,
            max_wait_ms=0,
            min_bytes=options.get("min_bytes", 1),
            max_bytes=options.get("max_bytes", 1 << 22),
            isolation_level=options.get("isolation_level", 0),
        )
        return raw.ask(request, FetchResponse, self.version)

    def again(self, *offsets: int) -> FetchResponse:
        """Repeat the fetch on this connection and compare the response with that on a new connection."""
        answer = self.ask(self.raw, offsets)
        with Raw(self.servers) as other:
            assert answer == self.ask(other, offsets)
        return answer


@pytest.fixture
def reader(servers: str) -> Iterator[Callable[..., Reader]]:
    opened: list[Reader] = []

    def make(topic: str, version: int, **options: int) -> Reader:
        opened.append(Reader(servers, topic, version, **options))
        return opened[-1]

    yield make
    for each in opened:
        each.raw.close()


def create_filled_topic(raw: Raw, new_topic: NewTopic, **configs: str) -> str:
    """Create a topic with two partitions of ten batches with three records each."""
    topic = new_topic(2, **configs)
    for partition in range(2):
        for number in range(10):
            values = [b"%d" % number * 300] * 3
            answer = raw.produce(topic, recent_batch_of(*values), partition=partition)
            assert answer.error_code == ErrorCode.NONE
    return topic


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation", [0, 1])
def test_repeated_fetch_returns_same_response(
    raw: Raw,
    new_topic: NewTopic,
    reader: Callable[..., Reader],
    fast_path: FastPathCounter,
    version: int,
    isolation: int,
) -> None:
    consumer = reader(create_filled_topic(raw, new_topic), version, isolation_level=isolation)
    for _ in range(3):
        consumer.again(0, 0)
    assert fast_path.answers == 0
    for offsets in ((0, 0), (3, 0), (1, 29), (30, 0), (0, 30), (27, 27)):
        consumer.again(*offsets)
    assert fast_path.answers == 6
    for offsets in ((30, 30), (31, 0), (0, -1), (0, 1 << 40)):
        consumer.again(*offsets)
    assert fast_path.answers == 6  # responses without records or with an error
    assert consumer.again(31, 0).responses[0].partitions[0].error_code != ErrorCode.NONE


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "options",
    [
        {"partition_max_bytes": 2_500},
        {"max_bytes": 4_000},
        {"partition_max_bytes": 1},
        {"max_bytes": 1},
        {"partition_max_bytes": 0},
        {"min_bytes": 12_000},
        {"min_bytes": 1 << 30},
    ],
    ids=str,
)
def test_repeated_fetch_respects_limits(
    raw: Raw,
    new_topic: NewTopic,
    reader: Callable[..., Reader],
    version: int,
    options: dict[str, int],
) -> None:
    consumer = reader(create_filled_topic(raw, new_topic), version, **options)
    for at in range(6):
        consumer.again(at * 3, at)


def test_repeated_fetch_returns_one_segment_per_response(
    raw: Raw, new_topic: NewTopic, reader: Callable[..., Reader], fast_path: FastPathCounter
) -> None:
    topic = create_filled_topic(raw, new_topic, **{"segment.bytes": "3000"})
    consumer = reader(topic, 12)
    for at in range(10):
        consumer.again(at * 3, 27 - at * 3)
    assert fast_path.answers == 7


def test_repeated_fetch_sees_changes(
    raw: Raw, new_topic: NewTopic, reader: Callable[..., Reader], fast_path: FastPathCounter
) -> None:
    topic = create_filled_topic(raw, new_topic)
    consumer = reader(topic, 17)
    for _ in range(4):
        consumer.again(6, 6)
    assert fast_path.answers == 1
    raw.produce(topic, recent_batch_of(b"more"))
    assert consumer.again(30, 6).responses[0].partitions[0].high_watermark == 31
    wanted = DeleteRecordsTopic(topic, (DeleteRecordsPartition(0, 9),))
    raw.ask(DeleteRecordsRequest(topics=(wanted,), timeout_ms=10_000), DeleteRecordsResponse)
    assert consumer.again(9, 6).responses[0].partitions[0].log_start_offset == 9
    assert fast_path.answers == 3
    out = consumer.again(6, 6).responses[0].partitions[0]
    assert out.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", VERSIONS)
def test_repeated_fetch_rejects_wrong_epoch(
    raw: Raw,
    new_topic: NewTopic,
    reader: Callable[..., Reader],
    fast_path: FastPathCounter,
    version: int,
) -> None:
    consumer = reader(create_filled_topic(raw, new_topic), version)
    for _ in range(5):
        answer = consumer.ask(consumer.raw, (0, 0), epoch=7)
        for partition in answer.responses[0].partitions:
            assert partition.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert fast_path.answers == 0


def is_created(raw: Raw, topic: str) -> bool:
    wanted = CreatableTopic(name=topic, num_partitions=2, replication_factor=1)
    answer = raw.ask(CreateTopicsRequest(topics=(wanted,)), CreateTopicsResponse)
    return answer.topics[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", VERSIONS)
def test_repeated_fetch_of_deleted_and_recreated_topic(
    raw: Raw, new_topic: NewTopic, reader: Callable[..., Reader], version: int
) -> None:
    topic = create_filled_topic(raw, new_topic)
    consumer = reader(topic, version)
    for _ in range(4):
        consumer.again(3, 3)
    states = (DeleteTopicState(name=topic, topic_id=ZERO_ID),)
    raw.ask(DeleteTopicsRequest(topics=states, timeout_ms=30_000), DeleteTopicsResponse)

    def is_gone() -> bool:
        answer = consumer.ask(consumer.raw, (3, 3))
        return all(each.error_code != ErrorCode.NONE for each in answer.responses[0].partitions)

    eventually(is_gone, "the topic has gone")
    consumer.again(3, 3)
    eventually(lambda: is_created(raw, topic), "the name is free again")
    raw.produce(topic, recent_batch_of(b"another"))
    consumer.again(0, 0)
