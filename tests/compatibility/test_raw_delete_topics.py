"""DeleteTopics beyond plain success: already marked, named twice, internal topics, marker znodes, deletion disabled.

Other errors are tested in test_raw_topics.py and test_raw_topics_multi_broker.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.metadata import znodes
from barnabas.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from support.waiting import eventually
from tests.compatibility.raw import Raw

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


def delete(raw: Raw, *names: str, timeout_ms: int = 10_000) -> tuple[DeletableTopicResult, ...]:
    return raw.ask(delete_request(*names, timeout_ms=timeout_ms), DeleteTopicsResponse).responses


def delete_request(*names: str, timeout_ms: int = 10_000) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=tuple(map(DeleteTopicState, names)), timeout_ms=timeout_ms)


def mark_by_hand(cluster: LocalCluster, topic: str) -> None:
    registry, keeper = cluster.cluster.open_registry()

    async def mark() -> None:
        session = await registry.connect(30_000)
        await session.create(znodes.delete_topic_path(topic))
        await session.close()

    keeper.run(mark())


def is_marked(cluster: LocalCluster, topic: str) -> bool:
    registry, keeper = cluster.cluster.open_registry()

    async def read_marker() -> bool:
        session = await registry.connect(30_000)
        found = await session.exists(znodes.delete_topic_path(topic))
        await session.close()
        return found is not None

    return keeper.run(read_marker())


def test_second_deletion_request_waits_for_first(
    cluster: LocalCluster, raw: Raw, topic: str
) -> None:
    """The broker is paused while the marker is set, and so receives the request before it handles the marker."""
    broker = cluster.brokers[1]
    broker.pause()
    try:
        mark_by_hand(cluster, topic)
        pending = raw.begin(delete_request(topic))
    finally:
        broker.resume()
    (result,) = raw.answer(DeleteTopicsResponse, *pending).responses
    assert result == (topic, result.topic_id, ErrorCode.NONE, None)
    assert delete(raw, topic)[0].error_code == UNKNOWN


def test_duplicate_topic_is_deleted_once(raw: Raw, topic: str) -> None:
    assert {each.error_code for each in delete(raw, topic, topic)} == {ErrorCode.NONE}


def test_negative_delete_timeout_returns_at_once(raw: Raw, topic: str) -> None:
    assert delete(raw, topic, timeout_ms=-1)[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    eventually(lambda: raw.fetch(topic, 0).error_code == UNKNOWN, "it is deleted anyway")


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_can_be_deleted(raw: Raw, name: str) -> None:
    raw.create_topic(name)
    assert delete(raw, name)[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "bad name", "a/b", "x" * 300])
def test_deleting_invalid_topic_name_returns_unknown_topic(raw: Raw, name: str) -> None:
    assert delete(raw, name)[0].error_code == UNKNOWN


def test_deletion_marker_without_topic_is_removed(cluster: LocalCluster, raw: Raw) -> None:
    mark_by_hand(cluster, "never-was")
    eventually(lambda: not is_marked(cluster, "never-was"), "the marker is removed")


def test_deletion_marker_is_removed_when_deletion_is_disabled() -> None:
    settings = {"delete.topic.enable": False}
    with LocalCluster(settings=settings) as cluster, Raw(cluster.bootstrap_servers) as raw:
        raw.create_topic("kept")
        mark_by_hand(cluster, "kept")
        eventually(lambda: not is_marked(cluster, "kept"), "the marker is removed")
        assert raw.fetch("kept", 0).error_code == ErrorCode.NONE
