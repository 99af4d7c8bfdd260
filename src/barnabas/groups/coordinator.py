"""Group coordinator of one broker. It passes events to groups and executes their effects.

    request, expired timer, completed append ─► group_events.py (pure) ─► responses, timers, appends to the log

A request that has to wait is a future and is resolved once. A lost connection does not change the group: a member that
waits for a rebalance stays a member until its session expires.

Groups are loaded when this broker starts to lead their partition of __consumer_offsets, and dropped when it stops:
`add_loaded_group`, `drop_partition`.
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
from barnabas.groups.coordinator_timers import Timers
from barnabas.groups.group import Group, GroupState, Ticket
from barnabas.groups.group_events import JoinEvent, SyncEvent
from barnabas.groups.group_transition import (
    Answer,
    GroupTransition,
    SetTimer,
    StoreGroup,
    Timer,
    join_error_response,
)
from barnabas.groups.records import group_metadata_record, group_tombstone, offset_tombstone
from barnabas.groups.store import (
    ACKS_LEADER,
    GROUP_ERROR_CODES,
    AppendResult,
    GroupStore,
    translate_error,
)
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
        self, *, config: BrokerConfig, store: GroupStore, clock: Clock, random: Random
    ) -> None:
        self.config = config
        self.store = store
        self.clock = clock
        self.random = random
        self.groups: dict[str, Group] = {}
        self.partitions: dict[str, int] = {}
        """Partition of __consumer_offsets by group id. Kept here since the topic may be deleted before its groups."""
        self.timers = Timers(self.expire_timer)
        self.waiting: dict[Ticket, asyncio.Future[Any]] = {}
        """Requests without a response."""
        self.last_ticket = 0
        self.commits = PendingCommits(store)
        self.tasks = Tasks()
        self.is_stopping = False

    # ---- groups of this broker

    def find(self, group_id: str, *, may_be_empty: bool = False) -> Group | None:
        """Return the group, or None. Raises ApiError unless this broker coordinates it.

        `may_be_empty` allows the empty group id.
        """
        if not group_id and not may_be_empty:
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

    def find_or_create(self, group_id: str, *, may_be_empty: bool = False) -> Group:
        """Return the group, or create an empty one, as for a consumer that commits without being a member."""
        group = self.find(group_id, may_be_empty=may_be_empty)
        if group is None:
            group = Group(group_id=group_id, state_since_ms=self.clock.now_ms())
            self.add(group, self.store.partition_for(group_id))
        return group

    def add(self, group: Group, partition: int) -> None:
        self.groups[group.group_id] = group
        self.partitions[group.group_id] = partition

    def add_loaded_group(self, group: Group, partition: int) -> None:
        """Add a group that was loaded from the log, and start the sessions of its members."""
        self.add(group, partition)
        self.apply(group, group_events.start_sessions)

    def drop_partition(self, partition: int) -> None:
        """Drop the groups of a partition that this broker no longer leads."""
        for group_id in [each for each, of in self.partitions.items() if of == partition]:
            self.end(self.groups[group_id], ErrorCode.NOT_COORDINATOR)

    def end(self, group: Group, code: ErrorCode) -> None:
        """Remove the group from memory, and answer its waiting requests with `code`."""
        del self.groups[group.group_id], self.partitions[group.group_id]
        self.apply(group, group_events.end_group, code)
        self.timers.cancel_all(group)

    async def stop(self) -> None:
        self.is_stopping = True
        for group in list(self.groups.values()):
            self.end(group, ErrorCode.NOT_COORDINATOR)
        await self.tasks.stop()
        await self.commits.tasks.stop()

    # ---- requests of members

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
        if group is None:
            if event.member_id:
                return join_error_response(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id)
            group = self.find_or_create(group_id)
        name = event.client_id if event.instance_id is None else event.instance_id
        new_id = UUID(int=self.random.getrandbits(128), version=4)
        with_id = event._replace(new_member_id=f"{name}-{new_id}")
        answer: JoinGroupResponse | asyncio.Future[JoinGroupResponse] = self.request_response(
            group, group_events.handle_join, with_id
        )
        return answer

    def sync(
        self, group_id: str, event: SyncEvent
    ) -> SyncGroupResponse | asyncio.Future[SyncGroupResponse]:
        try:
            group = self.find(group_id)
        except ApiError as error:
            # A rebalance is lost while the group is loaded, so the member must rejoin. Old clients do not handle
            # COORDINATOR_LOAD_IN_PROGRESS in SyncGroup.
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            code = ErrorCode.REBALANCE_IN_PROGRESS if is_loading else error.code
            return SyncGroupResponse(error_code=code)
        if group is None:
            return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        answer: SyncGroupResponse | asyncio.Future[SyncGroupResponse] = self.request_response(
            group, group_events.handle_sync, event
        )
        return answer

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        try:
            group = self.find(group_id)
        except ApiError as error:
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.NONE if is_loading else error.code
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self.apply(group, group_events.handle_heartbeat, member_id, instance_id, generation)

    def restart_session(self, group: Group, member_id: str) -> None:
        """Restart the session of a member after a request other than a heartbeat."""
        member = group.members.get(member_id)
        if member is not None:
            self.apply(group, GroupTransition.restart_session, member)

    def leave(self, group_id: str, members: Iterable[MemberIdentity]) -> list[ErrorCode]:
        """Return one error code per member. Raises ApiError if this broker does not coordinate the group."""
        group = self.find(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID for _ in members]
        return self.apply(group, group_events.handle_leave, members)

    def delete(self, group_id: str) -> None:
        """Delete the group and its offsets. Raises ApiError if it has members or cannot be deleted."""
        group = self.find(group_id, may_be_empty=True)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} does not exist")
        if group.state is not GroupState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members")
        offsets = group.offsets
        self.delete_offsets(group, list(offsets.committed.keys() | offsets.pending.keys()))

    def delete_offsets(self, group: Group, partitions: Sequence[TopicPartition]) -> None:
        """Delete offsets by appending tombstones. Delete the group too if it is empty and has no other offsets.

        Does not wait for replicas. Raises ApiError if a tombstone cannot be written; then the group is unchanged here.
        """
        offsets = group.offsets
        left = (offsets.committed.keys() | offsets.pending.keys()) - set(partitions)
        is_last = group.state is GroupState.EMPTY and not left
        records = [offset_tombstone(group.group_id, *partition) for partition in partitions]
        if is_last and group.generation > 0:
            records.append(group_tombstone(group.group_id))
        written_at = 0
        try:
            for start in range(0, len(records), TOMBSTONES_PER_BATCH):
                some = records[start : start + TOMBSTONES_PER_BATCH]
                appended = self.store.begin_append(group.group_id, some, acks=ACKS_LEADER)
                written_at = appended.first_offset
        except ApiError as error:
            raise translate_error(error, GROUP_ERROR_CODES) from error
        offsets.remove(partitions, written_at)
        if is_last:
            self.end(group, ErrorCode.UNKNOWN_MEMBER_ID)

    # ---- events and effects

    def apply(
        self,
        group: Group,
        event: Callable[Concatenate[GroupTransition, P], R],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> R:
        """Run one event function on the group and execute its effects."""
        transition = GroupTransition(group, self.config, self.clock.now_ms())
        result = event(transition, *arguments, **options)
        self.execute_effects(transition)
        return result

    def request_response(
        self, group: Group, event: Callable[[GroupTransition, E, Ticket], None], request: E
    ) -> Any:
        """Run an event function that answers a ticket. Return the response or a future of it."""
        self.last_ticket += 1
        ticket = Ticket(self.last_ticket)
        future = self.waiting[ticket] = asyncio.get_running_loop().create_future()
        self.apply(group, event, request, ticket)
        return future.result() if future.done() else future

    def execute_effects(self, transition: GroupTransition) -> None:
        group = transition.group
        for effect in transition.effects:
            if isinstance(effect, SetTimer):
                self.timers.set(group, effect.timer, effect.delay_ms / 1000)
            elif isinstance(effect, Answer):
                future = self.waiting.pop(effect.ticket)
                if not future.done():  # it is cancelled when the client disconnects
                    future.set_result(effect.response)
            elif isinstance(effect, StoreGroup):
                self.store_group(group, effect)
            else:
                self.timers.cancel(group, effect.timer)
        for event, facts in transition.log_events:
            logger.info(
                "%s group=%s generation=%d %s", event, group.group_id, group.generation, facts
            )

    def expire_timer(self, group: Group, timer: Timer) -> None:
        self.apply(group, group_events.expire_timer, timer)

    def store_group(self, group: Group, store: StoreGroup) -> None:
        record = group_metadata_record(group.group_id, store.snapshot)
        try:
            appended = self.store.begin_append(group.group_id, [record])
        except ApiError as error:
            # Deferred, since the effects of the current event are not all executed yet.
            asyncio.get_running_loop().call_soon(self.finish_store, group, store, error)
        else:
            name = f"store-group-{group.group_id}"
            self.tasks.start(name, self.wait_until_replicated(group, store, appended))

    async def wait_until_replicated(
        self, group: Group, store: StoreGroup, appended: AppendResult
    ) -> None:
        # Stays set on an unexpected exception, so that the members get an error instead of waiting.
        error: ApiError | None = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            await self.store.wait_for(appended)
            error = None
        except ApiError as api_error:
            error = api_error
        finally:
            self.finish_store(group, store, error)

    def finish_store(self, group: Group, store: StoreGroup, error: ApiError | None) -> None:
        if group.state is GroupState.DEAD:
            return
        code = ErrorCode.NONE
        if error is not None:
            error = translate_error(error, GROUP_ERROR_CODES)
            code = error.code
            logger.warning("cannot store group=%s error=%s", group.group_id, error)
        self.apply(group, group_events.finish_store, store, code)
