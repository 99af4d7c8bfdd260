"""Group coordinator of one broker. It passes events to groups and executes their effects.

    request, expired timer, completed append ─► group_events.py (pure) ─► responses, timers, appends to the log

A request that has to wait gets a future, which is resolved exactly once. A lost connection does not change the group: a
member that waits for a rebalance stays a member until its session expires.

Groups are loaded when this broker starts to lead their partition of __consumer_offsets, and dropped when it stops:
`add_loaded_group`, `drop_partition`. Groups of the new consumer protocol are in the same table;
consumer_coordinator.py handles their requests, and classic_members.py those of their classic members.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups import group_events
from barnabas.groups.commits import PendingCommits
from barnabas.groups.consumer_coordinator import ConsumerCoordinator
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.consumer_records import encode_consumer_record
from barnabas.groups.coordinator_timers import AnyGroup, Timers
from barnabas.groups.group import Group, GroupState, Ticket
from barnabas.groups.group_changes import GroupChange
from barnabas.groups.group_events import JoinEvent, SyncEvent
from barnabas.groups.group_transition import (
    Answer,
    GroupTransition,
    SetTimer,
    StoreGroup,
    Timer,
    join_error_response,
)
from barnabas.groups.rebalance import ensure_rebalance
from barnabas.groups.records import (
    KeyValue,
    group_metadata_record,
    group_tombstone,
    offset_tombstone,
)
from barnabas.groups.store import (
    ACKS_LEADER,
    GROUP_ERROR_CODES,
    AppendResult,
    GroupStore,
    translate_error,
)
from barnabas.groups.transactional_commits import TransactionalCommits
from barnabas.history.coordinator_recorder import CoordinatorRecorder
from barnabas.model import TopicPartition
from barnabas.tasks import Tasks
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupResponse
from barnabas.world.ports import Clock

logger = logging.getLogger("barnabas.groups")

E = TypeVar("E")
P = ParamSpec("P")
R = TypeVar("R")

TOMBSTONES_PER_BATCH = 1000


class GroupCoordinator:
    def __init__(
        self,
        *,
        config: BrokerConfig,
        store: GroupStore,
        clock: Clock,
        random: Random,
        recorder: CoordinatorRecorder | None = None,
    ) -> None:
        self.config = config
        self.recorder = recorder
        self.store = store
        self.clock = clock
        self.random = random
        self.groups: dict[str, AnyGroup] = {}
        self.partitions: dict[str, int] = {}
        """Partition of __consumer_offsets by group id. Stored, because the topic may be deleted before its groups."""
        self.timers = Timers(self.expire_timer)
        self.waiting: dict[Ticket, asyncio.Future[Any]] = {}
        """Futures of the requests that have no response yet."""
        self.last_ticket = 0
        self.commits = PendingCommits(store)
        self.transactional = TransactionalCommits(self.commits)
        self.tasks = Tasks()
        self.is_stopping = False
        self.consumers = ConsumerCoordinator(self)

    # ---- groups of this broker

    def find(self, group_id: str, *, allow_empty_id: bool = False) -> AnyGroup | None:
        """Return the group, or None if it does not exist.

        Raises ApiError if this broker does not coordinate it now, or if the id is empty, unless `allow_empty_id`.
        """
        if not group_id and not allow_empty_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        if self.is_stopping:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        partition = self.store.partition_for(group_id)
        if partition in self.store.loading:
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"group {group_id!r} is being loaded"
            )
        if not self.store.is_led(partition):
            raise ApiError(
                ErrorCode.NOT_COORDINATOR, f"this broker does not coordinate group {group_id!r}"
            )
        return self.groups.get(group_id)

    def find_or_create(self, group_id: str, *, allow_empty_id: bool = False) -> AnyGroup:
        """Return the group, or create one without members. A consumer may commit offsets without being a member."""
        group = self.find(group_id, allow_empty_id=allow_empty_id)
        if group is None:
            group = self.create_classic_group(group_id, None)
        return group

    def create_classic_group(self, group_id: str, before: ConsumerGroup | None) -> Group:
        """Create a classic group. `before` is an empty group of the new protocol; its offsets are kept.

        Raises ApiError if `before` cannot be deleted from the log.
        """
        group = Group(group_id=group_id, state_since_ms=self.clock.now_ms())
        if before is None:
            self.add(group, self.store.partition_for(group_id))
            return group
        records = [encode_consumer_record(each) for each in before.tombstones()]
        try:
            self.store.begin_append(group_id, records, acks=ACKS_LEADER)
        except ApiError as error:
            raise translate_error(error, GROUP_ERROR_CODES) from error
        group.offsets = before.offsets
        self.replace(before, group)
        self.record(group, GroupChange("migrated"))
        return group

    def new_uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    def add(self, group: AnyGroup, partition: int) -> None:
        self.groups[group.group_id] = group
        self.partitions[group.group_id] = partition

    def add_loaded_group(self, group: AnyGroup, partition: int) -> None:
        """Add a group that was loaded from the log, and start the sessions of its members."""
        self.add(group, partition)
        self.transactional.add_loaded(partition, group.offsets)
        if group.members:
            self.record(group, GroupChange("loaded"))
        if isinstance(group, ConsumerGroup):
            self.consumers.start_sessions(group)
        else:
            self.apply(group, group_events.start_sessions)

    def drop_partition(self, partition: int) -> None:
        """Drop the groups of a partition that this broker no longer leads."""
        self.transactional.drop_partition(partition)
        for group_id in [name for name, index in self.partitions.items() if index == partition]:
            self.end(self.groups[group_id], ErrorCode.NOT_COORDINATOR)

    def end(self, group: AnyGroup, code: ErrorCode) -> None:
        """Remove the group from memory, and answer its waiting requests with `code`."""
        del self.groups[group.group_id], self.partitions[group.group_id]
        if isinstance(group, ConsumerGroup):
            group.is_dead = True
        else:
            self.apply(group, group_events.end_group, code)
        self.timers.cancel_all(group)
        self.commits.notify_completion(group.offsets)

    def replace(self, before: AnyGroup, after: AnyGroup) -> None:
        """Replace a group by its successor in the other protocol. Waiting members must rejoin."""
        partition = self.partitions[before.group_id]
        self.end(before, ErrorCode.REBALANCE_IN_PROGRESS)
        self.add(after, partition)

    def restart_group(self, group: Group, reason: str) -> None:
        """Start the sessions of a stable group, and rebalance it."""
        self.apply(group, group_events.start_sessions)
        self.apply(group, ensure_rebalance, reason)

    async def stop(self) -> None:
        self.is_stopping = True
        for group in list(self.groups.values()):
            self.end(group, ErrorCode.NOT_COORDINATOR)
        await self.tasks.stop()
        await self.commits.tasks.stop()

    # ---- requests of members; a response that has to wait is returned as a future

    def join(
        self, group_id: str, event: JoinEvent
    ) -> JoinGroupResponse | asyncio.Future[JoinGroupResponse]:
        try:
            group = self.find(group_id)
        except ApiError as error:
            return join_error_response(error.code, event.member_id)
        if not (
            self.config.group_min_session_timeout_ms
            <= event.session_timeout_ms
            <= self.config.group_max_session_timeout_ms
        ):
            return join_error_response(ErrorCode.INVALID_SESSION_TIMEOUT, event.member_id)
        name = event.client_id if event.instance_id is None else event.instance_id
        event = event._replace(new_member_id=f"{name}-{self.new_uuid()}")
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self.consumers.join(group, event)
        if group is None or isinstance(group, ConsumerGroup):
            if event.member_id:
                return join_error_response(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id)
            try:
                group = self.create_classic_group(group_id, group)
            except ApiError as error:
                return join_error_response(error.code, event.member_id)
        response: JoinGroupResponse | asyncio.Future[JoinGroupResponse] = self.handle_request(
            group, group_events.handle_join, event
        )
        return response

    def sync(
        self, group_id: str, event: SyncEvent
    ) -> SyncGroupResponse | asyncio.Future[SyncGroupResponse]:
        try:
            group = self.find(group_id)
        except ApiError as error:
            # A rebalance in progress is not in the log, so the member must rejoin after the load. Old clients do not
            # handle COORDINATOR_LOAD_IN_PROGRESS in SyncGroup.
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            code = ErrorCode.REBALANCE_IN_PROGRESS if is_loading else error.code
            return SyncGroupResponse(error_code=code)
        if group is None:
            return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(group, ConsumerGroup):
            return self.consumers.sync(group, event)
        response: SyncGroupResponse | asyncio.Future[SyncGroupResponse] = self.handle_request(
            group, group_events.handle_sync, event
        )
        return response

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        try:
            group = self.find(group_id)
        except ApiError as error:
            # Sessions start after the load, so the member is not checked yet.
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.NONE if is_loading else error.code
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(group, ConsumerGroup):
            return self.consumers.heartbeat_classic(group, member_id, instance_id, generation)
        return self.apply(group, group_events.handle_heartbeat, member_id, instance_id, generation)

    def restart_session(self, group: Group, member_id: str) -> None:
        """Restart the session of a member after a request other than a heartbeat."""
        member = group.members.get(member_id)
        if member is not None:
            self.apply(group, GroupTransition.restart_session, member)

    def leave(self, group_id: str, members: Iterable[MemberIdentity]) -> list[ErrorCode]:
        """Remove members. Return one error code per member. Raises ApiError as `find` does."""
        group = self.find(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID for _ in members]
        if isinstance(group, ConsumerGroup):
            return self.consumers.leave(group, members)
        return self.apply(group, group_events.handle_leave, members)

    def delete(self, group_id: str) -> None:
        """Delete the group and its offsets. Raises ApiError if it is unknown, has members or cannot be deleted."""
        group = self.find(group_id, allow_empty_id=True)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} does not exist")
        if not group.is_empty:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members")
        offsets = group.offsets
        partitions = list(offsets.committed.keys() | offsets.pending.keys())
        self.delete_offsets(group, partitions, why="a client requested it")

    def delete_offsets(
        self,
        group: AnyGroup,
        partitions: Sequence[TopicPartition],
        why: str = "neither members nor offsets were left",
    ) -> None:
        """Delete offsets by appending tombstones. Delete the group too if it is empty and has no other offsets.

        Does not wait for replicas. If a tombstone cannot be appended, raises ApiError; the group stays as it is.
        """
        offsets = group.offsets
        remaining = (offsets.committed.keys() | offsets.pending.keys()) - set(partitions)
        deletes_group = group.is_empty and not remaining
        records = [offset_tombstone(group.group_id, *partition) for partition in partitions]
        if deletes_group:
            records += deletion_records(group)
        log_offset = 0
        try:
            for start in range(0, len(records), TOMBSTONES_PER_BATCH):
                batch = records[start : start + TOMBSTONES_PER_BATCH]
                appended = self.store.begin_append(group.group_id, batch, acks=ACKS_LEADER)
                log_offset = appended.first_offset
        except ApiError as error:
            raise translate_error(error, GROUP_ERROR_CODES) from error
        offsets.remove(partitions, log_offset)
        self.commits.notify_completion(offsets)
        if deletes_group:
            self.record(group, GroupChange("deleted", why))
            self.end(group, ErrorCode.UNKNOWN_MEMBER_ID)

    # ---- events and effects

    def apply(
        self,
        group: Group,
        event_function: Callable[Concatenate[GroupTransition, P], R],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> R:
        """Run an event function of group_events.py, execute its effects and return its result."""
        transition = GroupTransition(group, self.config, self.clock.now_ms())
        result = event_function(transition, *arguments, **options)
        self.execute_effects(transition)
        return result

    def handle_request(
        self, group: Group, event_function: Callable[[GroupTransition, E, Ticket], None], event: E
    ) -> Any:
        """Run an event function that answers a ticket. Return the response or a future of it."""
        self.last_ticket += 1
        ticket = Ticket(self.last_ticket)
        future = self.waiting[ticket] = asyncio.get_running_loop().create_future()
        self.apply(group, event_function, event, ticket)
        return future.result() if future.done() else future

    def execute_effects(self, transition: GroupTransition) -> None:
        group = transition.group
        for effect in transition.effects:
            if isinstance(effect, SetTimer):
                self.timers.set(group, effect.timer, effect.delay_ms / 1000)
            elif isinstance(effect, Answer):
                future = self.waiting.pop(effect.ticket)
                if not future.done():  # a disconnected client cancels its future
                    future.set_result(effect.response)
            elif isinstance(effect, StoreGroup):
                self.store_group(group, effect)
            else:
                self.timers.cancel(group, effect.timer)
        for event, facts in transition.log_events:
            logger.info(
                "%s group=%s generation=%d %s", event, group.group_id, group.generation, facts
            )
        for change in transition.changes:
            self.record(group, change)

    def record(self, group: AnyGroup, change: GroupChange) -> None:
        """Record a change in the history, if there is one."""
        if self.recorder is None:
            return
        facts = {
            "coordinator_epoch": self.store.coordinator_epoch(group.group_id),
            "protocol": "classic" if isinstance(group, Group) else "consumer",
            "generation": group.generation if isinstance(group, Group) else group.epoch,
            "members": len(group.members),
            **change._asdict(),
        }
        self.recorder.record_group(group.group_id, facts)

    def expire_timer(self, group: AnyGroup, timer: Timer) -> None:
        if isinstance(group, ConsumerGroup):
            self.consumers.expire_timer(group, timer)
            return
        self.apply(group, group_events.expire_timer, timer)

    def store_group(self, group: Group, effect: StoreGroup) -> None:
        record = group_metadata_record(group.group_id, effect.snapshot)
        try:
            appended = self.store.begin_append(group.group_id, [record])
        except ApiError as error:
            # Deferred, since the effects of the current event are not all executed yet.
            asyncio.get_running_loop().call_soon(self.finish_store, group, effect, error)
        else:
            name = f"store-group-{group.group_id}"
            self.tasks.start(name, self.wait_until_replicated(group, effect, appended))

    async def wait_until_replicated(
        self, group: Group, effect: StoreGroup, appended: AppendResult
    ) -> None:
        # Stays set on an unexpected exception, so that the members get an error instead of waiting.
        error: ApiError | None = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            await self.store.wait_for(appended)
            error = None
        except ApiError as api_error:
            error = api_error
        finally:
            self.finish_store(group, effect, error)

    def finish_store(self, group: Group, effect: StoreGroup, error: ApiError | None) -> None:
        if group.state is GroupState.DEAD:
            return
        code = ErrorCode.NONE
        if error is not None:
            error = translate_error(error, GROUP_ERROR_CODES)
            code = error.code
            logger.warning("cannot store group=%s error=%s", group.group_id, error)
        self.apply(group, group_events.finish_store, effect, code)


def deletion_records(group: AnyGroup) -> list[KeyValue]:
    """Return the tombstones of a group without members. A classic group of generation 0 has no record."""
    if isinstance(group, ConsumerGroup):
        return [encode_consumer_record(each) for each in group.tombstones()]
    return [group_tombstone(group.group_id)] if group.generation > 0 else []
