from __future__ import annotations

from math import lcm

import pytest

from barnabas.cli.topics.alter import altered_document, altered_text, keys_moved_percent, warning
from barnabas.cli.topics.delete import deleted_document, deleted_text, is_another, on_dead_brokers
from barnabas.client.view import PartitionView, TopicView
from barnabas.model import BrokerId


@pytest.mark.parametrize(("before", "after"), [(1, 2), (3, 4), (3, 6), (6, 9), (10, 12)])
def test_how_many_keys_move_is_what_counting_them_gives(before: int, after: int) -> None:
    hashes = range(lcm(before, after))
    moved = sum(value % before != value % after for value in hashes)
    assert keys_moved_percent(before, after) == round(100 * moved / len(hashes))


def test_growing_is_told_with_what_it_does_to_keys() -> None:
    document = altered_document("orders", 3, 4, dry_run=False)
    assert altered_text(document) == "altered topic orders: 4 partitions, 3 before"
    assert " ".join(warning(document).split()).startswith("warning: 75 of 100 keys go to another")
    dry = altered_document("orders", 3, 4, dry_run=True)
    assert altered_text(dry) == "would alter topic orders: 4 partitions, 3 before"
    assert (dry["altered"], document["altered"]) == (False, True)


def test_a_deletion_says_who_keeps_something() -> None:
    left_on = {"orders": [], "clicks": [2], "views": [2, 3]}
    names = ("orders", "clicks", "views", "none")
    told = deleted_text(deleted_document(names, left_on, dry_run=False))
    assert max(map(len, told.splitlines())) <= 100
    words = " ".join(told.split())
    assert words.startswith(
        "deleted topic orders deleted topic clicks; broker 2 still has replicas"
    )
    assert "brokers 2 and 3 still have replicas of it, to be deleted when they are back" in words
    assert words.endswith("there is no topic none")
    dry = " ".join(deleted_text(deleted_document(names, left_on, dry_run=True)).split())
    assert "would delete topic clicks; broker 2 is not alive: it would wait for that" in dry


def test_replicas_on_brokers_that_are_gone_are_known_from_the_assignment() -> None:
    def partition(number: int, *replicas: int) -> PartitionView:
        return PartitionView(
            partition=number, leader=BrokerId(1), leader_epoch=0, replicas=replicas, isr=(1,)
        )

    orders = TopicView(name="orders", partitions=(partition(0, 1, 2), partition(1, 1, 4)))
    alone = TopicView(name="alone", partitions=(partition(0, 1),))
    assert on_dead_brokers([orders, alone], {1: None}) == {"orders": [2, 4], "alone": []}
    assert not is_another(None, orders)
    assert not is_another(orders, orders)
