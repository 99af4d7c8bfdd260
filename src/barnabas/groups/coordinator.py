"""The groups that this broker coordinates: it carries out what their turns decide.

    request, timer, word of the log ─► Turn (group_events.py, pure) ─► answers, timers, appends to __consumer_offsets

A request that has to wait is a future. It is answered once; that nobody listens any more, since the connection is lost,
changes nothing for the group: whoever waits for a rebalance is a member of it until its session is over.

Groups come with the partitions of __consumer_offsets that this broker begins to lead, and go with them: `take`, `drop`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups import group_events
from barnabas.groups.commits import CommitsUnderWay
from barnabas.groups.coordinator_timers import Timers
from barnabas.groups.group import Group, GroupState, Ticket
from barnabas.groups.group_events import Join, Sync
from barnabas.groups.group_turn import (
    AnswerJoin,
    AnswerSync,
    GroupLimits,
    SetTimer,
    StoreGroup,
    Timer,
    Turn,
    refused_join,
)
from barnabas.groups.loading import LoadedGroup
from barnabas.groups.records import group_metadata_record, group_tombstone, offset_tombstone
from barnabas.groups.store import LEADER_ALONE, OF_GROUPS, GroupStore, translated
from barnabas.model import TopicPartition
from barnabas.tasks import Tasks
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupResponse
from barnabas.world.ports import Clock

logger = logging.getLogger("barnabas.groups")

R = TypeVar("R")

TOMBSTONES_PER_BATCH = 1000


class GroupCoordinator:
    """One for each broker. Everything that is not a coroutine is done when it returns."""

    def __init__(
        self, *, config: BrokerConfig, store: GroupStore, clock: Clock, random: Random
    ) -> None:
        self.limits = GroupLimits(
            session_timeout_ms_min=config.group_min_session_timeout_ms,
            session_timeout_ms_max=config.group_max_session_timeout_ms,
            members_max=config.group_max_size,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        )
        self.store = store
        self.clock = clock
        self.random = random
        self.groups: dict[str, Group] = {}
        self.partitions: dict[str, int] = {}
        """Of __consumer_offsets, for each group: also when the topic is gone, it is known what goes with it."""
        self.timers = Timers(self.timer_ended)
        self.waiting: dict[Ticket, asyncio.Future[Any]] = {}
        self.tickets = 0
        self.commits = CommitsUnderWay(store)
        self.tasks = Tasks()
        self.is_stopping = False

    # ---- which groups are here

    def check(self, group_id: str, *, may_be_empty: bool = False) -> None:
        if not group_id and not may_be_empty:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group must have a name")
        if self.is_stopping:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        partition = self.store.partition_for(group_id)
        if self.store.is_loading(partition):
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"group {group_id!r}")
        if not self.store.is_led(partition):
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"of group {group_id!r}")

    def find(self, group_id: str, *, may_be_empty: bool = False) -> Group | None:
        """ApiError: INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR."""
        self.check(group_id, may_be_empty=may_be_empty)
        return self.groups.get(group_id)

    def find_or_make(self, group_id: str, *, may_be_empty: bool = False) -> Group:
        """A new one is empty. Where nobody ever joins, it keeps the offsets of those who assign for themselves."""
        group = self.find(group_id, may_be_empty=may_be_empty)
        if group is None:
            group = Group(group_id=group_id, state_since_ms=self.clock.now_ms())
            self.add(group, self.store.partition_for(group_id))
        return group

    def add(self, group: Group, partition: int) -> None:
        self.groups[group.group_id] = group
        self.partitions[group.group_id] = partition

    def take(self, partition: int, groups: Iterable[LoadedGroup]) -> None:
        """They stood in the log. Whoever is a member has one session's time to be heard of."""
        now_ms = self.clock.now_ms()
        for loaded in groups:
            group = Group.restored(loaded.group_id, loaded.snapshot, loaded.offsets, now_ms)
            self.add(group, partition)
            self.turn(group, group_events.loaded)

    def drop(self, partition: int) -> None:
        """Another broker coordinates them by now, or nobody does."""
        for group_id in [each for each, of in self.partitions.items() if of == partition]:
            self.end(self.groups[group_id], ErrorCode.NOT_COORDINATOR)

    def remove(self, group: Group) -> None:
        """Nothing is left of it in the log."""
        self.end(group, ErrorCode.UNKNOWN_MEMBER_ID)

    def end(self, group: Group, code: ErrorCode) -> None:
        del self.groups[group.group_id], self.partitions[group.group_id]
        self.turn(group, lambda turn: group_events.ended(turn, code))
        self.timers.cancel_all(group)

    async def stop(self) -> None:
        self.is_stopping = True
        for group in list(self.groups.values()):
            self.end(group, ErrorCode.NOT_COORDINATOR)
        await self.tasks.stop()
        await self.commits.stop()

    # ---- what members ask for

    def join(
        self, group_id: str, wish: Join
    ) -> JoinGroupResponse | asyncio.Future[JoinGroupResponse]:
        try:
            group = self.find(group_id)
        except ApiError as error:
            return refused_join(error.code, wish.member_id)
        limits = self.limits
        if not (
            limits.session_timeout_ms_min
            <= wish.session_timeout_ms
            <= limits.session_timeout_ms_max
        ):
            return refused_join(ErrorCode.INVALID_SESSION_TIMEOUT, wish.member_id)
        if group is None:
            if wish.member_id:
                return refused_join(ErrorCode.UNKNOWN_MEMBER_ID, wish.member_id)
            group = self.find_or_make(group_id)
        name = wish.client_id if wish.instance_id is None else wish.instance_id
        with_id = wish._replace(new_member_id=f"{name}-{self.random_id()}")
        answer: JoinGroupResponse | asyncio.Future[JoinGroupResponse] = self.answer_to(
            group, lambda turn, ticket: group_events.join(turn, with_id, ticket)
        )
        return answer

    def sync(
        self, group_id: str, wish: Sync
    ) -> SyncGroupResponse | asyncio.Future[SyncGroupResponse]:
        try:
            group = self.find(group_id)
        except ApiError as error:
            # While it is being read, the rebalance that was going on is lost: the member is to join again. Old clients
            # would not understand that they should wait.
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            code = ErrorCode.REBALANCE_IN_PROGRESS if is_loading else error.code
            return SyncGroupResponse(error_code=code)
        if group is None:
            return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        answer: SyncGroupResponse | asyncio.Future[SyncGroupResponse] = self.answer_to(
            group, lambda turn, ticket: group_events.sync(turn, wish, ticket)
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
        return self.turn(
            group, lambda turn: group_events.heartbeat(turn, member_id, instance_id, generation)
        )

    def heard_from(self, group: Group, member_id: str) -> None:
        """A member has shown that it is there by something else than a heartbeat."""
        member = group.members.get(member_id)
        if member is not None:
            self.turn(group, lambda turn: turn.restart_session(member))

    def leave(self, group_id: str, members: Iterable[MemberIdentity]) -> list[ErrorCode]:
        """One code for each of them. ApiError: none was looked at."""
        group = self.find(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID for _ in members]

        def leave_all(turn: Turn) -> list[ErrorCode]:
            return [
                group_events.leave(
                    turn,
                    each.member_id,
                    each.group_instance_id,
                    each.reason or group_events.NO_REASON,
                )
                for each in members
            ]

        return self.turn(group, leave_all)

    def delete(self, group_id: str) -> None:
        """Forget the group and its offsets. ApiError: it stays as it was."""
        group = self.find(group_id, may_be_empty=True)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        if group.state is not GroupState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members")
        offsets = group.offsets
        self.forget(group, list(offsets.committed.keys() | offsets.pending.keys()))

    def forget(self, group: Group, partitions: Sequence[TopicPartition]) -> None:
        """Delete these offsets, and the group if it is empty and has no others. Appends their tombstones.

        ApiError if a tombstone cannot be written: then nothing has changed. Waits for no follower: another coordinator
        would delete the same.
        """
        offsets = group.offsets
        left = (offsets.committed.keys() | offsets.pending.keys()) - set(partitions)
        is_over = group.state is GroupState.EMPTY and not left
        records = [offset_tombstone(group.group_id, *partition) for partition in partitions]
        if is_over and group.generation > 0:
            records.append(group_tombstone(group.group_id))
        written_at = 0
        try:
            for start in range(0, len(records), TOMBSTONES_PER_BATCH):
                some = records[start : start + TOMBSTONES_PER_BATCH]
                appended = self.store.begin_append(group.group_id, some, acks=LEADER_ALONE)
                written_at = appended.first_offset
        except ApiError as error:
            raise translated(error, OF_GROUPS) from error
        offsets.remove(partitions, written_at)
        if is_over:
            self.remove(group)

    # ---- turns

    def turn(self, group: Group, event: Callable[[Turn], R]) -> R:
        turn = Turn(group, self.limits, self.clock.now_ms())
        result = event(turn)
        self.carry_out(turn)
        return result

    def answer_to(self, group: Group, event: Callable[[Turn, Ticket], None]) -> Any:
        """The response, or a future of it."""
        self.tickets += 1
        ticket = Ticket(self.tickets)
        future = self.waiting[ticket] = asyncio.get_running_loop().create_future()
        self.turn(group, lambda turn: event(turn, ticket))
        return future.result() if future.done() else future

    def carry_out(self, turn: Turn) -> None:
        group = turn.group
        for effect in turn.effects:
            if isinstance(effect, SetTimer):
                self.timers.set(group, effect.timer, effect.delay_ms / 1000)
            elif isinstance(effect, (AnswerJoin, AnswerSync)):
                future = self.waiting.pop(effect.ticket)
                if not future.done():  # it is cancelled when its connection is lost
                    future.set_result(effect.response)
            elif isinstance(effect, StoreGroup):
                self.store_group(group, effect)
            else:
                self.timers.cancel(group, effect.timer)
        for note in turn.notes:
            logger.info("group=%s generation=%d %s", group.group_id, group.generation, note)

    def timer_ended(self, group: Group, timer: Timer) -> None:
        self.turn(group, lambda turn: group_events.timer_ended(turn, timer))

    def store_group(self, group: Group, store: StoreGroup) -> None:
        record = group_metadata_record(store.snapshot)
        try:
            copied = self.store.append(group.group_id, [record])
        except ApiError as error:
            # Not at once: the turn that asked for it is not carried out yet.
            asyncio.get_running_loop().call_soon(self.stored, group, store, error)
        else:
            name = f"store-group-{group.group_id}"
            self.tasks.start(name, self.wait_until_copied(group, store, copied))

    async def wait_until_copied(
        self, group: Group, store: StoreGroup, copied: Awaitable[int]
    ) -> None:
        # What nobody expects is told, too: members wait for a word.
        error: ApiError | None = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            await copied
            error = None
        except ApiError as refusal:
            error = refusal
        finally:
            self.stored(group, store, error)

    def stored(self, group: Group, store: StoreGroup, error: ApiError | None) -> None:
        if group.state is GroupState.DEAD:
            return
        code = ErrorCode.NONE
        if error is not None:
            code = error.code
            logger.warning("group not stored group=%s error=%s", group.group_id, error)
        self.turn(group, lambda turn: group_events.stored(turn, store, code))

    def random_id(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)
