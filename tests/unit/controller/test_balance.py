"""When leadership goes back to preferred replicas."""

from __future__ import annotations

from barnabas.controller.balance import find_unbalanced_partitions
from barnabas.controller.context import ControllerContext
from barnabas.model import BrokerEpoch, BrokerId, TopicPartition
from tests.unit.controller.cluster import broker, held, state


def context(leaders: list[int]) -> ControllerContext:
    """Partitions of [1, 2], each led by one of them."""
    made = ControllerContext()
    for number in (1, 2):
        made.set_broker(broker(number), BrokerEpoch(number))
    made.add_topic("t")
    for index, leader in enumerate(leaders):
        partition = TopicPartition("t", index)
        made.set_assignment(partition, held(1, 2))
        made.set_leadership(partition, state(leader, [1, 2]))
    return made


def test_a_tenth_is_not_too_much_but_more_is() -> None:
    assert find_unbalanced_partitions(context([2] + [1] * 9), percentage=10) == ()
    found = find_unbalanced_partitions(context([2, 2] + [1] * 8), percentage=10)
    assert found == (TopicPartition("t", 0), TopicPartition("t", 1))


def test_who_is_not_in_sync_or_not_there_gets_nothing_back() -> None:
    made = context([2, 2])
    made.set_leadership(TopicPartition("t", 0), state(2, [2]))
    assert find_unbalanced_partitions(made, percentage=10) == (TopicPartition("t", 1),)
    made.remove_brokers([BrokerId(1)])
    assert find_unbalanced_partitions(made, percentage=10) == ()


def test_what_is_deleted_or_moved_is_left_alone() -> None:
    made = context([2, 2])
    made.partitions_being_reassigned[TopicPartition("t", 0)] = None
    assert find_unbalanced_partitions(made, percentage=10) == (TopicPartition("t", 1),)
    made.queue_topic_deletion(["t"])
    assert find_unbalanced_partitions(made, percentage=10) == ()
