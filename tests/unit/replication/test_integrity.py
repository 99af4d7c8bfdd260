"""Corrupt segments of leaders and followers are restored from another replica."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.batch.header import batch_headers, crc_is_valid
from barnabas.client.connection import BrokerConnection
from barnabas.config import TopicConfig
from barnabas.errors import ErrorCode
from barnabas.storage import checking
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.unit.replication.nodes import Node, Nodes, eventually

CONFIG = replace(TopicConfig(), segment_bytes=20_000, file_delete_delay_ms=0)
BATCHES = 200
NO_SCRUB = {"barnabas_scrub_bytes_per_second": 0}


async def start_nodes(*nodes: Node) -> Nodes:
    made = Nodes(*nodes)
    for node in nodes:
        node.topics.config = CONFIG
    await made.start()
    await made.lead(1)
    await made.send_metadata(partitions=1)
    for number in range(BATCHES):
        nodes[0].append(b"%d" % number * 100)
    await eventually(lambda: all(node.partition().log.high_watermark == BATCHES for node in nodes))
    return made


@pytest.fixture
async def pair() -> AsyncIterator[Nodes]:
    made = await start_nodes(Node(1, **NO_SCRUB), Node(2, **NO_SCRUB))
    yield made
    await made.stop()


@pytest.fixture
async def single() -> AsyncIterator[Nodes]:
    made = await start_nodes(Node(1, **NO_SCRUB))
    yield made
    await made.stop()


def corrupt(node: Node, number: int = 2) -> int:
    """Flip a bit in a segment, mark all segments as unchecked, and return the base offset of the
    corrupt batch.
    """
    log = node.partition().log
    segment = log.segments[number]
    path = Path(segment.log.path)
    data = bytearray(path.read_bytes())
    position, header = list(batch_headers(data))[4]
    data[position + 80] ^= 16
    path.write_bytes(data)
    for each in log.segments:
        each.unchecked_to = each.size
    return header.base_offset


async def fetch(
    nodes: Nodes, broker: int, offset: int, *, wait_ms: int = 2000, min_bytes: int = 1
) -> tuple[int, bytes]:
    """Fetch as a consumer does: return the error code and valid batches."""
    connection = await BrokerConnection.open(
        nodes[broker].network, "127.0.0.1", nodes[broker].port, client_id="test", timeout_s=5
    )
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=5000)
    answer = await connection.exchange(
        FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            topics=(FetchTopic(topic_id=nodes.topic_id, partitions=(wanted,)),),
        ),
        FetchResponse,
        timeout_s=10,
    )
    connection.close("done")
    (data,) = answer.responses[0].partitions
    found = memoryview(bytes(data.records or b""))
    for position, header in batch_headers(found):
        assert crc_is_valid(found, position, header), "a corrupt batch was sent"
    return data.error_code, bytes(found)


async def read_all(nodes: Nodes, broker: int) -> list[int]:
    """Return all offsets. Storage errors are retried."""
    offset, found = 0, []
    async with asyncio.timeout(20):
        while offset < BATCHES:
            code, data = await fetch(nodes, broker, offset)
            if code == ErrorCode.KAFKA_STORAGE_ERROR:
                await asyncio.sleep(0.05)
                continue
            assert code == ErrorCode.NONE
            for _, header in batch_headers(data):
                found.append(header.base_offset)
                offset = header.next_offset
    return found


@pytest.mark.parametrize("broker", [1, 2], ids=["leader", "follower"])
async def test_corrupt_segment_is_restored_from_another_replica(pair: Nodes, broker: int) -> None:
    corrupt(pair[broker])
    log = pair[broker].partition().log
    assert await read_all(pair, broker) == list(range(BATCHES))
    assert not pair[broker].replicas.integrity.damaged
    directory = Path(log.directory)
    assert not list(directory.glob("*.cleaned"))
    for segment in log.segments:
        other = pair[3 - broker].partition().log.segments[log.segments.index(segment)]
        assert Path(segment.log.path).read_bytes() == Path(other.log.path).read_bytes()


@pytest.mark.parametrize("min_bytes", [0, 1, 4000])
async def test_fetch_without_wait_returns_data_after_the_check(
    single: Nodes, min_bytes: int
) -> None:
    for segment in single[1].partition().log.segments:
        segment.unchecked_to = segment.size
    for offset in (0, BATCHES - 1):
        code, data = await fetch(single, 1, offset, wait_ms=0, min_bytes=min_bytes)
        assert (code, bool(data)) == (ErrorCode.NONE, True)
    assert await fetch(single, 1, BATCHES, wait_ms=0) == (ErrorCode.NONE, b"")


async def test_fetch_returns_once_scrub_has_checked_its_segment(
    single: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    integrity, partition = single[1].replicas.integrity, single[1].partition()
    segment = partition.log.segments[0]
    segment.unchecked_to = segment.size
    gate, check = threading.Event(), checking.verify_batches

    def blocked_check(*arguments: Any, **named: Any) -> checking.CheckResult:
        gate.wait(5)
        return check(*arguments, **named)

    monkeypatch.setattr(checking, "verify_batches", blocked_check)
    scrub = asyncio.create_task(integrity.scrub(1 << 40))
    await eventually(lambda: segment in integrity.in_progress)
    waiting = asyncio.create_task(fetch(single, 1, 0, wait_ms=0))
    await eventually(lambda: bool(partition.watchers))
    await asyncio.sleep(0.05)  # its wait time is over
    gate.set()
    async with asyncio.timeout(5):
        code, data = await waiting
    assert (code, bool(data)) == (ErrorCode.NONE, True)
    scrub.cancel()


async def test_replicas_corrupt_in_different_places_restore_each_other(pair: Nodes) -> None:
    corrupt(pair[1], 1)
    corrupt(pair[2], 3)
    assert await read_all(pair, 1) == list(range(BATCHES))
    assert await read_all(pair, 2) == list(range(BATCHES))


async def test_single_replica_rejects_only_the_corrupt_batch(
    single: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    offset = corrupt(single[1])
    with caplog.at_level(logging.ERROR, "barnabas.integrity"):
        for each in range(BATCHES):
            code, data = await fetch(single, 1, each)
            if each == offset:
                while (code, data) == (ErrorCode.NONE, b""):
                    code, data = await fetch(single, 1, each)
                assert (code, data) == (ErrorCode.CORRUPT_MESSAGE, b"")
            else:
                assert (code, bool(data)) == (ErrorCode.NONE, True)
    assert len(caplog.records) == 1, "logged once"
    assert "no other replica" in caplog.text


async def test_scrub_finds_corruption_that_is_not_read(pair: Nodes) -> None:
    offset = corrupt(pair[2], 1)
    node = pair[2]
    scrub = asyncio.create_task(node.replicas.integrity.scrub(1 << 40))
    log = node.partition().log
    broken = log.segments[1]
    await eventually(lambda: broken not in log.segments)
    await eventually(lambda: all(not segment.unchecked_to for segment in log.segments))
    scrub.cancel()
    code, data = await fetch(pair, 2, offset)
    assert (code, bool(data)) == (ErrorCode.NONE, True)


async def test_corrupt_active_segment_is_rolled_and_restored(
    pair: Nodes,
) -> None:
    corrupt(pair[1], -1)
    assert await read_all(pair, 1) == list(range(BATCHES))
