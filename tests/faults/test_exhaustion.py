"""File descriptors run out, or batches decompress to a multiple of their size: the broker survives and rejects them."""

from __future__ import annotations

import resource
from contextlib import ExitStack
from pathlib import Path

import pytest

from barnabas.batch.compression import Compression
from barnabas.batch.records import Record, build_batch
from barnabas.errors import ErrorCode
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.broker import BrokerProcess
from support.waiting import eventually
from tests.faults.raw_client import PRODUCE_VERSION, RawClient, now_ms
from tests.faults.test_limits import MB, is_served
from tests.raw_connection import frame

TOPIC = "orders"
BOMB_BYTES = 400 * MB
PEAK_BYTES_MAX = 320 * MB  # two copies of the largest decompressed batch, and the process itself


def test_connections_leave_descriptors_for_files(tmp_path: Path) -> None:
    settings = {"log.segment.bytes": "2000"}
    broker = BrokerProcess(tmp_path / "data", settings, descriptors=256)
    with broker, RawClient(broker.address) as client, ExitStack() as stack:
        assert client.create_topic(TOPIC, 20) == 0
        flood = [stack.enter_context(RawClient(broker.address)) for _ in range(400)]
        served = sum(map(is_served, flood))
        print(f"served={served} of 400 connections with 256 descriptors")
        assert 50 < served < 256
        # New segments need new descriptors.
        for number in range(200):
            answer = client.produce(TOPIC, number % 20, b"x" * 500)
            assert answer.error_code == 0, answer
        assert len(client.read_all(TOPIC, 7)) == 10
        for connection in flood:
            connection.close()
        eventually(lambda: broker.descriptors() < 150, "descriptors come back")
        with RawClient(broker.address) as again:
            assert is_served(again)
        log = broker.log()
        assert "Traceback" not in log
        assert "offline" not in log
        assert log.count("refusing connection") in range(1, 20)
        assert broker.stop() == 0


@pytest.mark.parametrize("codec", [c for c in Compression if c], ids=lambda codec: codec.name)
def test_compression_bomb_is_rejected(tmp_path: Path, codec: Compression) -> None:
    bomb = build_batch([Record(0, now_ms(), b"key", bytes(BOMB_BYTES))], compression=codec)
    settings = {"message.max.bytes": str(64 * MB)}
    with BrokerProcess(tmp_path / "data", settings) as broker, RawClient(broker.address) as client:
        # In both cases the broker must decompress the records: to check keys, and to recompress them.
        assert client.create_topic("compacted", cleanup_policy="compact") == 0
        other = "gzip" if codec is not Compression.GZIP else "lz4"
        assert client.create_topic(TOPIC, compression_type=other) == 0
        for topic in ("compacted", TOPIC):
            data = TopicProduceData(topic, (PartitionProduceData(0, bomb),))
            request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(data,))
            began = broker.clocks()
            client.send(frame(request, PRODUCE_VERSION))
            answer = client.produced()
            assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
            assert broker.unstarved_seconds(began) < 5.0
        peak = broker.peak_rss_bytes()
        print(f"{codec.name}: {len(bomb) >> 10} KB for {BOMB_BYTES >> 20} MB, peak {peak >> 20} MB")
        assert peak < PEAK_BYTES_MAX
        assert client.end_offset(TOPIC, 0) == 0
        assert client.produce(TOPIC, 0, b"honest").base_offset == 0
        assert "Traceback" not in broker.log()


def test_broker_raises_descriptor_limit(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        broker = BrokerProcess(tmp_path / "data").start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        granted = resource.prlimit(broker.running.pid, resource.RLIMIT_NOFILE)
        assert granted == (min(hard, 1 << 20), hard)
    finally:
        broker.kill()
