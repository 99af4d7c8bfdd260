from __future__ import annotations

import click
import pytest

from barnabas.cli.groups.lookup import reject_if_active, unknown_group_error
from barnabas.cli.terminal.failure import explain
from barnabas.client.group_admin import GroupView, MemberView
from barnabas.errors import ApiError
from barnabas.model import TopicPartition


def partitions(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("orders", number) for number in numbers)


def group(state: str = "Stable", members: tuple[MemberView, ...] = ()) -> GroupView:
    return GroupView("billing", state, "consumer", "range", "h:9092", members)


ONE = MemberView("loader-0b8d1c77-aa", None, "loader", "10.0.0.7", partitions(0, 1, 3))


TWO = MemberView("loader-91e2f0aa-bb", None, "loader", "10.0.0.8", partitions(2))


def test_active_group_is_rejected_with_its_members() -> None:
    context = click.Context(click.Command("describe"))
    context.params = {"bootstrap_servers": "h:9092"}
    with context, pytest.raises(ApiError) as raised:
        reject_if_active(group(members=(ONE, TWO)), "not now")
    assert explain(raised.value).splitlines() == [
        "error: NON_EMPTY_GROUP: group billing is Stable with 2 members: not now",
        "hint:  stop its consumers (loader at 10.0.0.7, loader at 10.0.0.8), then run this again; "
        "`barnabas groups describe billing -b h:9092 --watch` shows the remaining members",
    ]


def test_empty_and_dead_groups_are_accepted() -> None:
    for state in ("Empty", "Dead"):
        reject_if_active(group(state), "not now")


def test_unknown_group_suggests_similar_name() -> None:
    assert explain(unknown_group_error("biling", ["billing", "other"])).splitlines() == [
        "error: GROUP_ID_NOT_FOUND: there is no group 'biling'",
        "hint:  did you mean 'billing'?",
    ]
    assert "barnabas groups list" in explain(unknown_group_error("x", []))
