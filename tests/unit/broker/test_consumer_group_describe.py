"""ConsumerGroupDescribe runs in turns: a large group does not block other requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from barnabas.broker.handlers import consumer_group_describe
from barnabas.groups.consumer_group import ConsumerGroup, ConsumerMember
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.wire.apis import ApiKey
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tests.unit.replication.nodes import NO_CONNECTION, Node, Nodes, eventually

ORDERS = UUID(int=7)
MEMBERS = 20


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    made = Nodes(Node(1, offsets_topic_num_partitions=1))
    await made.start()
    yield made[1]
    await made[1].context.lazy_groups.stop()
    await made.stop()


async def lead(node: Node) -> None:
    state = LeaderAndIsrPartitionState(
        partition_index=0, leader=1, leader_epoch=0, isr=(1,), replicas=(1,)
    )
    topic = LeaderAndIsrTopicState(CONSUMER_OFFSETS, uuid4(), (state,))
    await node.leader_and_isr(
        LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=(topic,))
    )
    await eventually(lambda: node.context.group_store.is_led(0))


async def test_group_is_described_as_it_was_at_the_first_member(node: Node) -> None:
    await lead(node)
    node.context.metadata.names[ORDERS] = "orders"
    group = ConsumerGroup(group_id="g", epoch=3, target_epoch=3)
    for at in range(MEMBERS):
        member = ConsumerMember(member_id=f"m{at}", epoch=3, assigned={ORDERS: frozenset({at})})
        group.put(member)
        group.targets[member.member_id] = member.assigned
    node.context.groups.add(group, 0)
    work = consumer_group_describe.handle(
        node.context,
        ConsumerGroupDescribeRequest(group_ids=("g",)),
        RequestHeader(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 0, None),
        NO_CONNECTION,
    )
    next(work)
    for at in range(MEMBERS):
        group.remove(f"m{at}")
    group.targets.clear()
    turns = 1
    response: ConsumerGroupDescribeResponse | None = None
    while response is None:
        try:
            next(work)
            turns += 1
        except StopIteration as end:
            response = end.value
    assert turns >= MEMBERS
    (described,) = response.groups
    assert (described.group_state, described.group_epoch) == ("Stable", 3)
    assert [each.member_id for each in described.members] == [f"m{at}" for at in range(MEMBERS)]
    for each in described.members:
        assert each.target_assignment == each.assignment
        assert [topic.topic_name for topic in each.assignment.topic_partitions] == ["orders"]
