"""Which names a topic may have, and which are taken."""

from __future__ import annotations

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.topic_names import TakenNames, check_topic_name


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249])
def test_legal_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "a\n", "é"])
def test_illegal_names(name: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_topic_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_dot_and_an_underscore_look_alike() -> None:
    taken = TakenNames(["a.b", "c"])
    taken.add("a_b")
    taken.add("a_b")
    assert taken.colliding_with("a.b") == ["a.b", "a_b"]
    assert taken.colliding_with("a_b.") == []
    assert taken.colliding_with("c") == [], "without either, there is nothing to take for the other"
    assert "a_b" in taken
    assert "a-b" not in taken
