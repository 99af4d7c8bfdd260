from __future__ import annotations

import pytest

from barnabas.errors import RemoteWireError
from barnabas.wire import codec
from barnabas.wire.codec import MessageTooLarge, has_more_elements
from barnabas.wire.fast import ManyPartitions, decode_produce, decode_small_produce
from barnabas.wire.fast.produce import PARTITIONS_MAX, SMALL_PARTITIONS_MAX
from barnabas.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from barnabas.wire.messages.heartbeat import HeartbeatResponse
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def response(groups: int, partitions: int) -> OffsetFetchResponse:
    topic = OffsetFetchResponseTopic(
        "topic", tuple(OffsetFetchResponsePartition(index) for index in range(partitions))
    )
    return OffsetFetchResponse(groups=(OffsetFetchResponseGroup("group", (topic,)),) * groups)


def test_encoding_stops_at_the_bound() -> None:
    small = codec.encode(response(1, 10), 8, bytes_max=1000)
    assert small == codec.encode(response(1, 10), 8)
    with pytest.raises(MessageTooLarge, match="exceeds 1000 bytes"):
        codec.encode(response(10, 10), 8, bytes_max=1000)


def test_stopped_encoding_holds_no_memory() -> None:
    """The traceback of the error may live until a garbage collection."""
    with pytest.raises(MessageTooLarge) as caught:
        codec.encode(response(10, 10), 8, bytes_max=1000)
    buffer_sizes = [
        len(value)
        for entry in caught.traceback
        for value in entry.locals.values()
        if isinstance(value, bytearray)
    ]
    assert buffer_sizes
    assert set(buffer_sizes) == {0}


@pytest.mark.parametrize(
    ("groups", "partitions", "most", "expected"),
    [(1, 10, 12, False), (1, 10, 11, True), (100, 10, 1199, True), (100, 10, 1200, False)],
)
def test_elements_of_all_levels_are_counted(
    groups: int, partitions: int, most: int, expected: bool
) -> None:
    assert has_more_elements(response(groups, partitions), most) is expected


@pytest.mark.parametrize(("size", "expected"), [(96 << 10, False), (98 << 10, True)])
def test_bytes_count_as_elements(size: int, expected: bool) -> None:
    """Two groups, each with a member, are four elements."""
    member = DescribedGroupMember("member", member_metadata=bytes(size // 2))
    group = DescribedGroup(0, "group", members=(member,))
    assert has_more_elements(DescribeGroupsResponse(groups=(group, group)), 100) is expected


def test_messages_without_arrays_have_no_elements() -> None:
    assert not has_more_elements(HeartbeatResponse(), 0)
    assert not has_more_elements(None, 0)
    assert not has_more_elements(b"encoded already", 0)


@pytest.mark.parametrize("version", [3, 8, 9, 11])
@pytest.mark.parametrize("topics", [1, SMALL_PARTITIONS_MAX])
def test_produce_with_many_partitions_is_left_to_a_thread(version: int, topics: int) -> None:
    partitions = tuple(
        PartitionProduceData(index, b"") for index in range(SMALL_PARTITIONS_MAX // topics)
    )
    request = ProduceRequest(
        acks=1, timeout_ms=1, topic_data=(TopicProduceData("t", partitions),) * topics
    )
    data = memoryview(codec.encode(request, version))
    with pytest.raises(ManyPartitions):
        decode_small_produce(version, data)
    assert len(decode_produce(version, data).topic_data) == topics


@pytest.mark.parametrize("version", [8, 9])
def test_produce_with_too_many_topics_is_rejected(version: int) -> None:
    topics = (TopicProduceData("t", ()),) * (PARTITIONS_MAX + 1)
    data = memoryview(
        codec.encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=topics), version)
    )
    with pytest.raises(RemoteWireError, match="at most 50000"):
        decode_produce(version, data)
