"""Produce requests that no client library sends: old formats, corrupt batches, wrong sequences."""

import struct
from collections.abc import Callable
from contextlib import closing
from zlib import crc32

import pytest

from barnabas import LocalCluster
from barnabas.batch.compression import Compression
from barnabas.batch.records import Record, build_batch
from barnabas.errors import ErrorCode
from barnabas.wire.apis import APIS
from barnabas.wire.messages.find_coordinator import (
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.compatibility.files import Files
from tests.compatibility.raw import Raw, batch_of, values_in

COUNT_AT = 57
LAST_DELTA_AT = 23
CRC_AT = 17


def old_message_set(magic: int) -> bytes:
    """Build one message in a format before record batches."""
    timestamp = struct.pack(">q", 1_700_000_000_000) if magic == 1 else b""
    body = struct.pack(">bb", magic, 0) + timestamp + struct.pack(">i", -1)
    body += struct.pack(">i", 5) + b"value"
    message = struct.pack(">I", crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def with_crc(batch: bytearray) -> bytes:
    """Give a modified batch a valid checksum."""
    from crc32c import crc32c

    struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[21:])))
    return bytes(batch)


@pytest.mark.parametrize("version", APIS[0].versions)
def test_every_version_appends(raw: Raw, topic: str, version: int) -> None:
    answer = raw.produce(topic, batch_of(b"a", b"b"), version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    if version >= 2:
        assert answer.log_append_time_ms == -1
    if version >= 5:
        assert answer.log_start_offset == 0
    assert values_in(raw.fetch(topic, 0)) == [b"a", b"b"]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("version", "expected"),
    [
        *((version, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT) for version in (0, 1, 2)),
        *((version, ErrorCode.INVALID_RECORD) for version in (3, 7, 11)),
    ],
)
def test_old_message_formats_are_rejected(
    raw: Raw, topic: str, magic: int, version: int, expected: ErrorCode
) -> None:
    assert raw.produce(topic, old_message_set(magic), version=version).error_code == expected
    assert raw.list_offset(topic, -1).offset == 0


@pytest.mark.parametrize("data", [b"", batch_of(b"cut")[:-1], old_message_set(0)[:-1]])
def test_produce_v2_ignores_partial_batch(raw: Raw, topic: str, data: bytes) -> None:
    answer = raw.produce(topic, data, version=2)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, -1)
    assert raw.list_offset(topic, -1).offset == 0


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_invalid_acks_is_rejected(raw: Raw, topic: str, acks: int) -> None:
    answer = raw.produce(topic, batch_of(b"x"), acks=acks)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert answer.base_offset == -1
    assert raw.list_offset(topic, -1).offset == 0


def wrong_crc() -> bytes:
    batch = bytearray(batch_of(b"value"))
    batch[-1] ^= 1
    return bytes(batch)


def negative_count() -> bytes:
    batch = bytearray(batch_of(b"value"))
    struct.pack_into(">i", batch, COUNT_AT, -1)
    return with_crc(batch)


def wrong_count() -> bytes:
    batch = bytearray(batch_of(b"a", b"b"))
    struct.pack_into(">i", batch, LAST_DELTA_AT, 5)
    return with_crc(batch)


def overlapping_record(count: int) -> bytes:
    """A batch with a valid checksum whose middle record's length reaches into the next record."""
    whole = bytearray(batch_of(*[b"some value"] * count))
    at = whole.index(b"some value", len(whole) // 2)
    whole[at - 1] += 2
    return with_crc(whole)


def unknown_magic() -> bytes:
    batch = bytearray(batch_of(b"a"))
    batch[16] = 3
    return bytes(batch)


def unknown_codec() -> bytes:
    batch = bytearray(batch_of(b"a"))
    batch[22] |= 5
    return with_crc(batch)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        pytest.param(wrong_crc(), ErrorCode.CORRUPT_MESSAGE, id="wrong crc"),
        pytest.param(batch_of(b"a") + batch_of(b"b"), ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(negative_count(), ErrorCode.INVALID_RECORD, id="negative count"),
        pytest.param(wrong_count(), ErrorCode.INVALID_RECORD, id="count differs"),
        pytest.param(batch_of(b"x", is_control=True), ErrorCode.INVALID_RECORD, id="control batch"),
        pytest.param(batch_of(b"x")[:-1], ErrorCode.INVALID_RECORD, id="cut short"),
        pytest.param(b"", ErrorCode.INVALID_RECORD, id="empty"),
        pytest.param(overlapping_record(300), ErrorCode.INVALID_RECORD, id="one of many"),
        pytest.param(unknown_magic(), ErrorCode.CORRUPT_MESSAGE, id="magic 3"),
        pytest.param(unknown_codec(), ErrorCode.UNKNOWN_SERVER_ERROR, id="codec 5"),
    ],
)
def test_corrupt_batch_is_rejected_and_not_stored(
    raw: Raw, topic: str, batch: bytes, expected: ErrorCode
) -> None:
    answer = raw.produce(topic, batch)
    assert (answer.error_code, answer.base_offset) == (expected, -1)
    assert raw.list_offset(topic, -1).offset == 0
    assert raw.produce(topic, batch_of(b"good")).base_offset == 0


def test_null_records_close_connection(raw: Raw, topic: str) -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=(
            TopicProduceData(
                topic, (PartitionProduceData(0, batch_of(b"x")), PartitionProduceData(1, None))
            ),
        ),
    )
    host, port = raw.socket.getpeername()
    with closing(Raw(f"{host}:{port}")) as other, pytest.raises(ConnectionError):
        other.ask(request, ProduceResponse)
    assert raw.list_offset(topic, -1).offset == 0


def test_zstd_requires_produce_v7(raw: Raw, topic: str) -> None:
    batch = batch_of(b"x" * 1000, compression=Compression.ZSTD)
    refused = raw.produce(topic, batch, version=6)
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert raw.produce(topic, batch, version=7).error_code == ErrorCode.NONE


def test_batch_above_max_message_bytes_is_rejected(raw: Raw, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"max.message.bytes": "1000"})
    fitting = 1000 - len(batch_of(b"")) - 2  # two lengths of the record take a byte more each
    assert len(batch_of(bytes(fitting))) == 1000
    assert raw.produce(topic, batch_of(bytes(fitting))).error_code == ErrorCode.NONE
    answer = raw.produce(topic, batch_of(bytes(fitting + 1)))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_log_append_time_is_returned_and_stored(
    raw: Raw, new_topic: Callable[..., str], files: Files
) -> None:
    topic = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    answer = raw.produce(topic, batch_of(b"a", b"b", timestamp=1000))
    assert answer.log_append_time_ms > 1_700_000_000_000
    (batch,) = files.batches(topic)
    assert batch.header.is_log_append_time
    assert batch.header.max_timestamp == answer.log_append_time_ms
    assert {record.timestamp for record in batch.records} == {answer.log_append_time_ms}


@pytest.mark.parametrize(
    ("wanted", "stored"),
    [("uncompressed", "none"), *((codec, codec) for codec in ("gzip", "snappy", "lz4", "zstd"))],
)
def test_topic_compression_type_recompresses_batches(
    raw: Raw, new_topic: Callable[..., str], files: Files, wanted: str, stored: str
) -> None:
    topic = new_topic(**{"compression.type": wanted})
    numbered = {"producer_id": 5, "producer_epoch": 0}
    for sequence, codec in enumerate((Compression.NONE, Compression.GZIP, Compression.ZSTD)):
        batch = batch_of(b"x" * 500, compression=codec, base_sequence=sequence, **numbered)
        assert raw.produce(topic, batch).base_offset == sequence
    assert files.codecs(topic) == {stored}
    assert files.values(topic) == [b"x" * 500] * 3
    assert [batch.header.base_sequence for batch in files.batches(topic)] == [0, 1, 2]


def test_compacted_topic_rejects_records_without_key(
    raw: Raw, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"cleanup.policy": "compact"})
    assert raw.produce(topic, batch_of(b"x")).error_code == ErrorCode.INVALID_RECORD
    keyed = build_batch([Record(0, 1_700_000_000_000, b"key", b"value")])
    assert raw.produce(topic, keyed).error_code == ErrorCode.NONE


def test_rejected_partition_does_not_affect_others(raw: Raw, topic: str) -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=(
            TopicProduceData(
                topic,
                (PartitionProduceData(9, batch_of(b"x")), PartitionProduceData(0, batch_of(b"y"))),
            ),
            TopicProduceData("nowhere", (PartitionProduceData(0, batch_of(b"z")),)),
        ),
    )
    answer = raw.ask(request, ProduceResponse)
    assert [
        (found.name, partition.index, partition.error_code, partition.base_offset)
        for found in answer.responses
        for partition in found.partition_responses
    ] == [
        (topic, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (topic, 0, ErrorCode.NONE, 0),
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


# ---- idempotent producers


def init_producer_id(raw: Raw, version: int | None = None) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    answer = raw.ask(request, InitProducerIdResponse, version)
    assert answer.error_code == ErrorCode.NONE
    return answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", APIS[22].versions)
def test_every_producer_gets_unique_id(raw: Raw, version: int) -> None:
    first, epoch = init_producer_id(raw, version)
    second, _ = init_producer_id(raw, version)
    assert epoch == 0
    assert 0 <= first < second


def test_transaction_coordinator_requires_state_topic() -> None:
    request = FindCoordinatorRequest(
        key_type=CoordinatorType.TRANSACTION, coordinator_keys=("orders",)
    )
    settings = {"transaction.state.log.replication.factor": "3"}
    with LocalCluster(settings=settings) as cluster, Raw(cluster.bootstrap_servers) as raw:
        (found,) = raw.ask(request, FindCoordinatorResponse).coordinators
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "transaction.state.log.replication.factor=3" in (found.error_message or "")


def test_init_producer_id_rejects_empty_transactional_id(raw: Raw) -> None:
    empty = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000)
    assert raw.ask(empty, InitProducerIdResponse).error_code == ErrorCode.INVALID_REQUEST


class IdempotentProducer:
    """Sends batches with the producer epoch and sequence that the test chooses."""

    def __init__(self, raw: Raw, topic: str) -> None:
        self.raw = raw
        self.topic = topic
        self.producer_id, _ = init_producer_id(raw)

    def send(self, sequence: int, *, epoch: int = 0, count: int = 1) -> tuple[ErrorCode, int]:
        batch = batch_of(
            *(f"{sequence + index}".encode() for index in range(count)),
            producer_id=self.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        answer = self.raw.produce(self.topic, batch)
        return ErrorCode(answer.error_code), answer.base_offset


@pytest.fixture
def producer(raw: Raw, topic: str) -> IdempotentProducer:
    return IdempotentProducer(raw, topic)


def test_duplicate_batch_is_acknowledged_but_not_stored(
    producer: IdempotentProducer, files: Files, topic: str
) -> None:
    for sequence in range(7):
        assert producer.send(sequence) == (ErrorCode.NONE, sequence)
    for sequence in range(2, 7):  # a broker remembers the last five batches
        assert producer.send(sequence) == (ErrorCode.NONE, sequence)
    assert producer.send(0)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert files.values(topic) == [str(number).encode() for number in range(7)]


def test_sequence_gap_is_rejected(producer: IdempotentProducer) -> None:
    assert producer.send(0, count=3) == (ErrorCode.NONE, 0)
    assert producer.send(4) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send(3) == (ErrorCode.NONE, 3)


def test_unknown_producer_may_start_at_any_sequence(producer: IdempotentProducer) -> None:
    assert producer.send(41) == (ErrorCode.NONE, 0)
    assert producer.send(43)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(42) == (ErrorCode.NONE, 1)


def test_older_producer_epoch_is_fenced_and_newer_starts_at_0(
    producer: IdempotentProducer,
) -> None:
    assert producer.send(0, epoch=3) == (ErrorCode.NONE, 0)
    assert producer.send(1, epoch=2) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert producer.send(1, epoch=4) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send(0, epoch=4) == (ErrorCode.NONE, 1)
    assert producer.send(1, epoch=3) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


def test_sequences_wrap_after_int32_max(producer: IdempotentProducer) -> None:
    largest = 2**31 - 1
    assert producer.send(largest - 1, count=1) == (ErrorCode.NONE, 0)
    assert producer.send(largest, count=3) == (ErrorCode.NONE, 1)
    assert producer.send(2) == (ErrorCode.NONE, 4)
