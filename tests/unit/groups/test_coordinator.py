"""Group coordinator: responses, timers and appends. The log is a list that accepts or rejects
appends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import cast

import pytest

from barnabas.config.load import load_broker_config
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.coordinator_timers import Timers
from barnabas.groups.group import AssignmentProtocol, Group, GroupState
from barnabas.groups.group_events import JoinEvent, SyncEvent
from barnabas.groups.group_transition import JOIN_TIMER, SYNC_TIMER, Timer, session_timer
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import KeyValue, group_metadata_record
from barnabas.groups.store import AppendResult, GroupStore, partition_of
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupResponse

PARTITIONS = 4


class FixedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


class ListStore:
    """In-memory log. `refusal` is raised by appends, `gate` delays the replicas, `is_broken` makes
    them fail.
    """

    def __init__(self) -> None:
        self.led = dict.fromkeys(range(PARTITIONS))
        self.loading: dict[int, None] = {}
        self.records: list[KeyValue] = []
        self.refusal: ErrorCode | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_broken = False

    def partition_for(self, group_id: str) -> int:
        return partition_of(group_id, PARTITIONS)

    def is_led(self, partition: int) -> bool:
        return partition in self.led

    def begin_append(self, group_id: str, records: Sequence[KeyValue]) -> AppendResult:
        if self.refusal is not None:
            raise ApiError(self.refusal)
        self.records += records
        return AppendResult(0, [])

    async def wait_for(self, appended: AppendResult) -> None:
        await self.gate.wait()
        if self.is_broken:
            raise RuntimeError("unexpected failure")


@pytest.fixture
async def store() -> ListStore:
    return ListStore()


@pytest.fixture
async def coordinator(store: ListStore) -> AsyncIterator[GroupCoordinator]:
    config, _ = load_broker_config(
        {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1"}
    )
    made = GroupCoordinator(
        config=config, store=cast(GroupStore, store), clock=FixedClock(), random=Random(7)
    )
    yield made
    await made.stop()


def join_request(
    member_id: str = "", *, session_ms: int = 10_000, instance: str | None = None
) -> JoinEvent:
    return JoinEvent(
        member_id=member_id,
        instance_id=instance,
        new_member_id="",
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(AssignmentProtocol("range", b""),),
    )


async def join(
    coordinator: GroupCoordinator, request: JoinEvent | None = None
) -> JoinGroupResponse:
    answer = coordinator.join("g", request or join_request())
    return await answer if isinstance(answer, asyncio.Future) else answer


async def sync(
    coordinator: GroupCoordinator, joined: JoinGroupResponse, assignment: bytes = b"all"
) -> SyncGroupResponse:
    member_id = joined.member_id
    request = SyncEvent(member_id, None, joined.generation_id, None, None, {member_id: assignment})
    answer = coordinator.sync("g", request)
    return await answer if isinstance(answer, asyncio.Future) else answer


def classic_group(coordinator: GroupCoordinator) -> Group:
    group = coordinator.groups["g"]
    assert isinstance(group, Group)
    return group


async def wait_until(condition: object, *, seconds: float = 30.0) -> None:
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)


async def test_member_joins_syncs_and_is_stored(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    joined = await join(coordinator)
    assert joined.member_id.startswith("client-")
    synced = await sync(coordinator, joined)
    assert synced.assignment == b"all"
    group = classic_group(coordinator)
    assert store.records == [group_metadata_record("g", group.snapshot())]
    assert coordinator.heartbeat("g", joined.member_id, None, 1) is ErrorCode.NONE


async def test_static_member_id_starts_with_instance_id(coordinator: GroupCoordinator) -> None:
    joined = await join(coordinator, join_request(instance="one"))
    assert joined.member_id.startswith("one-")


async def test_assignment_is_sent_only_after_replication(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    joined = await join(coordinator)
    store.gate.clear()
    waiting = asyncio.ensure_future(sync(coordinator, joined))
    await wait_until(lambda: store.records)
    assert not waiting.done()
    assert coordinator.groups["g"].state is GroupState.COMPLETING_REBALANCE
    store.gate.set()
    assert (await waiting).error_code == ErrorCode.NONE


async def test_rejected_append_is_returned_to_members(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    joined = await join(coordinator)
    store.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    synced = await sync(coordinator, joined)
    assert synced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.groups["g"].state is GroupState.PREPARING_REBALANCE
    store.refusal = None
    again = await join(coordinator, join_request(joined.member_id))
    assert again.generation_id == 2
    assert (await sync(coordinator, again)).error_code == ErrorCode.NONE


async def test_unexpected_failure_is_an_unknown_server_error(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    joined = await join(coordinator)
    store.is_broken = True
    assert (await sync(coordinator, joined)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_member_without_heartbeat_is_removed(coordinator: GroupCoordinator) -> None:
    joined = await join(coordinator, join_request(session_ms=20))
    await sync(coordinator, joined)
    group = coordinator.groups["g"]
    await wait_until(lambda: group.state is GroupState.EMPTY)
    code = coordinator.heartbeat("g", joined.member_id, None, 1)
    assert code is ErrorCode.UNKNOWN_MEMBER_ID
    assert not coordinator.timers.running


async def test_commit_extends_the_session(coordinator: GroupCoordinator) -> None:
    joined = await join(coordinator)
    await sync(coordinator, joined)
    group = classic_group(coordinator)
    timer = session_timer(joined.member_id)
    before = coordinator.timers.running[group][timer].at
    group.members[joined.member_id].session_timeout_ms *= 2
    coordinator.restart_session(group, joined.member_id)
    assert coordinator.timers.running[group][timer].at > before
    coordinator.restart_session(group, "unknown")


async def test_lost_connection_does_not_affect_the_group(
    coordinator: GroupCoordinator,
) -> None:
    first = await join(coordinator)
    await sync(coordinator, first)
    lost = coordinator.join("g", join_request())
    assert isinstance(lost, asyncio.Future)
    lost.cancel()
    again = await join(coordinator, join_request(first.member_id))
    assert len(again.members) == 2


async def test_groups_of_other_coordinators_are_rejected(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    partition = store.partition_for("g")
    del store.led[partition]
    assert (await join(coordinator)).error_code == ErrorCode.NOT_COORDINATOR
    assert coordinator.heartbeat("g", "x", None, 1) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        coordinator.leave("g", [MemberIdentity("x")])


async def test_requests_during_loading(coordinator: GroupCoordinator, store: ListStore) -> None:
    store.loading[store.partition_for("g")] = None
    assert (await join(coordinator)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert coordinator.heartbeat("g", "x", None, 1) is ErrorCode.NONE
    synced = await sync(coordinator, JoinGroupResponse(member_id="x", generation_id=1))
    assert synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        coordinator.find("g")


async def test_group_is_dropped_and_loaded_with_its_partition(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    joined = await join(coordinator)
    await sync(coordinator, joined)
    snapshot = classic_group(coordinator).snapshot()
    waiting = coordinator.join("g", join_request())
    assert isinstance(waiting, asyncio.Future)
    coordinator.drop_partition(store.partition_for("g") ^ 1)
    assert not waiting.done()
    coordinator.drop_partition(store.partition_for("g"))
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert not coordinator.groups
    assert not coordinator.timers.running
    offsets = GroupOffsets()
    group = Group.restore("g", snapshot, offsets, now_ms=0)
    coordinator.add_loaded_group(group, store.partition_for("g"))
    assert coordinator.groups["g"].offsets is offsets
    assert coordinator.heartbeat("g", joined.member_id, None, 1) is ErrorCode.NONE


async def test_members_of_loaded_group_must_send_heartbeats(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    joined = await join(coordinator, join_request(session_ms=20))
    classic_group(coordinator).members[joined.member_id].is_new = False
    snapshot = classic_group(coordinator).snapshot()
    coordinator.drop_partition(store.partition_for("g"))
    group = Group.restore("g", snapshot, GroupOffsets(), now_ms=0)
    coordinator.add_loaded_group(group, store.partition_for("g"))
    assert len(group.members) == 1
    await wait_until(lambda: group.state is GroupState.EMPTY)


async def test_group_without_members_is_created_for_offsets(
    coordinator: GroupCoordinator,
) -> None:
    group = coordinator.find_or_create("g")
    assert coordinator.find_or_create("g") is group
    assert isinstance(group, Group)
    assert (group.state, group.protocol_type, group.generation) == (GroupState.EMPTY, None, 0)


async def test_empty_group_id_is_allowed_only_where_kafka_allows_it(
    coordinator: GroupCoordinator,
) -> None:
    assert coordinator.find("", allow_empty_id=True) is None
    with pytest.raises(ApiError, match="INVALID_GROUP_ID"):
        coordinator.find("")


async def test_stop_answers_waiting_members(
    coordinator: GroupCoordinator, store: ListStore
) -> None:
    joined = await join(coordinator)
    store.gate.clear()
    syncing = asyncio.ensure_future(sync(coordinator, joined))
    await wait_until(lambda: store.records)
    await coordinator.stop()
    assert (await syncing).error_code == ErrorCode.NOT_COORDINATOR
    assert (await join(coordinator)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# ---- timers


async def test_postponed_timer_ends_later_and_once() -> None:
    ended: list[Timer] = []
    timers = Timers(lambda group, timer: ended.append(timer))
    group = Group(group_id="g")
    loop = asyncio.get_running_loop()
    began = loop.time()
    timers.set(group, JOIN_TIMER, 0.01)
    timers.set(group, JOIN_TIMER, 0.05)
    timers.set(group, SYNC_TIMER, 10.0)
    await wait_until(lambda: ended)
    assert loop.time() - began >= 0.045
    assert ended == [JOIN_TIMER]
    timers.set(group, SYNC_TIMER, 0.0)
    await wait_until(lambda: len(ended) == 2)
    assert not timers.running


async def test_cancelled_timer_never_ends() -> None:
    ended: list[Timer] = []
    timers = Timers(lambda group, timer: ended.append(timer))
    group, other = Group(group_id="g"), Group(group_id="o")
    for each in (group, other):
        timers.set(each, JOIN_TIMER, 0.0)
        timers.set(each, SYNC_TIMER, 0.0)
    timers.cancel(group, JOIN_TIMER)
    timers.cancel(group, JOIN_TIMER)
    timers.cancel_all(other)
    await wait_until(lambda: ended)
    await asyncio.sleep(0)
    assert ended == [SYNC_TIMER]
