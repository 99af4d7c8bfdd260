"""Preview of an expansion."""

from __future__ import annotations

from fractions import Fraction
from math import lcm

from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.topics.expansion import (
    group_facts,
    is_reader,
    moved_share,
    preview_document,
    preview_text,
)
from barnabas.client.group_admin import GroupView, MemberView
from barnabas.client.partitioner import partition_of_key
from barnabas.model import TopicPartition

ORDERS = (TopicPartition("orders", 0), TopicPartition("orders", 1))


def group(
    state: str = "Stable",
    *,
    protocol: str = "consumer",
    partitions: tuple[TopicPartition, ...] = ORDERS,
) -> GroupView:
    members = (
        (MemberView("m-1", None, "loader", "10.0.0.7", partitions),) if state == "Stable" else ()
    )
    return GroupView("billing", state, protocol, "range", "localhost:9092", members)


@given(st.integers(1, 40), st.integers(1, 40))
def test_share_is_exact_for_equally_frequent_hashes(before: int, added: int) -> None:
    after = before + added
    hashes = range(lcm(before, after))
    moved = sum(value % before != value % after for value in hashes)
    assert moved_share(before, after) == Fraction(moved, len(hashes))


def test_share_is_that_of_the_default_partitioner() -> None:
    keys = [f"key-{number}".encode() for number in range(20_000)]
    moved = sum(partition_of_key(key, 6) != partition_of_key(key, 10) for key in keys)
    assert abs(moved / len(keys) - float(moved_share(6, 10))) < 0.02


def test_group_with_members_needs_no_restart() -> None:
    facts = group_facts(group(), "orders", 2)
    assert facts["needs_restart"] is False
    assert facts["clients"] == ["loader at 10.0.0.7"]
    assert "metadata.max.age.ms" in facts["discovers_partitions"]


def test_stopped_group_misses_all_records_until_it_starts() -> None:
    facts = group_facts(group("Empty"), "orders", 2)
    assert facts["reader"] == "stopped"
    assert facts["with_latest"] == (
        "misses all records that are written to new partitions before it starts again"
    )


def test_group_without_protocol_may_list_its_partitions() -> None:
    facts = group_facts(group("Empty", protocol=""), "orders", 2)
    assert facts["needs_restart"] is None
    assert (
        "if they list their partitions: after a change and a restart"
        in facts["discovers_partitions"]
    )


def test_only_groups_of_the_topic_are_readers() -> None:
    other = (TopicPartition("other", 0),)
    assert is_reader(group(), (), "orders")
    assert is_reader(group("Empty"), ORDERS, "orders")
    assert not is_reader(group(partitions=other), other, "orders")


def test_preview_lists_groups_and_assumptions() -> None:
    text = preview_text(preview_document(3, 4, [group_facts(group(), "orders", 2)]))
    assert text.startswith("keys: 3/4 (75 %) of the keys map to another partition")
    assert "  billing: Stable, 1 member (loader at 10.0.0.7), offsets for 2 partitions\n" in text
    assert "with auto.offset.reset=latest it misses records that are written" in text
    assert "assumed:" in text
    assert all(len(line) <= 100 for line in text.split("\n"))


def test_preview_says_that_groups_could_not_be_read() -> None:
    assert "groups: could not be read" in preview_text(preview_document(3, 6, None))
    assert "groups: none reads this topic" in preview_text(preview_document(3, 6, []))
