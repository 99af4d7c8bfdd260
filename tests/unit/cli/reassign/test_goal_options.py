"""Options that name a goal, and the plan for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.reassign.goal_options import Goal, make_plan, parse_goal, read_plan_file
from barnabas.errors import ApiError, ConfigError
from tests.unit.reassignment.layouts import layout_of, tp

LAYOUT = layout_of("a-0 1,2 · b-0 1,2", brokers={1: "x", 2: "x", 3: "y"})


def goal(file: str | None = None, **given: Any) -> Goal:
    none: dict[str, Any] = {
        "balance": False, "brokers": (), "added": (), "drained": (), "replication_factor": None,
        "topics": (), "no_racks": False,
    }  # fmt: skip
    return parse_goal(file, **{**none, **given})


def test_exactly_one_goal_is_needed() -> None:
    assert goal(drained=(2,)).drained == (2,)
    for given in ({}, {"balance": True, "drained": (1,)}, {"brokers": (1,), "added": (2,)}):
        with pytest.raises(ConfigError, match="give exactly one of"):
            goal(**given)
    with pytest.raises(ConfigError, match="cannot be combined with a plan file"):
        goal("plan.json", topics=("a",))


def test_plan_is_limited_to_topics() -> None:
    plan = make_plan(LAYOUT, goal(replication_factor=3, topics=("a",)))
    assert list(plan.targets) == [tp("a-0")]
    assert len(plan.loads()) == 3


def test_unknown_topic_suggests_a_similar_one() -> None:
    layout = layout_of("orders-0 1,2")
    with pytest.raises(ApiError, match="there is no topic 'ordres'") as caught:
        make_plan(layout, goal(balance=True, topics=("ordres",)))
    assert caught.value.hint == "did you mean 'orders'?"  # type: ignore[attr-defined]


def test_racks_can_be_ignored() -> None:
    layout = layout_of("a-0 1,2", brokers={1: "x", 2: "x", 3: "y"})
    assert make_plan(layout, goal(balance=True)).targets == {tp("a-0"): (1, 3)}
    assert make_plan(layout, goal(balance=True, no_racks=True)).targets == {}


def test_plan_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text('{"partitions":[{"topic":"a","partition":0,"replicas":[3,2]}]}')
    assert make_plan(LAYOUT, goal(str(file))).targets == {tp("a-0"): (3, 2)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not a valid JSON"),
        ('{"partitions":[]}', "Partition reassignment list cannot be empty"),
        (
            '{"partitions":[{"topic":"a","partition":0,"replicas":[1],"log_dirs":["/x"]}]}',
            "names log directories",
        ),
    ],
)
def test_unusable_plan_file_is_wrong_usage(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_plan_file(str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_plan_file(str(tmp_path / "missing.json"))
