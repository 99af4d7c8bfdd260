"""A hand-driven group member: it sends only what the test tells it to send."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Self

from barnabas.errors import ErrorCode
from barnabas.groups.store import partition_of
from barnabas.wire.apis import APIS
from barnabas.wire.consumer_protocol import ConsumerSubscription, encode_subscription
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from support.waiting import eventually
from tests.compatibility.raw import Raw

READS = encode_subscription(ConsumerSubscription(topics=("read",)))
RANGE = (JoinGroupRequestProtocol("range", READS),)


def wait_for_coordinator(raw: Raw, group: str) -> int:
    """Wait until the coordinator is available; returns its broker id."""
    ids: list[int] = []

    def is_available() -> bool:
        request = FindCoordinatorRequest(coordinator_keys=(group,))
        (found,) = raw.ask(request, FindCoordinatorResponse).coordinators
        ids[:] = [found.node_id]
        return not found.error_code

    eventually(is_available, "a group has a coordinator", seconds=30.0)
    return ids[0]


def wait_until_loaded(raw: Raw, *groups: str) -> None:
    """Wait until the coordinator has loaded these groups.

    For a while after election it returns COORDINATOR_LOAD_IN_PROGRESS.
    """
    request = DescribeGroupsRequest(groups=groups)
    for group in groups:
        wait_for_coordinator(raw, group)
    eventually(
        lambda: (
            not any(each.error_code for each in raw.ask(request, DescribeGroupsResponse).groups)
        ),
        f"{groups} are loaded",
        seconds=30.0,
    )


def one_group_per_partition(partitions: int) -> list[str]:
    """Group ids, one for each partition of __consumer_offsets."""
    found: dict[int, str] = {}
    for number in count():
        found.setdefault(partition_of(f"any-{number}", partitions), f"any-{number}")
        if len(found) == partitions:
            break
    return list(found.values())


class RawMember:
    """One member with its own connection. `version` is the JoinGroup version; other APIs use versions of that age."""

    def __init__(
        self, servers: str, group: str, *, instance: str | None = None, version: int = 9
    ) -> None:
        self.raw = Raw(servers)
        self.group = group
        self.instance = instance
        self.version = version
        self.member_id = ""
        self.generation = -1

    def version_of(self, key: int) -> int:
        return min(self.version, APIS[key].versions[-1])

    def begin_join(
        self,
        *,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        protocol_type: str = "consumer",
        protocols: tuple[JoinGroupRequestProtocol, ...] = RANGE,
    ) -> tuple[int, int]:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms if self.version else -1,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=protocol_type,
            protocols=protocols,
        )
        return self.raw.begin(request, self.version)

    def end_join(self, begun: tuple[int, int]) -> JoinGroupResponse:
        answer = self.raw.answer(JoinGroupResponse, *begun)
        if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
            self.generation = answer.generation_id
        return answer

    def begin_join_with_id(self, **options: object) -> tuple[int, int]:
        """Send the join that counts; since version 4 a new member first has to request its member id."""
        if not self.member_id and self.instance is None and self.version >= 4:
            refused = self.end_join(self.begin_join(**options))  # type: ignore[arg-type]
            assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return self.begin_join(**options)  # type: ignore[arg-type]

    def join(self, **options: object) -> JoinGroupResponse:
        return self.end_join(self.begin_join_with_id(**options))

    def begin_sync(
        self, assignments: Mapping[str, bytes] | None = None, *, generation: int | None = None
    ) -> tuple[int, int]:
        version = self.version_of(14)
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer" if version >= 5 else None,
            protocol_name="range" if version >= 5 else None,
            assignments=tuple(
                SyncGroupRequestAssignment(*each) for each in (assignments or {}).items()
            ),
        )
        return self.raw.begin(request, version)

    def end_sync(self, begun: tuple[int, int]) -> SyncGroupResponse:
        return self.raw.answer(SyncGroupResponse, *begun)

    def sync(self, assignments: Mapping[str, bytes] | None = None) -> SyncGroupResponse:
        return self.end_sync(self.begin_sync(assignments))

    def heartbeat(self, *, generation: int | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        answer = self.raw.ask(request, HeartbeatResponse, self.version_of(12))
        return ErrorCode(answer.error_code)

    def leave(self) -> ErrorCode:
        version = self.version_of(13)
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group, member_id=self.member_id)
            answer = self.raw.ask(request, LeaveGroupResponse, version)
            return ErrorCode(answer.error_code)
        who = MemberIdentity(self.member_id, self.instance)
        answer = self.raw.ask(
            LeaveGroupRequest(group_id=self.group, members=(who,)), LeaveGroupResponse, version
        )
        return ErrorCode(answer.error_code or answer.members[0].error_code)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.close()
