"""Preferred leader rebalancing."""

from __future__ import annotations

from barnabas.controller.context import ControllerContext
from barnabas.controller.plans import find_unbalanced_partitions
from barnabas.model import BrokerEpoch, BrokerId, TopicPartition
from tests.unit.controller.cluster import broker, replica_assignment, state


def context(leaders: list[int]) -> ControllerContext:
    """Partitions with replicas [1, 2], each led by the given broker."""
    made = ControllerContext()
    for number in (1, 2):
        made.set_broker(broker(number), BrokerEpoch(number))
    made.add_topic("t")
    for index, leader in enumerate(leaders):
        partition = TopicPartition("t", index)
        made.set_assignment(partition, replica_assignment(1, 2))
        made.set_leadership(partition, state(leader, [1, 2]))
    return made


def test_imbalance_above_percentage_is_rebalanced() -> None:
    assert find_unbalanced_partitions(context([2] + [1] * 9), percentage=10) == ()
    found = find_unbalanced_partitions(context([2, 2] + [1] * 8), percentage=10)
    assert found == (TopicPartition("t", 0), TopicPartition("t", 1))


def test_preferred_replica_must_be_alive_and_in_sync() -> None:
    made = context([2, 2])
    made.set_leadership(TopicPartition("t", 0), state(2, [2]))
    assert find_unbalanced_partitions(made, percentage=10) == (TopicPartition("t", 1),)
    made.remove_brokers([BrokerId(1)])
    assert find_unbalanced_partitions(made, percentage=10) == ()


def test_deleted_and_reassigned_partitions_are_skipped() -> None:
    made = context([2, 2])
    made.partitions_being_reassigned[TopicPartition("t", 0)] = None
    assert find_unbalanced_partitions(made, percentage=10) == (TopicPartition("t", 1),)
    made.queue_topic_deletion(["t"])
    assert find_unbalanced_partitions(made, percentage=10) == ()
