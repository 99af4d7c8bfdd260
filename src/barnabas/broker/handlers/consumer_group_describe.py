"""ConsumerGroupDescribe: the state and the members of groups of the new consumer protocol.

Other groups get GROUP_ID_NOT_FOUND; tools then send DescribeGroups. All groups get UNSUPPORTED_VERSION if
group.coordinator.rebalance.protocols does not contain `consumer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.consumer_group import ConsumerGroup, ConsumerMember
from barnabas.groups.consumer_records import NO_PARTITIONS, Assignment, to_topics
from barnabas.security.acl.model import Operation, ResourceType
from barnabas.wire.consumer_protocol import PROTOCOL_TYPE
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMember,
    DescribedConsumerGroup,
    MemberAssignment,
    MemberTopicPartitions,
)
from barnabas.wire.messages.metadata import NO_OPERATIONS


def handle(
    context: BrokerContext,
    request: ConsumerGroupDescribeRequest,
    _: RequestHeader,
    connection: Connection,
) -> Work[ConsumerGroupDescribeResponse]:
    is_enabled = PROTOCOL_TYPE in context.config.group_coordinator_rebalance_protocols
    access = context.security.access
    found: dict[str, DescribedConsumerGroup] = {}
    groups = []
    for group_id in request.group_ids:
        if group_id not in found:
            operations = NO_OPERATIONS
            if request.include_authorized_operations:
                operations = access.authorized_operations(connection, ResourceType.GROUP, group_id)
            denial = ErrorCode.NONE if is_enabled else ErrorCode.UNSUPPORTED_VERSION
            if is_enabled and not access.allows_group(connection, Operation.DESCRIBE, group_id):
                denial = ErrorCode.GROUP_AUTHORIZATION_FAILED
            found[group_id] = (
                (yield from describe_consumer_group(context, group_id, operations))
                if denial is ErrorCode.NONE
                else DescribedConsumerGroup(denial, None, group_id)
            )
        groups.append(found[group_id])
        yield None
    return ConsumerGroupDescribeResponse(groups=tuple(groups))


def describe_consumer_group(
    context: BrokerContext, group_id: str, operations: int
) -> Work[DescribedConsumerGroup]:
    """Describe the group as it is now. Yields after each member: the group may change meanwhile."""
    try:
        group = context.groups.find(group_id)
    except ApiError as error:
        return DescribedConsumerGroup(error.code, None, group_id)
    if not isinstance(group, ConsumerGroup):
        problem = "there is no group of the new consumer protocol with this id"
        return DescribedConsumerGroup(ErrorCode.GROUP_ID_NOT_FOUND, problem, group_id)
    described = DescribedConsumerGroup(
        ErrorCode.NONE,
        None,
        group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        authorized_operations=operations,
    )
    targets = [
        (member, group.targets.get(member_id, NO_PARTITIONS))
        for member_id, member in group.members.items()
    ]
    members = []
    for member, target in targets:
        members.append(describe_consumer(member, target, context.metadata.names))
        yield None
    return described._replace(members=tuple(members))


def describe_consumer(
    member: ConsumerMember, target: Assignment, names: Mapping[UUID, str]
) -> ConsumerGroupMember:
    return ConsumerGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.subscribed_topics)),
        subscribed_topic_regex=member.subscribed_regex,
        assignment=describe_assignment(member.assigned, names),
        target_assignment=describe_assignment(target, names),
    )


def describe_assignment(assignment: Assignment, names: Mapping[UUID, str]) -> MemberAssignment:
    """Return the partitions of the topics that exist."""
    return MemberAssignment(
        tuple(
            MemberTopicPartitions(topic_id, names[topic_id], partitions)
            for topic_id, partitions in to_topics(assignment)
            if topic_id in names
        )
    )
