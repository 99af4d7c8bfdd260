from __future__ import annotations

from barnabas.cli.topics.delete import dead_holders, deleted_document, deleted_topics_text
from barnabas.client.view import PartitionView, TopicView
from barnabas.model import BrokerId


def test_deleted_text_names_brokers_with_remaining_replicas() -> None:
    topics = [TopicView(name=name, partitions=()) for name in ("orders", "clicks", "views", "slow")]
    left_on = {"clicks": [2], "views": [2, 3], "slow": []}
    names = ("orders", "clicks", "views", "slow", "none")
    text = deleted_topics_text(deleted_document(names, topics, left_on, dry_run=False))
    assert max(map(len, text.splitlines())) <= 100
    words = " ".join(text.split())
    assert words.startswith(
        "deleted topic orders topic clicks is marked for deletion, but not deleted yet: broker 2 still has replicas"
    )
    assert "brokers 2 and 3 still have replicas of it. They are deleted when they are back" in words
    assert "topic slow is marked for deletion, but the controller has not deleted it yet" in words
    assert words.endswith("there is no topic none")
    document = deleted_document(names, topics, left_on, dry_run=True)
    dry = " ".join(deleted_topics_text(document).split())
    assert dry.startswith("would delete topic orders would delete topic clicks; broker 2")
    assert (
        "would delete topic clicks; broker 2 is not alive: replicas there would be deleted later"
        in dry
    )


def test_replicas_on_dead_brokers_come_from_assignment() -> None:
    def partition(number: int, *replicas: int) -> PartitionView:
        return PartitionView(
            partition=number, leader=BrokerId(1), leader_epoch=0, replicas=replicas, isr=(1,)
        )

    orders = TopicView(name="orders", partitions=(partition(0, 1, 2), partition(1, 1, 4)))
    alone = TopicView(name="alone", partitions=(partition(0, 1),))
    assert dead_holders([orders, alone], {1: None}) == {"orders": [2, 4]}
