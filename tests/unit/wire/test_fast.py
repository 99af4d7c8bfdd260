"""Hand-written encoders and decoders against the compiled ones: same values, bytes and rejections
in every version.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import LocalWireError, RemoteWireError
from barnabas.model import ZERO_ID
from barnabas.wire.codec import Message, decode, encode
from barnabas.wire.fast import (
    FetchedPartition,
    FetchedTopic,
    decode_fetch,
    decode_produce,
    encode_fetch_response,
    encode_metadata_response,
    encode_metadata_topic,
    encode_produce_response,
)
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.unit.wire.random_messages import name_of, random_message

randoms = st.randoms(use_true_random=False)
quick = settings(max_examples=100)

DECODERS: list[tuple[type[Any], Callable[[int, memoryview, int], Message]]] = [
    (ProduceRequest, decode_produce),
    (FetchRequest, decode_fetch),
]
EVERY_DECODER = [(cls, fast, version) for cls, fast in DECODERS for version in cls.VERSIONS]


@pytest.mark.parametrize(("cls", "fast", "version"), EVERY_DECODER, ids=name_of)
def test_fast_decoder_reads_compiled_encoding(
    cls: type[Any], fast: Callable[[int, memoryview, int], Message], version: int
) -> None:
    for seed in range(40):
        request = random_message(Random(seed), cls, version)
        data = b"head" + encode(request, version) + b"tail"
        assert fast(version, memoryview(data), 4) == request == decode(cls, version, data, 4)


@pytest.mark.parametrize(("cls", "fast", "version"), EVERY_DECODER, ids=name_of)
def test_fast_decoder_rejects_same_bytes_as_compiled_one(
    cls: type[Any], fast: Callable[[int, memoryview, int], Message], version: int
) -> None:
    random = Random(3)
    for _ in range(150):
        data = bytearray(encode(random_message(random, cls, version, most=2), version))
        if random.random() < 0.3:
            del data[random.randrange(len(data)) :]
        for _ in range(random.randint(0, 4)):
            if data:
                data[random.randrange(len(data))] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        assert outcome(lambda v, d: fast(v, d, 0), version, data) == outcome(
            lambda v, d: decode(cls, v, d), version, data
        )


@quick
@given(st.sampled_from(EVERY_DECODER), st.binary(max_size=120))
def test_both_decoders_treat_random_bytes_alike(
    case: tuple[type[Any], Callable[[int, memoryview, int], Message], int], data: bytes
) -> None:
    cls, fast, version = case
    assert outcome(lambda v, d: fast(v, d, 0), version, data) == outcome(
        lambda v, d: decode(cls, v, d), version, data
    )


def outcome(
    decoder: Callable[[int, memoryview], Message], version: int, data: bytes | bytearray
) -> Message | None:
    try:
        return decoder(version, memoryview(bytes(data)))
    except RemoteWireError:
        return None


@pytest.mark.parametrize(("cls", "fast"), DECODERS, ids=name_of)
def test_unknown_version_is_rejected(
    cls: type[Any], fast: Callable[[int, memoryview, int], Message]
) -> None:
    with pytest.raises(RemoteWireError):
        fast(cls.VERSIONS.stop, memoryview(bytes(50)), 0)


@pytest.mark.parametrize("version", [7, 11])
def test_produced_records_are_views(version: int) -> None:
    partitions = (PartitionProduceData(0, b"records"), PartitionProduceData(1, None))
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=(TopicProduceData("t", partitions),))
    data = bytearray(encode(request, version))
    records = decode_produce(version, memoryview(data)).topic_data[0].partition_data[0].records
    data[data.index(b"records")] = ord("R")
    assert records == b"Records"


def test_tags_after_fetch_partition_are_skipped() -> None:
    partition = FetchPartition(1, 2, 3, 4, 5, 6)
    topics = (FetchTopic("t", ZERO_ID, (partition, partition)),)
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=topics)
    data = encode(request, 12)
    row = data.index(b"\x00\x00\x00\x06") + 4
    assert data[row] == 0
    tagged = data[:row] + b"\x01\x7e\x02zz" + data[row + 1 :]
    assert decode_fetch(12, memoryview(tagged)) == request


# ---- responses


@pytest.mark.parametrize("version", ProduceResponse.VERSIONS)
def test_fast_produce_response_equals_compiled_one(version: int) -> None:
    for seed in range(40):
        response: ProduceResponse = random_message(Random(seed), ProduceResponse, version)
        assert produce_response(version, response) == encode(response, version)
    for count in (0, 1, 130):
        plain = tuple(PartitionProduceResponse(index, 0, 5) for index in range(count))
        response = ProduceResponse(responses=(TopicProduceResponse("t", plain),))
        assert produce_response(version, response) == encode(response, version)


def produce_response(version: int, response: ProduceResponse) -> bytes:
    return encode_produce_response(
        version, response.responses, response.throttle_time_ms, response.node_endpoints
    )


class FakeSlice(NamedTuple):
    """Stands for a slice of a file: it has a size and is never read."""

    data: bytes
    size: int


def bytes_of(part: Any) -> bytes:
    return part.data if isinstance(part, FakeSlice) else bytes(part)


@pytest.mark.parametrize("version", FetchResponse.VERSIONS)
def test_fast_fetch_response_equals_compiled_one(version: int) -> None:
    for seed in range(40):
        random = Random(seed)
        response = without_null_records(random_message(random, FetchResponse, version))
        parts, size = encode_fetch_response(
            version,
            [
                FetchedTopic(
                    topic.topic,
                    topic.topic_id,
                    [as_fetched(random, partition) for partition in topic.partitions],
                )
                for topic in response.responses
            ],
            throttle_time_ms=response.throttle_time_ms,
            error_code=response.error_code,
            session_id=response.session_id,
            node_endpoints=response.node_endpoints,
        )
        sent = b"".join(map(bytes_of, parts))
        assert sent == encode(response, version)
        assert size == len(sent)


def without_null_records(response: FetchResponse) -> FetchResponse:
    """Replace null records: a broker never sends them, and the fast path has none."""
    return FetchResponse(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        session_id=response.session_id,
        node_endpoints=response.node_endpoints,
        responses=tuple(
            topic._replace(
                partitions=tuple(
                    partition._replace(records=partition.records or b"")
                    for partition in topic.partitions
                )
            )
            for topic in response.responses
        ),
    )


def as_fetched(random: Random, partition: Any) -> FetchedPartition:
    """Return the same partition with its records in up to three parts of different kinds."""
    values = partition._asdict()
    records: bytes = values.pop("records")
    split_at = random.randint(0, len(records))
    middle = FakeSlice(records[split_at : split_at + 10], len(records[split_at : split_at + 10]))
    parts: list[Any] = [records[:split_at], middle, memoryview(records)[split_at + 10 :]]
    return FetchedPartition(**values, parts=parts if records else (), size=len(records))


def test_fetch_response_does_not_copy_records() -> None:
    records = b"r" * 1000
    partition = FetchedPartition(0, parts=(records,), size=1000)
    parts, _ = encode_fetch_response(12, [FetchedTopic("t", ZERO_ID, [partition])])
    assert any(part is records for part in parts)
    assert len(parts) == 3


def test_unencodable_fetch_response_is_a_local_error() -> None:
    for version, partition, session_id in (
        (18, FetchedPartition(0), 0),
        (6, FetchedPartition(0), 5),
        (10, FetchedPartition(0, preferred_read_replica=1), 0),
        (12, FetchedPartition(2**40), 0),
        (12, FetchedPartition(0, size=5), 0),
    ):
        with pytest.raises(LocalWireError):
            topics = [FetchedTopic("t", ZERO_ID, [partition])]
            encode_fetch_response(version, topics, session_id=session_id)


@pytest.mark.parametrize("version", MetadataResponse.VERSIONS)
def test_metadata_response_from_topic_blobs_equals_compiled_one(version: int) -> None:
    for seed in range(40):
        response: MetadataResponse = random_message(Random(seed), MetadataResponse, version)
        assert metadata_response(version, response) == encode(response, version)
    many = tuple(range(200))
    partition = MetadataResponsePartition(0, 0, 0, 0, many, many, many)
    topic = MetadataResponseTopic(0, "t", partitions=tuple([partition] * 200))
    if version < 5:
        topic = topic._replace(
            partitions=tuple(each._replace(offline_replicas=()) for each in topic.partitions)
        )
    response = MetadataResponse(topics=(topic,) * 2)
    assert metadata_response(version, response) == encode(response, version)


def metadata_response(version: int, response: MetadataResponse) -> bytes:
    return encode_metadata_response(
        version,
        brokers=response.brokers,
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        topic_blobs=[encode_metadata_topic(version, topic) for topic in response.topics],
        throttle_time_ms=response.throttle_time_ms,
        cluster_authorized_operations=response.cluster_authorized_operations,
    )


def test_unencodable_metadata_is_a_local_error() -> None:
    partition = MetadataResponsePartition(0, 2**40, 0)
    with pytest.raises(LocalWireError):
        encode_metadata_topic(12, MetadataResponseTopic(0, "t", partitions=(partition,)))


@quick
@given(st.sampled_from(ProduceResponse.VERSIONS), randoms)
def test_random_produce_responses_equal_compiled_ones(version: int, random: Random) -> None:
    response: ProduceResponse = random_message(random, ProduceResponse, version)
    assert produce_response(version, response) == encode(response, version)
