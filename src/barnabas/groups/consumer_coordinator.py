"""Groups of the new consumer protocol on one broker: executes what consumer_events.py and classic_members.py decide.

    request, expired timer ─► decision: records, timers, response
                                 └─► append the records ─► apply them to the group ─► replicated ─► send the response

If the records cannot be appended, the group stays as it is, and the client retries. A response without records waits
for earlier records of its group, so that a client never learns a state that a failover could undo.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar
from uuid import UUID

from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ErrorCode, LocalWireError
from barnabas.groups.classic_members import (
    handle_classic_heartbeat,
    handle_classic_join,
    handle_classic_leave,
    handle_classic_sync,
)
from barnabas.groups.consumer_events import (
    ConsumerTransition,
    EnsureTimer,
    HeartbeatEvent,
    expire_consumer_timer,
    handle_consumer_heartbeat,
    start_consumer_sessions,
)
from barnabas.groups.consumer_group import ConsumerGroup, ConsumerGroupState
from barnabas.groups.consumer_records import (
    ConsumerRecord,
    SubscribedTopic,
    encode_consumer_record,
)
from barnabas.groups.coordinator_timers import AnyGroup, Timers
from barnabas.groups.group import Group
from barnabas.groups.group_changes import GroupChange
from barnabas.groups.group_events import JoinEvent, SyncEvent
from barnabas.groups.group_transition import CancelTimer, Timer, join_error_response, session_timer
from barnabas.groups.heartbeat_checks import JOIN_EPOCH, check_heartbeat
from barnabas.groups.migration import Upgrade, can_downgrade, can_upgrade, downgrade, upgrade
from barnabas.groups.records import KeyValue
from barnabas.groups.store import GROUP_ERROR_CODES, AppendResult, GroupStore, translate_error
from barnabas.model import ZERO_ID
from barnabas.tasks import Tasks
from barnabas.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupResponse
from barnabas.world.ports import Clock

logger = logging.getLogger("barnabas.groups")

R = TypeVar("R")

HEARTBEAT_ERROR_CODES = GROUP_ERROR_CODES | {
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE
}
"""Error code of a failed append → error code of ConsumerGroupHeartbeat."""


class GroupTable(Protocol):
    """The groups of a broker in both protocols, as GroupCoordinator has them."""

    config: BrokerConfig
    store: GroupStore
    clock: Clock
    groups: dict[str, AnyGroup]
    timers: Timers
    tasks: Tasks

    def find(self, group_id: str, *, allow_empty_id: bool = False) -> AnyGroup | None: ...

    def add(self, group: AnyGroup, partition: int) -> None: ...

    def replace(self, before: AnyGroup, after: AnyGroup) -> None: ...

    def restart_group(self, group: Group, reason: str) -> None: ...

    def record(self, group: AnyGroup, change: GroupChange) -> None: ...

    def new_uuid(self) -> UUID: ...


class ConsumerCoordinator:
    def __init__(self, coordinator: GroupTable) -> None:
        self.coordinator = coordinator
        self.store = coordinator.store
        self.config = coordinator.config
        self.pending: dict[ConsumerGroup, asyncio.Future[ErrorCode]] = {}
        """Result of the last append of each group, while it is being replicated."""

    def find_topic(self, name: str) -> SubscribedTopic | None:
        """Return an existing topic. Without racks: no assignor uses them, and a failed broker would change them."""
        topic = self.store.metadata.topics.get(name)
        if topic is None or topic.topic_id == ZERO_ID:
            return None
        return SubscribedTopic(topic.topic_id, topic.name, len(topic.partitions))

    # ---- requests of members of the new protocol

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
        try:
            before = self.coordinator.find(request.group_id, allow_empty_id=True)
            check_heartbeat(request)
            group, records = self.find_or_upgrade(before, request)
            event = HeartbeatEvent(
                request, str(self.coordinator.new_uuid()), client_id, client_host
            )
            transition = self.begin(group)
            response = handle_consumer_heartbeat(transition, event)
            self.execute(transition, records, before)
        except ApiError as error:
            return heartbeat_error_response(error.code, error.message)
        return self.respond(
            group,
            response,
            lambda code: heartbeat_error_response(code, None),
            HEARTBEAT_ERROR_CODES,
        )

    def find_or_upgrade(
        self, group: AnyGroup | None, request: ConsumerGroupHeartbeatRequest
    ) -> Upgrade:
        """Return the group of the request, which may be new, and the records that create it."""
        is_join = request.member_epoch == JOIN_EPOCH
        if isinstance(group, ConsumerGroup):
            return Upgrade(group, [])
        if group is None and is_join:
            return Upgrade(ConsumerGroup(group_id=request.group_id), [])
        if group is not None and is_join and can_upgrade(group, self.config):
            return upgrade(group, self.config, self.find_topic)
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"no consumer-protocol group {request.group_id!r}"
        )

    # ---- requests of classic members

    def join(
        self, group: ConsumerGroup, event: JoinEvent
    ) -> JoinGroupResponse | asyncio.Future[JoinGroupResponse]:
        transition = self.begin(group)
        try:
            response = handle_classic_join(transition, event)
            self.execute(transition)
        except ApiError as error:
            return join_error_response(error.code, event.member_id)
        return self.respond(
            group, response, lambda code: join_error_response(code, event.member_id)
        )

    def sync(
        self, group: ConsumerGroup, event: SyncEvent
    ) -> SyncGroupResponse | asyncio.Future[SyncGroupResponse]:
        transition = self.begin(group)
        try:
            response = handle_classic_sync(transition, event)
            self.execute(transition)
        except ApiError as error:
            return SyncGroupResponse(error_code=error.code)
        return self.respond(group, response, lambda code: SyncGroupResponse(error_code=code))

    def heartbeat_classic(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        transition = self.begin(group)
        try:
            code = handle_classic_heartbeat(transition, member_id, instance_id, generation)
            self.execute(transition)
        except ApiError as error:
            return error.code
        return code

    def leave(self, group: ConsumerGroup, members: Iterable[MemberIdentity]) -> list[ErrorCode]:
        """Remove members. Return one error code per member. Raises ApiError if the records cannot be appended."""
        transition = self.begin(group)
        codes = handle_classic_leave(transition, members)
        self.execute(transition)
        return codes

    # ---- timers and loading

    def start_sessions(self, group: ConsumerGroup) -> None:
        if group.members and group.state is not ConsumerGroupState.STABLE:
            group.rebalance_reason = "a new coordinator continues it"
        transition = self.begin(group)
        start_consumer_sessions(transition)
        self.execute(transition)

    def expire_timer(self, group: ConsumerGroup, timer: Timer) -> None:
        transition = self.begin(group)
        expire_consumer_timer(transition, timer)
        try:
            self.execute(transition)
        except ApiError as error:
            # The member stays until the timer expires again.
            logger.warning("cannot remove a member group=%s error=%s", group.group_id, error)
            retry_s = self.config.group_consumer_heartbeat_interval_ms / 1000
            self.coordinator.timers.set(group, timer, retry_s)

    # ---- decisions and their execution

    def begin(self, group: ConsumerGroup) -> ConsumerTransition:
        version = self.store.metadata.topics_version
        return ConsumerTransition(group, self.config, self.find_topic, version)

    def execute(
        self,
        transition: ConsumerTransition,
        records: Iterable[KeyValue] = (),
        before: AnyGroup | None = None,
    ) -> None:
        """Append the records, apply them to the group, and set its timers.

        `records` come first: they replace the group `before` by the one of the transition. Raises ApiError if the
        records cannot be appended. Then nothing has changed.
        """
        group = transition.group
        if transition.removed and can_downgrade(group, transition.removed, self.config):
            self.downgrade(group, transition)
            return
        appending = [*records, *encode_all(transition.records)]
        if appending:
            self.append(group, appending)
            for record in transition.records:
                group.apply(record)
            self.install(before, transition)
            self.record_changes(transition)
        if transition.has_checked_topics:
            group.topics_version = transition.topics_version
        timers = self.coordinator.timers
        for effect in transition.timers:
            if isinstance(effect, CancelTimer):
                timers.cancel(group, effect.timer)
            elif isinstance(effect, EnsureTimer):
                timers.set_if_stopped(group, effect.timer, effect.delay_ms / 1000)
            else:
                timers.set(group, effect.timer, effect.delay_ms / 1000)
        self.log(transition)

    def install(self, before: AnyGroup | None, transition: ConsumerTransition) -> None:
        """Put a new group into the table of groups."""
        coordinator, group = self.coordinator, transition.group
        if coordinator.groups.get(group.group_id) is group:
            return
        if before is None:
            coordinator.add(group, self.store.partition_for(group.group_id))
            return
        coordinator.replace(before, group)
        for member in group.members.values():
            if member.classic is not None:
                timeout_s = member.classic.session_timeout_ms / 1000
                coordinator.timers.set(group, session_timer(member.member_id), timeout_s)
        coordinator.record(group, GroupChange("migrated", transition.reason))
        logger.info("group migrated to the consumer protocol group=%s", group.group_id)

    def downgrade(self, group: ConsumerGroup, transition: ConsumerTransition) -> None:
        after, records = downgrade(group, transition.removed, self.coordinator.clock.now_ms())
        self.append(group, records)
        self.coordinator.replace(group, after)
        for change in [*transition.changes, GroupChange("migrated", transition.reason)]:
            self.coordinator.record(after, change)
        self.log(transition)
        logger.info("group migrated to the classic protocol group=%s", group.group_id)
        self.coordinator.restart_group(after, "migration to the classic protocol")

    def record_changes(self, transition: ConsumerTransition) -> None:
        """Record the changes of the event in the history, and whether it ends a rebalance."""
        group = transition.group
        for change in transition.changes:
            self.coordinator.record(group, change)
        group.rebalance_reason = group.rebalance_reason or transition.reason
        if not group.rebalance_reason:
            return
        if not group.members:
            self.coordinator.record(group, GroupChange("empty", transition.reason))
            group.rebalance_reason = ""
        elif group.state is ConsumerGroupState.STABLE:
            self.coordinator.record(group, GroupChange("rebalanced", group.rebalance_reason))
            group.rebalance_reason = ""

    def log(self, transition: ConsumerTransition) -> None:
        group = transition.group
        for event, facts in transition.log_events:
            logger.info("%s group=%s epoch=%d %s", event, group.group_id, group.epoch, facts)

    # ---- replication

    def append(self, group: ConsumerGroup, records: list[KeyValue]) -> None:
        try:
            appended = self.store.begin_append(group.group_id, records)
        except ApiError as error:
            raise translate_error(error, HEARTBEAT_ERROR_CODES) from error
        group.end_offset = appended.first_offset + len(records)
        self.start_wait(group, appended)

    def start_wait(self, group: ConsumerGroup, appended: AppendResult) -> None:
        if appended.waits:
            result = asyncio.get_running_loop().create_future()
            self.pending[group] = result
            name = f"store-group-{group.group_id}"
            self.coordinator.tasks.start(name, self.wait_until_replicated(group, appended, result))

    async def wait_until_replicated(
        self, group: ConsumerGroup, appended: AppendResult, result: asyncio.Future[ErrorCode]
    ) -> None:
        code = ErrorCode.NOT_COORDINATOR  # stays set if the broker is stopping
        try:
            await self.store.wait_for(appended)
            code = ErrorCode.NONE
        except ApiError as error:
            code = error.code
            logger.warning("cannot store group=%s error=%s", group.group_id, error)
        finally:
            result.set_result(code)
            if self.pending.get(group) is result:
                del self.pending[group]

    def respond(
        self,
        group: ConsumerGroup,
        response: R,
        error_response: Callable[[ErrorCode], R],
        codes: dict[ErrorCode, ErrorCode] = GROUP_ERROR_CODES,
    ) -> R | asyncio.Future[R]:
        """Return the response, or a future of it if records of the group are being replicated.

        That includes records of earlier requests whose wait timed out: the response may depend on them.
        """
        if group not in self.pending:
            try:
                self.start_wait(group, self.store.begin_wait(group.group_id, group.end_offset))
            except ApiError as error:
                return error_response(codes.get(error.code, error.code))
        pending = self.pending.get(group)
        if pending is None:
            return response
        later: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def finish(replicated: asyncio.Future[ErrorCode]) -> None:
            code = replicated.result()
            if not later.done():  # a disconnected client cancels its future
                later.set_result(
                    response if code is ErrorCode.NONE else error_response(codes.get(code, code))
                )

        pending.add_done_callback(finish)
        return later


def encode_all(records: Iterable[ConsumerRecord]) -> list[KeyValue]:
    """Encode records. Raises ApiError if a name is too long for a record: a request can have longer ones."""
    try:
        return [encode_consumer_record(each) for each in records]
    except LocalWireError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error


def heartbeat_error_response(
    code: ErrorCode, message: str | None
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message or None)
