"""Coordinator of groups of the new consumer protocol: appends, responses, timers and migration. The log is a list."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Sequence
from random import Random
from typing import Any, cast
from uuid import UUID

import pytest

from barnabas.config.load import load_broker_config
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.expiry import expire_once
from barnabas.groups.group import AssignmentProtocol, Group, GroupState
from barnabas.groups.group_events import JoinEvent, SyncEvent
from barnabas.groups.loading import DecodedGroups, LatestRecords
from barnabas.groups.records import (
    GroupMetadataValue,
    KeyValue,
    OffsetCommitValue,
    group_key,
    group_metadata_record,
    offset_record,
)
from barnabas.groups.store import AppendResult, GroupStore, partition_of
from barnabas.metadata.cache import MetadataCache, PartitionMetadata, TopicMetadata
from barnabas.model import BrokerId, LeaderEpoch, TopicPartition
from barnabas.wire.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    TopicPartitions,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from barnabas.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupResponse

PARTITIONS = 4
ORDERS = UUID(int=7)
DAY_MS = 86_400_000


class ManualClock:
    def __init__(self) -> None:
        self.at_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.at_ms


class ListStore:
    """In-memory log. `refusal` is raised by appends. Replicas wait for `gate`, and fail with `failure`."""

    def __init__(self) -> None:
        self.led: dict[int, None] = dict.fromkeys(range(PARTITIONS))
        self.loading: dict[int, None] = {}
        self.records: list[KeyValue] = []
        self.watermark = 0
        self.refusal: ErrorCode | None = None
        self.gate: asyncio.Event | None = None
        self.failure: ErrorCode | None = None
        self.metadata = MetadataCache("cluster")
        self.set_topic(4)

    def set_topic(self, count: int) -> None:
        broker = BrokerId(1)
        state = PartitionMetadata(broker, LeaderEpoch(0), (broker,), (broker,))
        self.metadata.put_topic(
            TopicMetadata(
                name="orders", topic_id=ORDERS, partitions=dict.fromkeys(range(count), state)
            )
        )

    def partition_for(self, group_id: str) -> int:
        return partition_of(group_id, PARTITIONS)

    def is_led(self, partition: int) -> bool:
        return partition in self.led

    def begin_append(
        self, group_id: str, records: Sequence[KeyValue], *, acks: int | None = None
    ) -> AppendResult:
        if self.refusal is not None:
            raise ApiError(self.refusal)
        first_offset = len(self.records)
        self.records += records
        if self.gate is None:
            self.watermark = len(self.records)
        return AppendResult(first_offset, self.begin_wait(group_id, len(self.records)).waits)

    def begin_wait(self, group_id: str, end_offset: int) -> AppendResult:
        if self.refusal is not None:
            raise ApiError(self.refusal)
        waits: list[Awaitable[None]] = []
        if self.watermark < end_offset:
            waits.append(asyncio.get_running_loop().create_future())
        return AppendResult(end_offset, waits)

    async def wait_for(self, appended: AppendResult) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise ApiError(self.failure)
        self.watermark = len(self.records)

    def load(self) -> list[Group | ConsumerGroup]:
        """The groups as another broker would load them."""
        latest = LatestRecords()
        for at, (key, value) in enumerate(self.records):
            latest.put(key, value, at)
        decoded = DecodedGroups()
        for key, (value, log_offset) in latest.latest.items():
            decoded.add(key, value, log_offset)
        return list(decoded.groups(0))


@pytest.fixture
async def store() -> ListStore:
    return ListStore()


@pytest.fixture
async def coordinator(store: ListStore) -> AsyncIterator[GroupCoordinator]:
    made = make_coordinator(store)
    yield made
    await made.stop()


def make_coordinator(store: ListStore, **settings: str) -> GroupCoordinator:
    config, _ = load_broker_config(
        {
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    return GroupCoordinator(
        config=config, store=cast(GroupStore, store), clock=ManualClock(), random=Random(7)
    )


async def heartbeat(
    coordinator: GroupCoordinator, member_id: str, epoch: int, **fields: Any
) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, **fields
    )
    answer = coordinator.consumers.heartbeat(request, "client", "/host")
    return answer if isinstance(answer, ConsumerGroupHeartbeatResponse) else await answer


async def join(coordinator: GroupCoordinator, member_id: str) -> ConsumerGroupHeartbeatResponse:
    return await heartbeat(
        coordinator,
        member_id,
        0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )


async def join_classic(
    coordinator: GroupCoordinator, member_id: str = "", owned: tuple[int, ...] = ()
) -> JoinGroupResponse:
    partitions = (TopicPartitions("orders", owned),) if owned else ()
    metadata = encode_subscription(ConsumerSubscription(("orders",), owned_partitions=partitions))
    event = JoinEvent(
        member_id=member_id,
        instance_id=None,
        new_member_id="",
        client_id="client",
        client_host="/host",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(AssignmentProtocol("cooperative-sticky", metadata),),
    )
    answer = coordinator.join("g", event)
    return await answer if isinstance(answer, asyncio.Future) else answer


async def sync_classic(
    coordinator: GroupCoordinator, joined: JoinGroupResponse, *partitions: int
) -> SyncGroupResponse:
    assignment = encode_assignment(ConsumerAssignment((TopicPartitions("orders", partitions),)))
    sent = {joined.member_id: assignment}
    event = SyncEvent(joined.member_id, None, joined.generation_id, None, None, sent)
    answer = coordinator.sync("g", event)
    return await answer if isinstance(answer, asyncio.Future) else answer


def consumer_group(coordinator: GroupCoordinator) -> ConsumerGroup:
    group = coordinator.groups["g"]
    assert isinstance(group, ConsumerGroup)
    return group


def owned(*partitions: int) -> tuple[HeartbeatTopicPartitions, ...]:
    return (HeartbeatTopicPartitions(ORDERS, partitions),)


# ---- heartbeats


async def test_member_joins_and_is_stored(coordinator: GroupCoordinator, store: ListStore) -> None:
    joined = await join(coordinator, "x")
    assert joined.error_code == ErrorCode.NONE
    assert joined.assignment is not None
    assert joined.assignment.topic_partitions == owned(0, 1, 2, 3)
    (loaded,) = store.load()
    assert isinstance(loaded, ConsumerGroup)
    assert loaded.members == consumer_group(coordinator).members


async def test_member_gets_an_id(coordinator: GroupCoordinator) -> None:
    joined = await join(coordinator, "")
    assert joined.member_id is not None
    assert str(UUID(joined.member_id)) == joined.member_id


async def test_errors_have_messages(coordinator: GroupCoordinator) -> None:
    found = await heartbeat(coordinator, "x", 1)
    assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert found.error_message
    await join(coordinator, "x")
    found = await heartbeat(coordinator, "x", 9)
    assert found.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    found = await heartbeat(coordinator, "x", -5)
    assert found.error_code == ErrorCode.INVALID_REQUEST


async def test_member_id_that_is_too_long_for_a_record(coordinator: GroupCoordinator) -> None:
    found = await join(coordinator, "m" * 40_000)
    assert found.error_code == ErrorCode.INVALID_REQUEST
    assert not coordinator.groups


async def test_rejected_append_changes_nothing(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    store.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await join(coordinator, "x")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not coordinator.groups
    assert not coordinator.timers.running
    store.refusal = None
    assert (await join(coordinator, "x")).member_epoch == 1


async def test_response_waits_for_replicas(coordinator: GroupCoordinator, store: ListStore) -> None:
    store.gate = asyncio.Event()
    joining = asyncio.ensure_future(join(coordinator, "x"))
    await asyncio.sleep(0)
    repeated = asyncio.ensure_future(join(coordinator, "x"))
    await asyncio.sleep(0)
    assert not joining.done()
    assert not repeated.done()
    store.gate.set()
    assert (await joining).member_epoch == 1
    assert (await repeated).member_epoch == 1
    assert not coordinator.consumers.pending


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_failed_replication_is_reported(
    coordinator: GroupCoordinator, store: ListStore, failure: ErrorCode, code: ErrorCode
) -> None:
    store.gate = asyncio.Event()
    store.gate.set()
    store.failure = failure
    assert (await join(coordinator, "x")).error_code == code


async def test_repeated_request_waits_for_earlier_records(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    store.gate = asyncio.Event()
    store.gate.set()
    store.failure = ErrorCode.REQUEST_TIMED_OUT
    await join(coordinator, "x")
    appended = len(store.records)
    for _ in range(2):
        again = await join(coordinator, "x")
        assert again.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    store.failure = None
    store.gate.clear()
    joining = asyncio.ensure_future(join(coordinator, "x"))
    await asyncio.sleep(0)
    assert not joining.done()
    store.gate.set()
    assert (await joining).member_epoch == 1
    assert len(store.records) == appended
    assert not coordinator.consumers.pending


async def test_response_is_an_error_if_the_partition_is_gone(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    await join(coordinator, "x")
    store.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await heartbeat(coordinator, "x", 1)).error_code == ErrorCode.NOT_COORDINATOR


async def test_group_of_another_coordinator(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    del store.led[store.partition_for("g")]
    assert (await join(coordinator, "x")).error_code == ErrorCode.NOT_COORDINATOR
    store.loading[store.partition_for("g")] = None
    assert (await join(coordinator, "x")).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_new_partitions_reach_the_member(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    await join(coordinator, "x")
    store.set_topic(5)
    found = await heartbeat(coordinator, "x", 1)
    assert found.assignment is not None
    assert found.assignment.topic_partitions == owned(0, 1, 2, 3, 4)


async def test_topics_count_as_checked_only_if_the_log_accepts_them(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    await join(coordinator, "x")
    group = consumer_group(coordinator)
    assert group.topics_version == store.metadata.topics_version
    store.set_topic(5)
    store.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    rejected = await heartbeat(coordinator, "x", 1)
    assert rejected.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.topics_version < store.metadata.topics_version
    store.refusal = None
    assert (await heartbeat(coordinator, "x", 1)).member_epoch == 2
    assert group.topics_version == store.metadata.topics_version


async def test_deleted_topic_is_not_kept(coordinator: GroupCoordinator, store: ListStore) -> None:
    await join(coordinator, "x")
    topic = store.metadata.topics["orders"]
    store.metadata.remove_topic("orders")
    references = sys.getrefcount(topic)
    assert references == 2, "the variable and the argument"


async def test_silent_member_is_removed(store: ListStore) -> None:
    coordinator = make_coordinator(store, group_consumer_session_timeout_ms="1")
    await join(coordinator, "x")
    group = consumer_group(coordinator)
    async with asyncio.timeout(30):
        while group.members:
            await asyncio.sleep(0.001)
    assert group.epoch == 2
    await coordinator.stop()


async def test_member_is_removed_later_if_the_log_rejects_it(store: ListStore) -> None:
    coordinator = make_coordinator(
        store, group_consumer_session_timeout_ms="1", group_consumer_heartbeat_interval_ms="1"
    )
    await join(coordinator, "x")
    store.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    await asyncio.sleep(0.02)
    group = consumer_group(coordinator)
    assert group.members
    store.refusal = None
    async with asyncio.timeout(30):
        while group.members:
            await asyncio.sleep(0.001)
    await coordinator.stop()


# ---- loading, deleting, expiry


async def test_group_moves_to_another_coordinator(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    await join(coordinator, "x")
    group = consumer_group(coordinator)
    coordinator.drop_partition(store.partition_for("g"))
    assert group.is_dead
    assert not coordinator.timers.running
    (loaded,) = store.load()
    coordinator.add_loaded_group(loaded, store.partition_for("g"))
    assert coordinator.timers.running
    assert (await heartbeat(coordinator, "x", 1)).error_code == ErrorCode.NONE


async def test_offsets_belong_to_the_loaded_group(
    coordinator: GroupCoordinator, store: ListStore
) -> None:

    await join(coordinator, "x")
    store.records.append(offset_record("g", "orders", 0, OffsetCommitValue(5)))
    (loaded,) = store.load()
    assert isinstance(loaded, ConsumerGroup)
    assert loaded.offsets.committed[TopicPartition("orders", 0)].offset == 5


async def test_only_empty_groups_are_deleted(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    await join(coordinator, "x")
    with pytest.raises(ApiError, match="NON_EMPTY_GROUP"):
        coordinator.delete("g")
    await heartbeat(coordinator, "x", -1)
    coordinator.delete("g")
    assert not coordinator.groups
    assert store.load() == []


async def test_stored_group_of_generation_0_is_replaced(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    store.records.append(group_metadata_record("g", GroupMetadataValue("", 0)))
    (loaded,) = store.load()
    coordinator.add_loaded_group(loaded, store.partition_for("g"))
    await join(coordinator, "x")
    (loaded,) = store.load()
    assert isinstance(loaded, ConsumerGroup)


async def test_offsets_of_subscribed_topics_do_not_expire(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    await join(coordinator, "x")
    group = consumer_group(coordinator)
    clock = coordinator.clock
    assert isinstance(clock, ManualClock)
    for topic in ("orders", "other"):
        group.offsets.put(
            TopicPartition(topic, 0), OffsetCommitValue(5, commit_timestamp=clock.at_ms), 0
        )
    clock.at_ms += 8 * DAY_MS
    await expire_once(coordinator)
    assert group.offsets.committed.keys() == {TopicPartition("orders", 0)}
    await heartbeat(coordinator, "x", -1)
    await expire_once(coordinator)
    assert not coordinator.groups


# ---- migration


async def test_classic_group_is_upgraded_and_downgraded(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    first = await join_classic(coordinator)
    await sync_classic(coordinator, first, 0, 1, 2, 3)
    classic = coordinator.groups["g"]
    classic.offsets.put(TopicPartition("orders", 0), OffsetCommitValue(5), 0)

    joined = await join(coordinator, "x")
    assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 2)
    group = consumer_group(coordinator)
    assert group.members.keys() == {first.member_id, "x"}
    assert group.offsets is classic.offsets
    assert classic.state is GroupState.DEAD
    code = coordinator.heartbeat("g", first.member_id, None, first.generation_id)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS

    rejoined = await join_classic(coordinator, first.member_id, owned=(0, 1, 2, 3))
    synced = await sync_classic(coordinator, rejoined)
    (kept,) = decode_assignment(synced.assignment).assigned_partitions
    rejoined = await join_classic(coordinator, first.member_id, owned=kept.partitions)
    assert rejoined.generation_id == 2
    await sync_classic(coordinator, rejoined)
    found = await heartbeat(coordinator, "x", 2)
    assert found.assignment is not None
    assert len(found.assignment.topic_partitions[0].partitions) == 2

    left = await heartbeat(coordinator, "x", -1)
    assert left.error_code == ErrorCode.NONE
    after = coordinator.groups["g"]
    assert isinstance(after, Group)
    assert after.state is GroupState.PREPARING_REBALANCE
    assert after.offsets is classic.offsets
    again = await join_classic(coordinator, first.member_id)
    assert again.leader == first.member_id
    assert again.generation_id == 3
    (loaded,) = store.load()
    assert isinstance(loaded, Group)
    assert loaded.members.keys() == {first.member_id}


async def test_waiting_classic_members_must_rejoin_after_an_upgrade(
    coordinator: GroupCoordinator,
) -> None:
    first = await join_classic(coordinator)
    await sync_classic(coordinator, first, 0)
    waiting = asyncio.ensure_future(join_classic(coordinator))
    await asyncio.sleep(0)
    await join(coordinator, "x")
    assert (await waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS


async def test_disabled_migration(store: ListStore) -> None:
    coordinator = make_coordinator(store, group_consumer_migration_policy="disabled")
    first = await join_classic(coordinator)
    await sync_classic(coordinator, first, 0)
    assert (await join(coordinator, "x")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(coordinator.groups["g"], Group)
    await coordinator.stop()


async def test_empty_groups_change_their_protocol(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    group = coordinator.find_or_create("g")
    group.offsets.put(TopicPartition("orders", 0), OffsetCommitValue(5), 0)
    await join(coordinator, "x")
    assert consumer_group(coordinator).offsets is group.offsets
    await heartbeat(coordinator, "x", -1)
    first = await join_classic(coordinator)
    assert first.error_code == ErrorCode.NONE
    await sync_classic(coordinator, first, 0)
    assert coordinator.groups["g"].offsets is group.offsets
    (loaded,) = store.load()
    assert isinstance(loaded, Group)
    assert coordinator.leave("g", [MemberIdentity(first.member_id)]) == [ErrorCode.NONE]
    joined = await join(coordinator, "x")
    assert joined.member_epoch == 1
    assert (group_key("g"), None) in store.records


async def test_rejected_tombstones_keep_the_empty_group(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    await join(coordinator, "x")
    await heartbeat(coordinator, "x", -1)
    store.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await join_classic(coordinator)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert consumer_group(coordinator).is_empty


async def test_group_with_an_id_that_is_too_long_for_a_record(
    coordinator: GroupCoordinator,
) -> None:
    group_id = "g" * 40_000
    group = coordinator.find_or_create(group_id)
    assert isinstance(group, Group)
    group.generation = 1
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id="x",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )
    found = coordinator.consumers.heartbeat(request, "client", "/host")
    assert isinstance(found, ConsumerGroupHeartbeatResponse)
    assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinator.groups[group_id] is group


async def test_classic_member_leaves_a_mixed_group(coordinator: GroupCoordinator) -> None:
    await join(coordinator, "x")
    joined = await join_classic(coordinator)
    assert joined.generation_id == 2
    assert coordinator.leave("g", [MemberIdentity(joined.member_id)]) == [ErrorCode.NONE]
    assert consumer_group(coordinator).members.keys() == {"x"}
    unknown = coordinator.heartbeat("g", joined.member_id, None, 2)
    assert unknown is ErrorCode.UNKNOWN_MEMBER_ID
    rejected = await sync_classic(coordinator, joined)
    assert rejected.error_code == ErrorCode.UNKNOWN_MEMBER_ID
