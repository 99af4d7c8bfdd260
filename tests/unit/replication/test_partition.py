"""What a leader shows its consumers, and when it keeps its promises."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from barnabas.config import TopicConfig
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import BrokerId, LeaderEpoch, ZnodeVersion
from barnabas.replication.partition import Partition
from barnabas.storage.log import AppendInfo, Log
from barnabas.wire.compression import Compression
from barnabas.wire.records import Record, build_batch, read_header
from simulator.disk import ForgetfulDisk

ONE, TWO = BrokerId(1), BrokerId(2)


def led(config: TopicConfig | None = None, *, replicas: int = 1, in_sync: int = 1) -> Partition:
    topic_id = uuid4()
    log = Log.create(
        ForgetfulDisk(), "/logs/orders-0", config or TopicConfig(), topic_id=topic_id, now_ms=0
    )
    partition = Partition("orders", 0, topic_id, ONE, log)
    partition.lead(
        leader_epoch=LeaderEpoch(5),
        replicas=(ONE, TWO)[:replicas],
        isr=(ONE, TWO)[:in_sync],
        partition_epoch=ZnodeVersion(0),
    )
    return partition


def append(
    partition: Partition, *, acks: int = 1, compression: Compression = Compression.NONE
) -> AppendInfo:
    data = bytearray(build_batch([Record(0, 1_000, b"k", b"v" * 100, ())], compression=compression))
    return partition.append(memoryview(data), read_header(data), acks=acks, now_ms=1_000)


def test_alone_in_sync_what_is_appended_can_be_read() -> None:
    partition = led()
    assert append(partition).first_offset == 0
    assert append(partition).first_offset == 1
    assert partition.log.high_watermark == 2


def test_while_a_flush_is_asked_for_nothing_is_shown() -> None:
    partition = led(replace(TopicConfig(), flush_messages=2))
    append(partition)
    assert partition.log.high_watermark == 1
    append(partition)
    assert partition.is_held
    assert partition.log.high_watermark == 1
    flush = partition.log.begin_flush()
    append(partition)
    partition.log.end_flush(flush)
    partition.flush_next = asyncio.Future(loop=asyncio.new_event_loop())  # the third waits for it
    partition.flushed(flush.up_to_offset)
    assert partition.log.high_watermark == 2
    assert partition.is_held
    flush = partition.log.begin_flush()
    partition.log.end_flush(flush)
    partition.flush_next.get_loop().close()
    partition.flush_next = None
    partition.flushed(flush.up_to_offset)
    assert partition.log.high_watermark == 3
    assert not partition.is_held


async def test_a_promise_is_kept_when_the_high_watermark_arrives() -> None:
    partition = led(replace(TopicConfig(), flush_messages=1))
    info = append(partition, acks=-1)
    promise = partition.promise(info.last_offset + 1)
    assert not promise.done()
    flush = partition.log.begin_flush()
    partition.log.end_flush(flush)
    partition.flushed(flush.up_to_offset)
    await asyncio.wait_for(promise, 1)


async def test_a_promise_is_broken_when_the_partition_goes() -> None:
    partition = led(replace(TopicConfig(), flush_messages=1))
    promise = partition.promise(append(partition).last_offset + 1)
    partition.break_promises(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(ApiError) as broken:
        await promise
    assert broken.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_watchers_are_told_once() -> None:
    partition = led()
    told: list[str] = []
    partition.watchers[lambda: told.append("changed")] = None
    append(partition)
    append(partition)
    assert told == ["changed"]


def test_too_few_in_sync_refuses_acks_all_and_nothing_is_appended() -> None:
    partition = led(replace(TopicConfig(), min_insync_replicas=2), replicas=2, in_sync=1)
    with pytest.raises(ApiError) as refused:
        append(partition, acks=-1)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 0
    append(partition, acks=1)
    assert partition.log.high_watermark == 0, "fewer in sync than must be: consumers wait"


def test_min_insync_replicas_cannot_ask_for_more_than_there_are() -> None:
    partition = led(replace(TopicConfig(), min_insync_replicas=3))
    append(partition, acks=-1)
    assert partition.log.high_watermark == 1


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_who_believes_in_another_epoch_is_told(epoch: int, code: ErrorCode) -> None:
    partition = led()
    partition.require_leader(5)
    partition.require_leader(-1)
    with pytest.raises(ApiError) as refused:
        partition.require_leader(epoch)
    assert refused.value.code is code


def test_who_does_not_lead_appends_nothing() -> None:
    partition = led()
    partition.leader = TWO
    with pytest.raises(ApiError) as refused:
        append(partition)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("wanted", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_may_have_a_codec_of_its_own(wanted: str) -> None:
    partition = led(replace(TopicConfig(), compression_type=wanted))
    append(partition, compression=Compression.GZIP)
    found = partition.log.read(0, 10_000, 1, True)
    (part,) = found.slices
    header = read_header(part.file.read(part.position, part.size))
    assert header.compression == {"uncompressed": 0}.get(
        wanted, Compression.__members__.get(wanted.upper())
    )
