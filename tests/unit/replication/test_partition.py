"""Partition of a leader: high watermark, promises to producers, and ISR changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

import pytest
from msgspec.structs import replace

from barnabas.batch.compression import Compression
from barnabas.batch.header import BatchHeader
from barnabas.batch.records import Record, build_batch
from barnabas.config import TopicConfig
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import BrokerId, LeaderEpoch, ZnodeVersion
from barnabas.replication.isr import FollowerSession, IsrChange, IsrChangeOutcome
from barnabas.replication.partition import LeaderContext, Partition
from barnabas.storage.log import AppendInfo, Log
from simulator.disk import ForgetfulDisk
from tests.unit.replication.test_isr import FakeContact

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
LAG_MS = 100.0


def led_partition(
    config: TopicConfig | None = None, *, replicas: int = 1, in_sync: int = 1
) -> Partition:
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
    batch, header = partition.log.validator.validate(memoryview(data), now_ms=1_000)
    return partition.append(batch, header, acks=acks, now_ms=1_000)


def test_single_replica_commits_at_once() -> None:
    partition = led_partition()
    assert append(partition).first_offset == 0
    assert append(partition).first_offset == 1
    assert partition.log.high_watermark == 2


def test_high_watermark_waits_for_flush() -> None:
    partition = led_partition(replace(TopicConfig(), flush_messages=2))
    append(partition)
    assert partition.log.high_watermark == 1
    append(partition)
    assert partition.waits_for_flush
    assert partition.log.high_watermark == 1
    flush = partition.log.begin_flush()
    append(partition)
    partition.log.end_flush(flush)
    # The third record waits for it.
    partition.flush_next = asyncio.Future(loop=asyncio.new_event_loop())
    partition.finish_flush(flush.up_to_offset)
    assert partition.log.high_watermark == 2
    assert partition.waits_for_flush
    flush = partition.log.begin_flush()
    partition.log.end_flush(flush)
    partition.flush_next.get_loop().close()
    partition.flush_next = None
    partition.finish_flush(flush.up_to_offset)
    assert partition.log.high_watermark == 3
    assert not partition.waits_for_flush


async def test_promise_is_kept_when_high_watermark_arrives() -> None:
    partition = led_partition(replace(TopicConfig(), flush_messages=1))
    info = append(partition, acks=-1)
    promise = partition.promise(info.last_offset + 1)
    assert not promise.done()
    flush = partition.log.begin_flush()
    partition.log.end_flush(flush)
    partition.finish_flush(flush.up_to_offset)
    await asyncio.wait_for(promise, 30)


async def test_promise_fails_when_partition_is_deleted() -> None:
    partition = led_partition(replace(TopicConfig(), flush_messages=1))
    promise = partition.promise(append(partition).last_offset + 1)
    partition.fail_promises(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(ApiError) as broken:
        await promise
    assert broken.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_watchers_are_called_once() -> None:
    partition = led_partition()
    calls: list[str] = []
    partition.watchers[lambda: calls.append("changed")] = None
    append(partition)
    append(partition)
    assert calls == ["changed"]


def test_acks_all_is_rejected_below_min_insync_replicas() -> None:
    partition = led_partition(replace(TopicConfig(), min_insync_replicas=2), replicas=2, in_sync=1)
    with pytest.raises(ApiError) as refused:
        append(partition, acks=-1)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 0
    append(partition, acks=1)
    assert partition.log.high_watermark == 0, "below min.insync.replicas nothing is committed"


def test_min_insync_replicas_is_limited_by_replica_count() -> None:
    partition = led_partition(replace(TopicConfig(), min_insync_replicas=3))
    append(partition, acks=-1)
    assert partition.log.high_watermark == 1


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_wrong_leader_epoch_is_rejected(epoch: int, code: ErrorCode) -> None:
    partition = led_partition()
    partition.require_leader(5)
    partition.require_leader(-1)
    with pytest.raises(ApiError) as refused:
        partition.require_leader(epoch)
    assert refused.value.code is code


def test_follower_rejects_appends() -> None:
    partition = led_partition()
    partition.leader = TWO
    with pytest.raises(ApiError) as refused:
        append(partition)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_topic_compression_replaces_producer_compression(codec: str) -> None:
    partition = led_partition(replace(TopicConfig(), compression_type=codec))
    append(partition, compression=Compression.GZIP)
    found = partition.log.read(0, 10_000, 1, True)
    (part,) = found.slices
    header = BatchHeader(part.file.read(part.position, part.size))
    assert header.compression == {"uncompressed": 0}.get(
        codec, Compression.__members__.get(codec.upper())
    )


# ---- with followers


class LeaderSetup:
    """Partition led by broker 1, with a clock and a controller under test control."""

    def __init__(
        self, *, replicas: int = 3, in_sync: int = 3, config: TopicConfig | None = None
    ) -> None:
        self.now_ms = 0.0
        self.alive = {ONE, TWO, THREE}
        self.is_known_to_controller = True
        self.proposed: list[IsrChange] = []
        log = Log.create(
            ForgetfulDisk(), "/logs/orders-0", config or TopicConfig(), topic_id=None, now_ms=0
        )
        context = LeaderContext(
            now_ms=lambda: self.now_ms,
            lag_max_ms=LAG_MS,
            is_alive=lambda broker: broker in self.alive,
            is_known_to_controller=lambda: self.is_known_to_controller,
            propose=lambda _, change: self.proposed.append(change),
        )
        self.partition = Partition("orders", 0, uuid4(), ONE, log, context)
        self.lead(in_sync=in_sync, replicas=replicas)

    def lead(
        self, *, epoch: int = 5, in_sync: int = 3, replicas: int = 3, version: int = 0
    ) -> None:
        self.partition.lead(
            leader_epoch=LeaderEpoch(epoch),
            replicas=(ONE, TWO, THREE)[:replicas],
            isr=(ONE, TWO, THREE)[:in_sync],
            partition_epoch=ZnodeVersion(version),
        )

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            append(self.partition)

    def fetch(self, broker: BrokerId, offset: int, session: FollowerSession | None = None) -> None:
        end = self.partition.log.log_end_offset
        self.partition.record_fetch(broker, offset, 0, leader_end=end, session=session)

    @property
    def high_watermark(self) -> int:
        return self.partition.log.high_watermark


def test_unrecognised_leader_does_not_check_sequences() -> None:
    leader = LeaderSetup()

    def produce(sequence: int) -> ErrorCode:
        record = Record(0, 1_000, None, b"v", ())
        batch = bytearray(
            build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)
        )
        try:
            leader.partition.append(memoryview(batch), BatchHeader(batch), acks=-1, now_ms=1_000)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    assert produce(0) is ErrorCode.NONE
    assert produce(9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    leader.is_known_to_controller = False
    assert produce(9) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produce(1) is ErrorCode.NONE, (
        "the next sequence is appended, but not acknowledged if another broker leads"
    )


def test_unrecognised_leader_rejects_requests() -> None:
    leader = LeaderSetup()
    leader.partition.require_leader(5)
    leader.is_known_to_controller = False
    for require in (leader.partition.require_leader, leader.partition.require_replica):
        with pytest.raises(ApiError) as refused:
            require(5)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.partition.stop_leading(TWO)
    leader.partition.require_replica(5)  # a follower answers for its own log


def test_leader_without_followers_cannot_be_replaced() -> None:
    leader = LeaderSetup(replicas=1, in_sync=1)
    leader.is_known_to_controller = False
    leader.partition.require_leader(5)


def test_high_watermark_follows_isr_and_never_decreases() -> None:
    leader = LeaderSetup()
    leader.append(3)
    assert leader.high_watermark == 0
    leader.fetch(TWO, 3)
    assert leader.high_watermark == 0
    leader.fetch(THREE, 2)
    assert leader.high_watermark == 2
    leader.fetch(THREE, 0)
    assert leader.high_watermark == 2


async def test_promise_waits_for_every_in_sync_replica() -> None:
    leader = LeaderSetup()
    leader.append()
    promise = leader.partition.promise(1)
    leader.fetch(TWO, 1)
    assert not promise.done()
    leader.fetch(THREE, 1)
    await asyncio.wait_for(promise, 30)


async def test_cancelled_promises_are_removed() -> None:
    leader = LeaderSetup()
    leader.append()
    kept = leader.partition.promise(1)
    for _ in range(10_000):
        leader.partition.promise(1).cancel()
    assert len(leader.partition.promises) <= 1024
    leader.fetch(TWO, 1)
    leader.fetch(THREE, 1)
    await asyncio.wait_for(kept, 30)


async def test_promise_fails_when_another_broker_leads() -> None:
    leader = LeaderSetup()
    leader.append()
    promise = leader.partition.promise(1)
    assert leader.partition.follow(
        TWO, leader_epoch=LeaderEpoch(6), replicas=(ONE, TWO), partition_epoch=ZnodeVersion(1)
    )
    with pytest.raises(ApiError) as broken:
        await promise
    assert broken.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.partition.isr == ()


async def test_promise_survives_new_epoch_of_same_leader() -> None:
    leader = LeaderSetup()
    leader.append()
    promise = leader.partition.promise(1)
    leader.fetch(TWO, 1)
    leader.lead(epoch=6, in_sync=2, version=1)
    await asyncio.wait_for(promise, 30)
    assert leader.high_watermark == 1


def test_skipped_epoch_resets_follower_offsets() -> None:
    """In epoch 6 broker 2 may have led, and broker 3 may have truncated our records for it."""
    leader = LeaderSetup()
    leader.append(3)
    leader.fetch(THREE, 3)
    leader.lead(epoch=7, version=2)
    leader.fetch(TWO, 3)
    assert leader.high_watermark == 0
    leader.fetch(THREE, 3)
    assert leader.high_watermark == 3


async def test_promise_fails_below_min_insync_replicas() -> None:
    leader = LeaderSetup(config=replace(TopicConfig(), min_insync_replicas=2), in_sync=2)
    leader.append()
    promise = leader.partition.promise(1)
    leader.fetch(TWO, 1)
    await asyncio.wait_for(promise, 30)
    leader.append()
    promise = leader.partition.promise(2)
    leader.partition.isr = (ONE,)
    leader.partition.log.high_watermark = 2
    leader.partition.resolve_promises()
    with pytest.raises(ApiError) as broken:
        await promise
    assert broken.value.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_caught_up_follower_is_proposed_once() -> None:
    leader = LeaderSetup(in_sync=1)
    leader.now_ms = 1000  # no follower is awaited any longer
    leader.append(2)
    assert leader.high_watermark == 2
    leader.fetch(TWO, 1)
    assert not leader.proposed
    leader.fetch(TWO, 2)
    leader.fetch(THREE, 2)
    assert [change.isr for change in leader.proposed] == [(ONE, TWO)]
    assert leader.partition.isr == (ONE,), "the controller has not accepted yet"
    assert leader.partition.maximal_isr == (ONE, TWO)


def test_dead_follower_is_not_proposed() -> None:
    leader = LeaderSetup(in_sync=1)
    leader.alive.remove(TWO)
    leader.fetch(TWO, 0)
    assert not leader.proposed


def test_follower_below_epoch_start_does_not_join() -> None:
    leader = LeaderSetup(in_sync=1)
    leader.append(3)
    leader.partition.log.high_watermark = 1
    leader.lead(epoch=6, in_sync=1, version=1)
    leader.partition.log.watermark = 1
    leader.fetch(TWO, 2)
    assert not leader.proposed, "the epoch starts at offset 3"
    leader.fetch(TWO, 3)
    assert len(leader.proposed) == 1


def test_lagging_follower_counts_until_removal_is_committed() -> None:
    leader = LeaderSetup(replicas=2, in_sync=2)
    leader.fetch(TWO, 0)
    leader.append()
    leader.now_ms = LAG_MS
    leader.partition.check_isr()
    assert not leader.proposed
    leader.now_ms = LAG_MS + 1
    leader.partition.check_isr()
    (change,) = leader.proposed
    assert change.isr == (ONE,)
    assert leader.high_watermark == 0
    leader.partition.check_isr()
    assert len(leader.proposed) == 1, "one change at a time"
    assert accept(leader, change) is IsrChangeOutcome.COMMIT
    assert leader.partition.isr == (ONE,)
    assert leader.high_watermark == 1


def test_removed_silent_follower_is_not_proposed_again() -> None:
    """Below min.insync.replicas the high watermark stays, and removed followers have all records
    below it.
    """
    leader = LeaderSetup(config=replace(TopicConfig(), min_insync_replicas=2))
    for follower in (TWO, THREE):
        leader.fetch(follower, 0, session=FakeContact(0))
    leader.append()
    leader.now_ms = LAG_MS + 1
    leader.partition.check_isr()
    (change,) = leader.proposed
    assert change.isr == (ONE,)
    accept(leader, change)
    assert leader.proposed == [change]
    assert leader.high_watermark == 0
    leader.fetch(TWO, 0)
    assert leader.proposed[1].isr == (ONE, TWO), "it fetches again and is at the high watermark"


def test_next_caught_up_follower_is_proposed_after_the_first() -> None:
    leader = LeaderSetup(in_sync=1)
    leader.append()
    leader.fetch(TWO, 1, session=FakeContact(0))
    leader.fetch(THREE, 1, session=FakeContact(0))
    (change,) = leader.proposed
    accept(leader, change)
    assert [each.isr for each in leader.proposed] == [(ONE, TWO), (ONE, TWO, THREE)]


def accept(leader: LeaderSetup, change: IsrChange) -> IsrChangeOutcome:
    return leader.partition.complete_isr_change(
        change,
        ErrorCode.NONE,
        isr=change.isr,
        leader_epoch=change.leader_epoch,
        partition_epoch=change.partition_epoch + 1,
    )


def test_accepted_change_updates_partition_epoch() -> None:
    leader = LeaderSetup(in_sync=1)
    leader.fetch(TWO, 0)
    accept(leader, leader.proposed[0])
    assert leader.partition.partition_epoch == 1
    assert leader.partition.pending is None
    leader.fetch(THREE, 0)
    assert leader.proposed[1].isr == (ONE, TWO, THREE)
    assert leader.proposed[1].partition_epoch == 1


@pytest.mark.parametrize(
    ("code", "is_over"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, True),
        (ErrorCode.FENCED_LEADER_EPOCH, False),
        (ErrorCode.NOT_CONTROLLER, False),
    ],
)
def test_rejected_change_ends_only_if_certain(code: ErrorCode, is_over: bool) -> None:
    leader = LeaderSetup(in_sync=1)
    leader.fetch(TWO, 0)
    (change,) = leader.proposed
    leader.partition.complete_isr_change(change, code)
    assert (leader.partition.pending is None) is is_over
    assert leader.partition.isr == (ONE,)


def test_response_of_older_epoch_is_ignored() -> None:
    leader = LeaderSetup(in_sync=1)
    leader.fetch(TWO, 0)
    (change,) = leader.proposed
    leader.lead(epoch=6, in_sync=1, version=3)
    assert accept(leader, change) is IsrChangeOutcome.STAY
    assert leader.partition.isr == (ONE,)
    assert leader.partition.partition_epoch == 3


def test_high_watermark_stays_below_min_insync_replicas() -> None:
    leader = LeaderSetup(config=replace(TopicConfig(), min_insync_replicas=2), in_sync=1)
    leader.append()
    leader.fetch(TWO, 1)
    assert len(leader.proposed) == 1
    assert leader.high_watermark == 0, "a pending change does not count"
    accept(leader, leader.proposed[0])
    assert leader.high_watermark == 1


def test_min_insync_replicas_above_isr_is_not_satisfied() -> None:
    leader = LeaderSetup(config=replace(TopicConfig(), min_insync_replicas=3), in_sync=1)
    leader.partition.lead(
        leader_epoch=LeaderEpoch(6),
        replicas=(ONE, TWO),
        isr=(ONE,),
        partition_epoch=ZnodeVersion(1),
    )
    assert not leader.partition.has_enough_replicas()


def test_in_sync_follower_below_high_watermark_is_removed() -> None:
    leader = LeaderSetup()
    leader.append(3)
    leader.fetch(TWO, 3)
    leader.fetch(THREE, 3)
    assert leader.high_watermark == 3
    leader.fetch(THREE, 0)
    assert [change.isr for change in leader.proposed] == [(ONE, TWO)]
    assert leader.partition.maximal_isr == (ONE, TWO, THREE), "it may still become leader"
    assert leader.high_watermark == 3


def test_older_partition_epoch_is_ignored() -> None:
    leader = LeaderSetup()
    leader.lead(epoch=6, version=4)
    follow: Callable[..., bool] = leader.partition.follow
    assert not follow(
        TWO, leader_epoch=LeaderEpoch(7), replicas=(ONE,), partition_epoch=ZnodeVersion(3)
    )
    assert leader.partition.leader == ONE


def test_append_wakes_followers_and_commit_wakes_consumers() -> None:
    leader = LeaderSetup(replicas=2, in_sync=2)
    calls: list[str] = []
    leader.partition.end_watchers[lambda: calls.append("follower")] = None
    leader.partition.watchers[lambda: calls.append("consumer")] = None
    leader.append()
    assert calls == ["follower"]
    leader.fetch(TWO, 1)
    assert calls == ["follower", "consumer"]


def test_resignation_wakes_all_watchers() -> None:
    leader = LeaderSetup()
    calls: list[str] = []
    leader.partition.end_watchers[lambda: calls.append("follower")] = None
    leader.partition.watchers[lambda: calls.append("consumer")] = None
    leader.partition.stop_leading()
    assert sorted(calls) == ["consumer", "follower"]


def test_leader_epoch_is_recorded_before_first_append() -> None:
    leader = LeaderSetup()
    leader.append()
    leader.lead(epoch=9, version=1)
    assert leader.partition.log.epochs.entries == [(5, 0), (9, 1)]


def test_low_watermark_counts_live_replicas() -> None:
    leader = LeaderSetup()
    leader.partition.log.log_start_offset = 5
    for broker, start in ((TWO, 3), (THREE, 1)):
        leader.partition.record_fetch(broker, 0, start, leader_end=0)
    assert leader.partition.low_watermark() == 1
    leader.alive.remove(THREE)
    assert leader.partition.low_watermark() == 3


def test_flush_does_not_commit_beyond_followers() -> None:
    leader = LeaderSetup(replicas=2, in_sync=2, config=replace(TopicConfig(), flush_messages=1))
    leader.append()
    flush = leader.partition.log.begin_flush()
    leader.partition.log.end_flush(flush)
    leader.partition.finish_flush(flush.up_to_offset)
    assert leader.high_watermark == 0
    leader.fetch(TWO, 1)
    assert leader.high_watermark == 1
