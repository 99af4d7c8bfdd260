"""Admin client for consumer groups: list, describe and delete groups, read and set their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.core import error_of, raise_if
from barnabas.client.group_assignors import flatten
from barnabas.client.group_coordinator import ask_coordinator, find_coordinator
from barnabas.client.group_offsets import (
    RETENTION_VERSION,
    SINGLE_GROUP_VERSION,
    GroupOffset,
    commit_codes,
    offset_commit_request,
    offset_fetch_request,
    parse_committed_offsets,
    raise_commit_error,
)
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import TopicPartition
from barnabas.wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from barnabas.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMember,
)
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.wire.messages.offset_commit import OffsetCommitResponse
from barnabas.wire.messages.offset_fetch import OffsetFetchResponse

DEAD = "Dead"
"""The state that a coordinator reports for a group that does not exist."""
EMPTY = "Empty"
NO_CONSUMER_GROUP = (
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.UNSUPPORTED_VERSION,
)
"""Error codes of ConsumerGroupDescribe for a group that does not use the new consumer protocol."""


class MemberView(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    """Empty while the group rebalances, and for members that are not consumers."""


class GroupView(NamedTuple):
    """`assignor` is empty unless the group is Stable. `coordinator` is host:port."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: str
    members: tuple[MemberView, ...]

    @property
    def exists(self) -> bool:
        return self.state != DEAD

    @property
    def is_active(self) -> bool:
        return self.state not in (DEAD, EMPTY)


class GroupAdmin:
    """Admin client for groups. Methods raise ApiError."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def list_groups(self) -> list[ListedGroup]:
        """Return all groups, ordered by id. Each broker lists the groups it coordinates."""
        found: dict[str, ListedGroup] = {}

        def ask_all() -> None:
            for broker in sorted(self.cluster.refresh([]).brokers):
                response = self.cluster.connection(broker).exchange(
                    ListGroupsRequest(), ListGroupsResponse, timeout_s=self.cluster.timeout_s
                )
                raise_if(response.error_code, f"groups of broker {broker}")
                found.update((group.group_id, group) for group in response.groups)

        self.cluster.retry(ask_all, refresh=False)
        return [found[name] for name in sorted(found)]

    def describe_group(self, group_id: str) -> GroupView:
        """Describe a group. A group that does not exist has the state Dead."""
        response = ask_coordinator(
            self.cluster,
            group_id,
            DescribeGroupsRequest(groups=(group_id,)),
            DescribeGroupsResponse,
            codes=lambda answer: [group.error_code for group in answer.groups],
        )
        (group,) = response.groups
        raise_if(group.error_code, f"group {group_id}")
        host, port = find_coordinator(self.cluster, group_id)
        if group.group_state == DEAD:
            found = self.describe_consumer_group(group_id, coordinator=f"{host}:{port}")
            if found is not None:
                return found
        return GroupView(
            group_id=group.group_id,
            state=group.group_state,
            protocol_type=group.protocol_type,
            assignor=group.protocol_data,
            coordinator=f"{host}:{port}",
            members=tuple(
                sorted(
                    (member_view(each, group.protocol_type) for each in group.members),
                    key=lambda member: (member.client_id, member.member_id),
                )
            ),
        )

    def describe_consumer_group(self, group_id: str, *, coordinator: str) -> GroupView | None:
        """Describe a group of the new consumer protocol. None if it does not exist, or if brokers do not support it."""
        try:
            response = ask_coordinator(
                self.cluster,
                group_id,
                ConsumerGroupDescribeRequest(group_ids=(group_id,)),
                ConsumerGroupDescribeResponse,
                codes=lambda answer: [group.error_code for group in answer.groups],
            )
            (group,) = response.groups
            raise_if(group.error_code, f"group {group_id}")
        except ApiError as error:
            if error.code in NO_CONSUMER_GROUP:
                return None
            raise
        return GroupView(
            group_id=group.group_id,
            state=group.group_state,
            protocol_type=PROTOCOL_TYPE,
            assignor=group.assignor_name,
            coordinator=coordinator,
            members=tuple(
                sorted(
                    map(consumer_view, group.members),
                    key=lambda member: (member.client_id, member.member_id),
                )
            ),
        )

    def delete_groups(self, group_ids: Sequence[str]) -> dict[str, ApiError | None]:
        """Delete groups. Returns the error of each group, or None."""
        outcomes = {}
        for group_id in group_ids:
            response = ask_coordinator(
                self.cluster,
                group_id,
                DeleteGroupsRequest(groups_names=(group_id,)),
                DeleteGroupsResponse,
                codes=lambda answer: [result.error_code for result in answer.results],
            )
            (result,) = response.results
            outcomes[group_id] = error_of(result.error_code, f"group {group_id}")
        return outcomes

    def committed_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, GroupOffset]:
        """Return the committed offsets of these partitions, or of all. Partitions without an offset are left out."""
        response = ask_coordinator(
            self.cluster,
            group_id,
            offset_fetch_request(group_id, partitions, require_stable=False),
            OffsetFetchResponse,
            codes=lambda answer: [answer.error_code],
            max_version=SINGLE_GROUP_VERSION,
        )
        return parse_committed_offsets(response, group_id)

    def set_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        metadata: str = "",
        retention_ms: int | None = None,
    ) -> None:
        """Set offsets of a group without members. Raises ApiError for the first partition that was rejected.

        They expire after `retention_ms`. None means `offsets.retention.minutes` of the brokers.
        """
        response = ask_coordinator(
            self.cluster,
            group_id,
            offset_commit_request(
                group_id,
                offsets,
                metadata=metadata,
                retention_ms=-1 if retention_ms is None else retention_ms,
            ),
            OffsetCommitResponse,
            codes=commit_codes,
            max_version=None if retention_ms is None else RETENTION_VERSION,
        )
        raise_commit_error(response)


def member_view(member: DescribedGroupMember, protocol_type: str) -> MemberView:
    partitions: list[TopicPartition] = []
    if protocol_type == PROTOCOL_TYPE:
        try:
            partitions = flatten(decode_assignment(member.member_assignment).assigned_partitions)
        except RemoteWireError:
            # The format is up to the client. The rest of the group can still be described.
            partitions = []
    return MemberView(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host.removeprefix("/"),
        partitions=tuple(sorted(partitions)),
    )


def consumer_view(member: ConsumerGroupMember) -> MemberView:
    """Return a member of the new consumer protocol, with the partitions that it has, not those that it will get."""
    return MemberView(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host.removeprefix("/"),
        partitions=tuple(
            sorted(
                TopicPartition(topic.topic_name, partition)
                for topic in member.assignment.topic_partitions
                for partition in topic.partitions
            )
        ),
    )
