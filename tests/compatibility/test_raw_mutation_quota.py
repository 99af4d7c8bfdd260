"""controller_mutation_rate through the wire: strict and old versions, throttle times, and the delay of a connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.metadata import znodes
from barnabas.wire.codec import encode
from barnabas.wire.headers import RequestHeader, encode_request_header
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support.waiting import eventually
from tests.compatibility.raw import Raw
from tests.raw_connection import with_size

NUMBERS = count()
NONE, THROTTLED = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED
CLIENT = f"{znodes.CONFIG_CLIENTS}/raw"
BURST = 4  # tokens of a full bucket: two windows of one second, at two partitions per second


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Each test starts with a full bucket."""
    with LocalCluster(settings={"controller.quota.window.num": 2}) as running:
        store_rate(running, "2")
        yield running


def store_rate(cluster: LocalCluster, rate: str, path: str = CLIENT) -> None:
    registry, keeper = cluster.cluster.open_registry()

    async def write() -> None:
        session = await registry.connect(30_000)
        data = znodes.encode_config({"controller_mutation_rate": rate})
        if await session.exists(path) is None:
            await session.create(path, data)
        else:
            await session.set(path, data)
        await session.close()

    keeper.run(write())


def create_request(*partitions: int, validate_only: bool = False) -> CreateTopicsRequest:
    topics = tuple(CreatableTopic(f"q-{next(NUMBERS)}", each, 1) for each in partitions)
    return CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=validate_only)


def create(
    raw: Raw, *partitions: int, version: int | None = None, validate_only: bool = False
) -> tuple[list[ErrorCode], int]:
    request = create_request(*partitions, validate_only=validate_only)
    answer = raw.ask(request, CreateTopicsResponse, version)
    return [ErrorCode(each.error_code) for each in answer.topics], answer.throttle_time_ms


def overdraw(cluster: LocalCluster, missing: int) -> None:
    """Take more tokens than there are, on a connection of its own."""
    with Raw(cluster.bootstrap_servers) as raw:
        assert create(raw, BURST + missing) == ([NONE], 0)


def seconds_until_served(raw: Raw) -> float:
    began = time.monotonic()
    raw.ask(MetadataRequest(topics=()), MetadataResponse)
    return time.monotonic() - began


@pytest.mark.parametrize("version", [6, 7])
def test_strict_create_topics_rejects_after_the_overdraft(raw: Raw, version: int) -> None:
    began = time.monotonic()
    codes, throttle_ms = create(raw, BURST, 2, 1, version=version)
    assert codes == [NONE, NONE, THROTTLED]
    assert throttle_ms <= 1000
    assert create(raw, 1, version=version)[0] == [NONE]
    assert time.monotonic() - began > 0.9, "the connection waits until the bucket has recovered"


@pytest.mark.parametrize("version", [0, 1, 4, 5])
def test_old_create_topics_succeeds_and_is_delayed(raw: Raw, version: int) -> None:
    began = time.monotonic()
    codes, throttle_ms = create(raw, BURST, 1, 1, version=version)
    assert codes == [NONE, NONE, NONE]
    assert throttle_ms <= 1000
    seconds_until_served(raw)
    assert time.monotonic() - began > 0.9


def test_error_names_the_rate_and_the_time(cluster: LocalCluster, raw: Raw) -> None:
    overdraw(cluster, 20)
    answer = raw.ask(create_request(1), CreateTopicsResponse)
    (result,) = answer.topics
    assert result.error_code == THROTTLED
    assert "2 partitions per second is exceeded" in (result.error_message or "")
    assert 9000 < answer.throttle_time_ms <= 10_000


def test_other_connections_are_served_meanwhile(cluster: LocalCluster, raw: Raw) -> None:
    overdraw(cluster, 20)
    assert create(raw, 1)[0] == [THROTTLED]
    with Raw(cluster.bootstrap_servers) as other:
        assert seconds_until_served(other) < 5


def test_validate_only_and_invalid_topics_cost_nothing(raw: Raw) -> None:
    assert create(raw, 1000, validate_only=True) == ([NONE], 0)
    assert create(raw, 0, 0)[0] == [ErrorCode.INVALID_PARTITIONS] * 2
    assert create(raw, BURST) == ([NONE], 0)


def expand(raw: Raw, topic: str, total: int, version: int) -> tuple[ErrorCode, int]:
    request = CreatePartitionsRequest(
        topics=(CreatePartitionsTopic(name=topic, count=total),), timeout_ms=10_000
    )
    answer = raw.ask(request, CreatePartitionsResponse, version)
    return ErrorCode(answer.results[0].error_code), answer.throttle_time_ms


def delete(raw: Raw, topic: str, version: int) -> tuple[ErrorCode, int]:
    request = (
        DeleteTopicsRequest(topics=(DeleteTopicState(topic),), timeout_ms=10_000)
        if version >= 6
        else DeleteTopicsRequest(topic_names=(topic,), timeout_ms=10_000)
    )
    answer = raw.ask(request, DeleteTopicsResponse, version)
    return ErrorCode(answer.responses[0].error_code), answer.throttle_time_ms


def test_strict_versions_of_expansion_and_deletion_are_rejected(
    cluster: LocalCluster, raw: Raw
) -> None:
    request = create_request(1)
    raw.ask(request, CreateTopicsResponse)
    topic = request.topics[0].name
    overdraw(cluster, 20)
    exchanges: list[Callable[[Raw], tuple[ErrorCode, int]]] = [
        lambda other: expand(other, topic, 2, 3),
        lambda other: delete(other, topic, 5),
        lambda other: delete(other, topic, 6),
    ]
    for exchange in exchanges:
        with Raw(cluster.bootstrap_servers) as other:
            code, throttle_ms = exchange(other)
            assert code is THROTTLED
            assert throttle_ms > 5000


def test_old_versions_of_expansion_and_deletion_are_delayed(
    cluster: LocalCluster, raw: Raw
) -> None:
    request = create_request(1)
    raw.ask(request, CreateTopicsResponse)
    topic = request.topics[0].name
    overdraw(cluster, 20)
    with Raw(cluster.bootstrap_servers) as other:
        code, throttle_ms = expand(other, topic, 3, 2)
        assert code is NONE
        assert throttle_ms > 5000
    with Raw(cluster.bootstrap_servers) as other:
        code, throttle_ms = delete(other, topic, 4)
        assert code is NONE
        assert throttle_ms > 5000


def test_automatic_creation_is_charged_but_never_rejected(cluster: LocalCluster, raw: Raw) -> None:
    overdraw(cluster, 20)
    wanted = MetadataRequestTopic(name="automatic")
    (found,) = raw.ask(MetadataRequest(topics=(wanted,)), MetadataResponse).topics
    assert found.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert seconds_until_served(raw) < 5, "the connection is not delayed"

    def is_led() -> bool:
        (topic,) = raw.ask(MetadataRequest(topics=(wanted,)), MetadataResponse).topics
        return topic.error_code == NONE

    eventually(is_led, "the topic is created")


def test_changed_and_removed_quota_applies_at_once(cluster: LocalCluster, raw: Raw) -> None:
    overdraw(cluster, 20)
    store_rate(cluster, "1000000")
    assert create(raw, 50)[0] == [NONE]
    store_rate(cluster, "0.001")
    with Raw(cluster.bootstrap_servers) as other:
        create(other, 1)
    registry, keeper = cluster.cluster.open_registry()

    async def remove() -> None:
        session = await registry.connect(30_000)
        await session.delete(CLIENT)
        await session.close()

    keeper.run(remove())
    with Raw(cluster.bootstrap_servers) as other:
        assert create(other, 50) == ([NONE], 0)


def test_other_client_has_its_own_bucket(cluster: LocalCluster) -> None:
    store_rate(cluster, "2", f"{znodes.CONFIG_CLIENTS}/<default>")
    overdraw(cluster, 20)
    request = create_request(1)
    with Raw(cluster.bootstrap_servers) as other:
        header = RequestHeader(request.API_KEY, 7, 1, "someone else")
        other.send(with_size(encode_request_header(header) + encode(request, 7)))
        (created,) = other.answer(CreateTopicsResponse, 7, 1).topics
    assert created.error_code == NONE


def test_client_that_disconnects_while_throttled_is_dropped(
    cluster: LocalCluster, raw: Raw
) -> None:
    overdraw(cluster, 20)
    with Raw(cluster.bootstrap_servers) as other:
        assert create(other, 1)[0] == [THROTTLED]
        other.begin(MetadataRequest(topics=()))
    assert seconds_until_served(raw) < 5


def test_automatic_creation_at_another_broker_is_charged_to_its_client() -> None:
    settings = {"controller.quota.window.num": 2, "controlled.shutdown.enable": False}
    with LocalCluster(brokers=2, settings=settings) as two:
        store_rate(two, "0.01")
        assert two.controller_id is not None
        other = next(number for number in two.brokers if number != two.controller_id)
        with Raw(two.brokers[other].address) as raw:
            for name in ("first", "second"):
                wanted = MetadataRequestTopic(name=name)
                (found,) = raw.ask(MetadataRequest(topics=(wanted,)), MetadataResponse).topics
                assert found.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        with Raw(two.brokers[two.controller_id].address) as raw:
            assert create(raw, 1)[0] == [THROTTLED]
