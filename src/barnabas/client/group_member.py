"""The state of one group member, without the socket: its next request, and the handling of responses.

    UNJOINED ── JoinGroup ──► JOINED ── SyncGroup ──► STABLE ── Heartbeat ──► STABLE
       ▲                        │                        │
       └────────────────────────┴────────────────────────┘   the group rebalances, or has removed this member

The coordinator answers JoinGroup when all members have joined, or after the rebalance timeout. It makes one member the
leader, which sends all assignments with its SyncGroup. A member that becomes UNJOINED still owns its partitions. The
caller decides when to revoke them. If `has_lost_partitions` is set, it is too late to commit: the coordinator may have
assigned the partitions to other members already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto

from barnabas.client.core import raise_if
from barnabas.client.group_assignors import (
    ASSIGNORS,
    MemberSubscription,
    PartitionCounts,
    flatten,
    to_topic_partitions,
)
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import TopicPartition
from barnabas.wire.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerAssignment,
    ConsumerSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from barnabas.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

NO_GENERATION = -1


class MemberState(Enum):
    UNJOINED = auto()
    JOINED = auto()
    """Member of the current generation, without an assignment yet."""
    STABLE = auto()


class GroupMembership:
    """Builds the requests of one member and handles the responses. `on_…` methods raise ApiError."""

    def __init__(
        self,
        group_id: str,
        topics: Iterable[str],
        *,
        assignors: Sequence[str],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        self.group_id = group_id
        self.topics = tuple(sorted(set(topics)))
        self.assignors = assignors
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = ""
        self.generation = NO_GENERATION
        self.state = MemberState.UNJOINED
        self.is_leader = False
        self.has_lost_partitions = False
        self.assignor = ""
        self.skip_assignment = False
        """The group keeps its assignment: the leader must not send one."""
        self.members: tuple[JoinGroupResponseMember, ...] = ()

    # ---- join -----------------------------------------------------------------------------------------------------

    def join(self, owned: Iterable[TopicPartition]) -> JoinGroupRequest:
        self.has_lost_partitions = False
        subscription = encode_subscription(
            ConsumerSubscription(
                topics=self.topics,
                owned_partitions=to_topic_partitions(owned),
                generation_id=self.generation,
            )
        )
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=tuple(
                JoinGroupRequestProtocol(name, subscription) for name in self.assignors
            ),
        )

    def on_join(self, response: JoinGroupResponse) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return
        if self.handle_error(response.error_code):
            return
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.assignor = response.protocol_name or ""
        self.is_leader = response.leader == response.member_id
        self.skip_assignment = response.skip_assignment
        self.members = response.members
        self.state = MemberState.JOINED

    @property
    def group_topics(self) -> set[str]:
        """All topics that members subscribe to. The leader needs their partition counts."""
        return {topic for each in self.subscriptions() for topic in each.subscription.topics}

    def subscriptions(self) -> list[MemberSubscription]:
        found = []
        for member_id, instance_id, metadata in self.members:
            try:
                subscription = decode_subscription(metadata)
            except RemoteWireError as error:
                why = f"member {member_id} of group {self.group_id}: {error}"
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why) from None
            found.append(MemberSubscription(member_id, subscription, instance_id))
        return found

    # ---- sync -----------------------------------------------------------------------------------------------------

    def sync(self, counts: PartitionCounts) -> SyncGroupRequest:
        """Build the SyncGroup request. Only the leader uses `counts`."""
        must_assign = self.is_leader and not self.skip_assignment
        assignments = ASSIGNORS[self.assignor](self.subscriptions(), counts) if must_assign else {}
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.assignor,
            assignments=tuple(
                SyncGroupRequestAssignment(
                    member, encode_assignment(ConsumerAssignment(to_topic_partitions(partitions)))
                )
                for member, partitions in assignments.items()
            ),
        )

    def on_sync(self, response: SyncGroupResponse) -> list[TopicPartition]:
        """Return this member's assignment. It is valid only if the member is STABLE afterwards."""
        if self.handle_error(response.error_code):
            return []
        try:
            assignment = decode_assignment(response.assignment)
        except RemoteWireError as error:
            why = f"the leader of group {self.group_id} sent an invalid assignment: {error}"
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why) from None
        self.state = MemberState.STABLE
        return flatten(assignment.assigned_partitions)

    # ---- heartbeat and leave --------------------------------------------------------------------------------------

    def heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id
        )

    def on_heartbeat(self, response: HeartbeatResponse) -> None:
        self.handle_error(response.error_code)

    def rejoin(self) -> None:
        """Make the next request a JoinGroup, to start a rebalance."""
        self.state = MemberState.UNJOINED

    def leave(self, reason: str) -> LeaveGroupRequest:
        return LeaveGroupRequest(
            group_id=self.group_id, members=(MemberIdentity(self.member_id, None, reason),)
        )

    def handle_error(self, code: int) -> bool:
        """Return whether the member must join again. Raises ApiError for errors that rejoining does not solve."""
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.state = MemberState.UNJOINED
            return True
        if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            self.reset_generation(keep_id=code == ErrorCode.ILLEGAL_GENERATION)
            return True
        raise_if(code, f"group {self.group_id}")
        return False

    def reset_generation(self, *, keep_id: bool) -> None:
        """Leave the generation and lose all partitions. The member id is kept if the coordinator still knows it."""
        self.state = MemberState.UNJOINED
        self.has_lost_partitions = True
        self.generation = NO_GENERATION
        if not keep_id:
            self.member_id = ""
