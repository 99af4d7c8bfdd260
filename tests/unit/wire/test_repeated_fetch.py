"""Repeated Fetch requests are read and answered exactly as by the ordinary path."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.model import ZERO_ID
from barnabas.wire import codec
from barnabas.wire.fast import (
    FetchedPartition,
    FetchedTopic,
    PartitionFetchResult,
    RepeatedFetch,
    RepeatedFetches,
    decode_fetch,
    encode_fetch_response,
)
from barnabas.wire.headers import (
    RequestHeader,
    decode_request_header,
    encode_request_header,
    encode_response_header,
)
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchReplicaState,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

VERSIONS = range(11, 18)
IDS = (UUID(int=7), UUID(int=8))
OFFSETS = st.integers(0, 2**62)


def request_of(
    version: int, offsets: list[list[int]], *, partition: int = 3, **options: object
) -> FetchRequest:
    topics = tuple(
        FetchTopic(
            f"topic-{number}" if version < 13 else "",
            IDS[number] if version >= 13 else ZERO_ID,
            tuple(
                FetchPartition(
                    partition + at,
                    current_leader_epoch=5,
                    fetch_offset=offset,
                    partition_max_bytes=9_999,
                )
                for at, offset in enumerate(each)
            ),
        )
        for number, each in enumerate(offsets)
    )
    fields: dict[str, object] = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20}
    return FetchRequest(topics=topics, **{**fields, **options})  # type: ignore[arg-type]


def frame_of(request: FetchRequest, version: int, correlation_id: int = 1) -> memoryview:
    header = encode_request_header(RequestHeader(1, version, correlation_id, "consumer"))
    return memoryview(header + codec.encode(request, version))


def learn(known: RepeatedFetches, frame: memoryview, times: int = 3) -> None:
    header, at = decode_request_header(frame)
    for _ in range(times):
        known.learn(frame, at, header, decode_fetch(header.api_version, frame, at))


def learned(request: FetchRequest, version: int) -> RepeatedFetches:
    known = RepeatedFetches()
    learn(known, frame_of(request, version))
    return known


def find(known: RepeatedFetches, frame: memoryview) -> RepeatedFetch:
    repeated = known.find(frame)
    assert repeated is not None
    return repeated


partition_results = st.tuples(OFFSETS, OFFSETS, OFFSETS, st.integers(0, 3_000_000))


@given(
    version=st.sampled_from(VERSIONS),
    first=st.lists(st.lists(OFFSETS, min_size=1, max_size=4), min_size=1, max_size=2),
    isolation=st.sampled_from([0, 1]),
    number=st.integers(0, 2**31 - 1),
    data=st.data(),
)
@settings(max_examples=200)
def test_repeated_fetch_equals_ordinary_path(
    version: int, first: list[list[int]], isolation: int, number: int, data: st.DataObject
) -> None:
    known = learned(request_of(version, first, isolation_level=isolation), version)
    second = [[data.draw(OFFSETS) for _ in each] for each in first]
    request = request_of(version, second, isolation_level=isolation)
    frame = frame_of(request, version, number)
    repeated = find(known, frame)
    assert repeated.offsets(frame) == [offset for each in second for offset in each]
    assert [(each.topic, each.topic_id, each.index) for each in repeated.partitions] == [
        (topic.topic, topic.topic_id, each.partition)
        for topic in request.topics
        for each in topic.partitions
    ]
    assert {each.current_leader_epoch for each in repeated.partitions} == {5}
    assert {each.max_bytes for each in repeated.partitions} == {9_999}
    assert (repeated.min_bytes, repeated.max_bytes) == (1, 1 << 20)
    results = [
        PartitionFetchResult(high, stable, start, (memoryview(bytes(size)),) if size else (), size)
        for high, stable, start, size in (data.draw(partition_results) for _ in repeated.partitions)
    ]
    next_result = iter(results)
    topics = [
        FetchedTopic(
            topic.topic,
            topic.topic_id,
            [
                FetchedPartition(
                    each.partition,
                    0,
                    result.high_watermark,
                    result.last_stable_offset,
                    result.log_start_offset,
                    result.parts,
                    result.size,
                    aborted_transactions=() if isolation else None,
                )
                for each in topic.partitions
                for result in [next(next_result)]
            ],
        )
        for topic in request.topics
    ]
    parts, size = encode_fetch_response(version, topics)
    head = encode_response_header(1, version, number)
    answer = repeated.encode_response(frame, results)
    assert b"" not in answer
    assert join(answer) == struct.pack(">i", len(head) + size) + head + join(parts)


def join(parts: object) -> bytes:
    assert isinstance(parts, list)
    return b"".join(bytes(part) for part in parts)


@pytest.mark.parametrize("version", VERSIONS)
def test_fetch_is_remembered_after_two_repetitions(version: int) -> None:
    known = RepeatedFetches()
    frame = frame_of(request_of(version, [[1, 2]]), version)
    learn(known, frame, 1)  # records its size
    assert known.find(frame) is None
    learn(known, frame, 1)  # records its shape
    assert known.find(frame) is None
    learn(known, frame, 1)  # sees its shape again
    assert known.find(frame) is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_any_other_byte_is_another_request(version: int) -> None:
    request = request_of(version, [[10, 20], [30]])
    known = learned(request, version)
    frame = frame_of(request, version)
    variable = {4, 5, 6, 7}
    for wanted in find(known, frame).partitions:
        variable |= set(range(wanted.offset_at, wanted.offset_at + 8))
    for at in range(len(frame)):
        changed = bytearray(frame)
        changed[at] ^= 1
        assert (known.find(memoryview(changed)) is not None) is (at in variable)
    assert known.find(frame[:-1]) is None
    assert known.find(memoryview(bytes(frame) + b"\0")) is None


SPECIAL_REQUESTS: dict[str, dict[str, Any]] = {
    "session": {"session_id": 4, "session_epoch": 2},
    "new session": {"session_epoch": 0},
    "follower": {"replica_id": 2},
    "rack": {"rack_id": "r1"},
    "forgotten topics": {"forgotten_topics_data": (ForgottenTopic("t", ZERO_ID, (1,)),)},
}


@pytest.mark.parametrize("kind", SPECIAL_REQUESTS)
def test_special_fetches_are_not_remembered(kind: str) -> None:
    request = request_of(12, [[1]], **SPECIAL_REQUESTS[kind])
    assert learned(request, 12).known is None


def test_unsuitable_fetches_are_not_remembered() -> None:
    follower = request_of(15, [[1]], replica_state=FetchReplicaState(2, 1))
    assert learned(follower, 15).known is None
    assert learned(request_of(12, []), 12).known is None
    assert learned(request_of(12, [[]]), 12).known is None
    assert learned(request_of(12, [[1] * 65]), 12).known is None
    assert learned(request_of(12, [[1] * 64]), 12).known is not None
    assert learned(request_of(10, [[1]]), 10).known is None
    assert learned(request_of(12, [[1]], max_bytes=0), 12).known is None
    assert learned(request_of(12, [[1]], max_bytes=-1), 12).known is None
    twice = request_of(12, [[1]])
    twice = FetchRequest(topics=twice.topics * 2, max_wait_ms=1, min_bytes=1)
    assert learned(twice, 12).known is None
    epoch = FetchPartition(1, fetch_offset=1, last_fetched_epoch=3, partition_max_bytes=1)
    diverging = FetchRequest(
        topics=(FetchTopic("t", ZERO_ID, (epoch,)),), max_wait_ms=1, min_bytes=1
    )
    assert learned(diverging, 12).known is None


def test_partition_with_tags_is_not_remembered() -> None:
    tagged = FetchPartition(1, fetch_offset=1, partition_max_bytes=1, replica_directory_id=IDS[0])
    request = FetchRequest(topics=(FetchTopic("", IDS[0], (tagged,)),), max_wait_ms=1, min_bytes=1)
    assert learned(request, 17).known is None


def test_alternating_shapes_are_not_remembered() -> None:
    known = RepeatedFetches()
    one, two = frame_of(request_of(12, [[1]]), 12), frame_of(request_of(12, [[1, 2]]), 12)
    for _ in range(5):
        learn(known, one, 1)
        learn(known, two, 1)
    assert known.known is None


def test_large_request_is_not_remembered() -> None:
    known = RepeatedFetches()
    topic = FetchTopic("t" * 9_000, ZERO_ID, (FetchPartition(1, partition_max_bytes=1),))
    request = FetchRequest(topics=(topic,), max_wait_ms=1, min_bytes=1)
    learn(known, frame_of(request, 12), 5)
    assert known.known is None
    assert known.candidate == b""
