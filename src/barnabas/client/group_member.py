"""One member's standing in its group, without the socket: what to ask the coordinator next, and what its answers mean.

    OUT ── JoinGroup ──► JOINED ── SyncGroup ──► IN ── Heartbeat ──► IN
     ▲                     │                     │
     └─────────────────────┴─────────────────────┘   the group rebalances, or has forgotten this member

JoinGroup is answered when all members have joined, or had the time to; the one that the answer names leader shares out
the partitions and brings the result with its SyncGroup. Who is OUT after having been IN still reads what it had: when
it gives that up is for the owner of this object to decide. `is_forgotten` says that it is too late for giving up, and
for committing: the coordinator gives these partitions to others already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto

from barnabas.client.core import raise_if
from barnabas.client.group_assignors import ASSIGNORS, Candidate, Counts, flat, grouped
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import TopicPartition
from barnabas.wire.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
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


class Standing(Enum):
    OUT = auto()
    JOINED = auto()
    """A generation was made with this member in it; its assignment is yet to come."""
    IN = auto()


class Member:
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
        self.standing = Standing.OUT
        self.is_leader = False
        self.is_forgotten = False
        self.assignor = ""
        self.keeps_assignment = False
        """The group goes on with the assignment it has: the leader is to make none."""
        self.others: tuple[JoinGroupResponseMember, ...] = ()

    # ---- join -----------------------------------------------------------------------------------------------------

    def join(self, owned: Iterable[TopicPartition], reason: str = "") -> JoinGroupRequest:
        self.is_forgotten = False
        subscription = encode_subscription(
            Subscription(
                topics=self.topics,
                owned_partitions=grouped(owned),
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
            reason=reason or None,
        )

    def on_join(self, response: JoinGroupResponse) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return
        if self.fell_out(response.error_code):
            return
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.assignor = response.protocol_name or ""
        self.is_leader = response.leader == response.member_id
        self.keeps_assignment = response.skip_assignment
        self.others = response.members
        self.standing = Standing.JOINED

    @property
    def topics_of_all(self) -> set[str]:
        """What the leader has to know the partitions of, before it can share them out."""
        return {topic for each in self.candidates() for topic in each.subscription.topics}

    def candidates(self) -> list[Candidate]:
        found = []
        for member_id, instance_id, metadata in self.others:
            try:
                said = decode_subscription(metadata)
            except RemoteWireError as error:
                why = f"member {member_id} of group {self.group_id}: {error}"
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why) from None
            found.append(Candidate(member_id, said, instance_id))
        return found

    # ---- sync -----------------------------------------------------------------------------------------------------

    def sync(self, counts: Counts) -> SyncGroupRequest:
        """`counts` is of interest to the leader alone."""
        decides = self.is_leader and not self.keeps_assignment
        shares = ASSIGNORS[self.assignor](self.candidates(), counts) if decides else {}
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.assignor,
            assignments=tuple(
                SyncGroupRequestAssignment(
                    member, encode_assignment(Assignment(grouped(partitions)))
                )
                for member, partitions in shares.items()
            ),
        )

    def on_sync(self, response: SyncGroupResponse) -> list[TopicPartition]:
        """What this member is to read; it counts if the member is IN then."""
        if self.fell_out(response.error_code):
            return []
        try:
            given = decode_assignment(response.assignment)
        except RemoteWireError as error:
            why = f"the leader of group {self.group_id} sent an assignment that cannot be read: {error}"
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why) from None
        self.standing = Standing.IN
        return flat(given.assigned_partitions)

    # ---- stay, or leave -------------------------------------------------------------------------------------------

    def heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id
        )

    def on_heartbeat(self, response: HeartbeatResponse) -> None:
        self.fell_out(response.error_code)

    def rejoin(self) -> None:
        """For a reason of this member's own."""
        self.standing = Standing.OUT

    def leave(self, reason: str) -> LeaveGroupRequest:
        return LeaveGroupRequest(
            group_id=self.group_id, members=(MemberIdentity(self.member_id, None, reason),)
        )

    def fell_out(self, code: int) -> bool:
        """Whether the answer means "join again". Errors that joining again does not cure are raised."""
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.standing = Standing.OUT
            return True
        if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            self.forget(keep_id=code == ErrorCode.ILLEGAL_GENERATION)
            return True
        raise_if(code, f"group {self.group_id}")
        return False

    def forget(self, *, keep_id: bool) -> None:
        self.standing = Standing.OUT
        self.is_forgotten = True
        self.generation = NO_GENERATION
        if not keep_id:
            self.member_id = ""
