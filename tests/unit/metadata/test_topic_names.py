"""Valid topic names and name collisions."""

from __future__ import annotations

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.topic_names import TakenNames, check_topic_name


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249])
def test_valid_names_are_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "a\n", "é"])
def test_invalid_names_are_rejected(name: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_topic_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_dot_and_underscore_collide() -> None:
    taken = TakenNames(["a.b", "c"])
    taken.add("a_b")
    taken.add("a_b")
    assert taken.colliding_with("a.b") == ["a.b", "a_b"]
    assert taken.colliding_with("a_b.") == []
    assert taken.colliding_with("c") == [], "a name without dot and underscore cannot collide"
    assert "a_b" in taken
    assert "a-b" not in taken
