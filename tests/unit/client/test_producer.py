from __future__ import annotations

from random import Random
from typing import Any

import pytest

from barnabas.batch.compression import Compression
from barnabas.batch.records import Record, records
from barnabas.batch.validation import BatchValidator
from barnabas.client.cluster import Cluster
from barnabas.client.partitioner import partition_of_key
from barnabas.client.producer import BATCH_BYTES, Producer, SentBatch
from barnabas.config import TopicConfig
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.unit.client.scripted_broker import ScriptedBroker

VALIDATOR = BatchValidator(TopicConfig())


class ScriptedLog:
    """Records the produced batches, and answers the given errors first."""

    def __init__(self, *errors: int | None) -> None:
        self.errors = list(errors)
        self.written: dict[int, list[Record]] = {}
        self.batches: list[Any] = []

    def produce(self, request: ProduceRequest) -> ProduceResponse | None:
        answers = []
        for data in request.topic_data[0].partition_data:
            batch = memoryview(bytes(data.records or b""))
            self.batches.append(VALIDATOR.validate(batch, now_ms=0)[1])
            error = self.errors.pop(0) if self.errors else 0
            if error is None:
                return None
            base = len(self.written.setdefault(data.index, []))
            if not error:
                self.written[data.index] += records(batch)
            answers.append(
                PartitionProduceResponse(index=data.index, error_code=error, base_offset=base)
            )
        return ProduceResponse(responses=(TopicProduceResponse("orders", tuple(answers)),))

    def start_broker(self, partitions: int = 1) -> ScriptedBroker:
        broker = ScriptedBroker(
            {
                ProduceRequest: self.produce,
                InitProducerIdRequest: lambda _: InitProducerIdResponse(
                    producer_id=77, producer_epoch=1
                ),
            }
        )
        broker.topics["orders"] = partitions
        return broker


def test_records_are_written_in_order_with_offsets() -> None:
    log = ScriptedLog()
    with log.start_broker() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        producer = Producer(cluster, compression=Compression.SNAPPY)
        for number in range(5):
            producer.send(
                "orders", b"%d" % number, key=b"k", headers=[("h", None)], timestamp=number
            )
        assert producer.flush() == [SentBatch(TopicPartition("orders", 0), 0, 5)]
        assert producer.flush() == []
    assert [record.value for record in log.written[0]] == [b"0", b"1", b"2", b"3", b"4"]
    assert log.written[0][3] == Record(3, 3, b"k", b"3", (("h", None),))
    assert log.batches[0].compression == Compression.SNAPPY


def test_key_selects_partition_unless_given() -> None:
    log = ScriptedLog()
    with (
        log.start_broker(partitions=8) as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
        Producer(cluster) as producer,
    ):
        for number in range(40):
            producer.send("orders", b"", key=b"%d" % number)
        producer.send("orders", b"chosen", key=b"1", partition=5)
    keys = {
        record.key: index
        for index, found in log.written.items()
        for record in found
        if not record.value
    }
    assert keys == {b"%d" % number: partition_of_key(b"%d" % number, 8) for number in range(40)}
    assert log.written[5][-1].value == b"chosen"


def test_unknown_partition_is_an_error() -> None:
    with ScriptedLog().start_broker() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        producer = Producer(cluster)
        with pytest.raises(ApiError, match="no partition 3"):
            producer.send("orders", b"", partition=3)


def test_records_without_key_fill_one_batch_at_a_time() -> None:
    log = ScriptedLog()
    with log.start_broker(partitions=4) as broker, Cluster(broker.address, timeout_s=30) as cluster:
        producer = Producer(cluster, random=Random(3))
        first = {producer.send("orders", b"x") for _ in range(100)}
        producer.flush()
        second = {producer.send("orders", b"x") for _ in range(100)}
    assert len(first) == len(second) == 1
    assert first != second


def test_full_batch_is_followed_by_next_sequence() -> None:
    log = ScriptedLog()
    with (
        log.start_broker() as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
        Producer(cluster) as producer,
    ):
        for _ in range(3):
            producer.send("orders", bytes(BATCH_BYTES - 100), partition=0)
        producer.send("orders", b"small", partition=0)
    assert [batch.count for batch in log.batches] == [1, 1, 2]
    assert [batch.base_sequence for batch in log.batches] == [0, 1, 2]
    assert {(batch.producer_id, batch.producer_epoch) for batch in log.batches} == {(77, 1)}


def test_retry_resends_batch_with_same_sequence() -> None:
    log = ScriptedLog(ErrorCode.NOT_LEADER_OR_FOLLOWER, None, ErrorCode.NOT_ENOUGH_REPLICAS)
    with log.start_broker() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        producer = Producer(cluster)
        producer.send("orders", b"once")
        assert producer.flush() == [SentBatch(TopicPartition("orders", 0), 0, 1)]
    assert len(log.batches) == 4
    assert len({batch.crc for batch in log.batches}) == 1


def test_duplicate_batch_counts_as_written() -> None:
    log = ScriptedLog(None, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    with log.start_broker() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        producer = Producer(cluster)
        producer.send("orders", b"once")
        assert producer.flush() == [SentBatch(TopicPartition("orders", 0), -1, 1)]


def test_fatal_error_is_raised_at_once() -> None:
    log = ScriptedLog(ErrorCode.MESSAGE_TOO_LARGE)
    with log.start_broker() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        producer = Producer(cluster)
        producer.send("orders", b"big")
        with pytest.raises(ApiError) as caught:
            producer.flush()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert producer.flush() == []


def test_error_of_one_partition_does_not_stop_retries_of_others() -> None:
    log = ScriptedLog(ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_ENOUGH_REPLICAS)
    with log.start_broker(2) as broker, Cluster(broker.address, timeout_s=30) as cluster:
        producer = Producer(cluster)
        for partition in (0, 1):
            producer.send("orders", b"x", partition=partition)
        with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
            producer.flush()
        assert producer.sent == [SentBatch(TopicPartition("orders", 1), 0, 1)]
        producer.send("orders", b"y", partition=1)
        producer.flush()
    assert [batch.base_sequence for batch in log.batches] == [0, 0, 0, 1]


def test_acks_0_waits_for_nothing_and_uses_no_producer_id() -> None:
    log = ScriptedLog()
    with log.start_broker() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        broker.answers[ProduceRequest] = log.produce
        producer = Producer(cluster, acks=0)
        producer.send("orders", b"gone")
        assert producer.flush() == [SentBatch(TopicPartition("orders", 0), -1, 1)]
        assert not broker.received(InitProducerIdRequest)


def test_contradicting_settings_are_rejected() -> None:
    cluster = Cluster("localhost:1")
    with pytest.raises(ConfigError):
        Producer(cluster, acks=5)
    with pytest.raises(ConfigError):
        Producer(cluster, acks=1, idempotent=True)
