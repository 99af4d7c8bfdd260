from __future__ import annotations

from barnabas.cli.topics.delete import dead_holders, deleted_document, deleted_topics_text
from barnabas.client.view import PartitionView, TopicView
from barnabas.model import BrokerId


def test_deleted_text_names_brokers_with_remaining_replicas() -> None:
    left_on = {"orders": [], "clicks": [2], "views": [2, 3]}
    names = ("orders", "clicks", "views", "none")
    text = deleted_topics_text(deleted_document(names, left_on, dry_run=False))
    assert max(map(len, text.splitlines())) <= 100
    words = " ".join(text.split())
    assert words.startswith(
        "deleted topic orders deleted topic clicks; broker 2 still has replicas"
    )
    assert (
        "brokers 2 and 3 still have replicas of it, which are deleted when they are back" in words
    )
    assert words.endswith("there is no topic none")
    dry = " ".join(deleted_topics_text(deleted_document(names, left_on, dry_run=True)).split())
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
    assert dead_holders([orders, alone], {1: None}) == {"orders": [2, 4], "alone": []}
