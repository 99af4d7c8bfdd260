"""Online migration of a group between the classic and the new consumer protocol.

    upgrade      a member of the new protocol joins a classic group: the other members become classic members of a
                 group of the new protocol, and keep their partitions
    downgrade    the last member of the new protocol leaves: the other members continue in a classic group,
                 and rebalance

`group.consumer.migration.policy` allows each direction. An empty group always changes to the protocol of the next
member that joins. Functions return the new group and the records that replace the old one. They do not change the old
one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from barnabas.config import BrokerConfig
from barnabas.errors import ApiError, ErrorCode, WireError
from barnabas.groups.classic_members import (
    encode_classic_assignment,
    read_subscription,
    to_classic_metadata,
)
from barnabas.groups.consumer_events import ConsumerTransition, FindTopic
from barnabas.groups.consumer_group import ConsumerGroup, ConsumerMember
from barnabas.groups.consumer_records import (
    NO_PARTITIONS,
    Assignment,
    ConsumerGroupEpochKey,
    ConsumerGroupEpochValue,
    TargetEpochKey,
    TargetEpochValue,
    encode_consumer_record,
)
from barnabas.groups.group import AssignmentProtocol, Group, GroupMember, GroupState
from barnabas.groups.records import KeyValue, group_metadata_record, group_tombstone
from barnabas.wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment

UPGRADE_POLICIES = ("upgrade", "bidirectional")
DOWNGRADE_POLICIES = ("downgrade", "bidirectional")


class Upgrade(NamedTuple):
    group: ConsumerGroup
    records: list[KeyValue]


class Downgrade(NamedTuple):
    group: Group
    records: list[KeyValue]


# ---- classic → consumer


def can_upgrade(group: Group, config: BrokerConfig) -> bool:
    return group.state is GroupState.EMPTY or (
        config.group_consumer_migration_policy in UPGRADE_POLICIES
        and group.protocol_type == PROTOCOL_TYPE
        and len(group.members) <= config.group_consumer_max_size
    )


def upgrade(group: Group, config: BrokerConfig, find_topic: FindTopic) -> Upgrade:
    """Return the group in the new protocol, with its offsets. Its epoch is the generation of the classic group.

    Raises ApiError with GROUP_ID_NOT_FOUND if the subscription or assignment of a member is invalid, or if a name does
    not fit into a record.
    """
    try:
        return convert_to_consumer_group(group, config, find_topic)
    except (ApiError, WireError) as error:
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"cannot migrate group {group.group_id!r} to the consumer protocol: {error}",
        ) from error


def convert_to_consumer_group(group: Group, config: BrokerConfig, find_topic: FindTopic) -> Upgrade:
    after = ConsumerGroup(group_id=group.group_id, offsets=group.offsets)
    records = [group_tombstone(group.group_id)]
    if not group.members:
        return Upgrade(after, records)
    transition = ConsumerTransition(after, config, find_topic)
    members = [upgrade_member(group, each, find_topic) for each in group.members.values()]
    for member in members:
        transition.add_member(member)
    transition.add(ConsumerGroupEpochKey(group.group_id), ConsumerGroupEpochValue(group.generation))
    for member in members:
        transition.add_target(member.member_id, member.assigned)
    transition.add(TargetEpochKey(group.group_id), TargetEpochValue(group.generation))
    for member in members:
        transition.add_current_assignment(member)
    for record in transition.records:
        after.apply(record)
        records.append(encode_consumer_record(record))
    return Upgrade(after, records)


def upgrade_member(group: Group, member: GroupMember, find_topic: FindTopic) -> ConsumerMember:
    # The protocol of the current generation comes first, because a classic member uses the first one from now on.
    protocols = tuple(sorted(member.protocols, key=lambda each: each.name != group.protocol))
    subscription = read_subscription(protocols)
    assigned: dict[UUID, frozenset[int]] = {}
    for name, partitions in decode_assignment(member.assignment).assigned_partitions:
        topic = find_topic(name)
        if topic is not None and partitions:
            assigned[topic.topic_id] = frozenset(partitions)
    return ConsumerMember(
        member_id=member.member_id,
        epoch=group.generation,
        previous_epoch=group.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_topics=frozenset(subscription.topics),
        assigned=assigned,
        classic=to_classic_metadata(member.session_timeout_ms, protocols),
    )


# ---- consumer → classic


def can_downgrade(group: ConsumerGroup, removed: Collection[str], config: BrokerConfig) -> bool:
    """Return whether only members of the classic protocol remain after the removal of some members."""
    remaining = [each for each in group.members.values() if each.member_id not in removed]
    return (
        bool(remaining)
        and all(each.classic is not None for each in remaining)
        and any(group.members[each].classic is None for each in removed if each in group.members)
        and config.group_consumer_migration_policy in DOWNGRADE_POLICIES
        and len(remaining) <= config.group_max_size
    )


def downgrade(group: ConsumerGroup, removed: Collection[str], now_ms: int) -> Downgrade:
    """Return a stable classic group with the remaining members, and with its offsets.

    Its generation is the epoch of the group. The caller starts a rebalance.
    """
    after = Group(
        group_id=group.group_id,
        state=GroupState.STABLE,
        state_since_ms=now_ms,
        generation=group.epoch,
        protocol_type=PROTOCOL_TYPE,
        offsets=group.offsets,
    )
    for member in group.members.values():
        if member.member_id not in removed:
            target = group.targets.get(member.member_id, NO_PARTITIONS)
            after.add(downgrade_member(group, member, target))
    after.protocol = after.choose_protocol()
    after.topics = after.decode_topics()
    records = [encode_consumer_record(each) for each in group.tombstones()]
    records.append(group_metadata_record(group.group_id, after.snapshot()))
    return Downgrade(after, records)


def downgrade_member(
    group: ConsumerGroup, member: ConsumerMember, target: Assignment
) -> GroupMember:
    classic = member.classic
    assert classic is not None
    protocols = tuple(AssignmentProtocol(*each) for each in classic.supported_protocols)
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=protocols,
        assignment=encode_classic_assignment(group, target, protocols[0].metadata),
    )
