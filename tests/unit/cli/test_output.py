from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.output import Output, plural, render, table, to_yaml


def test_a_table_sets_numbers_to_the_right_and_ends_no_line_in_blanks() -> None:
    assert table(["topic", "partitions", "state"], [["orders", 6, "ok"], ["a", 12, ""]]) == (
        "TOPIC   PARTITIONS  STATE\norders           6  ok\na               12"
    )


def test_a_table_keeps_within_a_hundred_columns_by_cutting_the_widest() -> None:
    page = table(["name", "why", "n"], [["t" * 249, "some reason", 1], ["short", "x" * 30, 22]])
    assert max(map(len, page.splitlines())) == 100
    assert "some reason" in page
    assert "…" in page


def test_names_from_the_cluster_cannot_move_the_cursor() -> None:
    assert "\x1b" not in table(["a"], [["\x1b[2Jboo\nnew line"]])
    assert "\x1b" not in table(["\x1b[2J"], [["a"]])
    assert table(["a"], [["tab\t, \x9b, \u202e"]]).endswith("tab\\t, \\x9b, \\u202e")


def test_counts_read_well() -> None:
    assert plural(1, "record") == "1 record"
    assert plural(12_000, "record") == "12,000 records"


def test_one_document_has_three_faces() -> None:
    document = {"topics": [{"topic": "é", "partitions": 3}]}
    assert render(Output.TEXT, document, lambda _: "words") == "words"
    assert json.loads(render(Output.JSON, document, str)) == document
    assert render(Output.YAML, document, str) == 'topics:\n  - topic: "é"\n    partitions: 3'


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        (True, "true"),
        (-3, "-3"),
        ("plain words/and.dots", "plain words/and.dots"),
        ("", '""'),
        ("no", '"no"'),
        ("Null", '"Null"'),
        ("12", '"12"'),
        ("a: b", '"a: b"'),
        ("# no comment", '"# no comment"'),
        ("- no list", '"- no list"'),
        ("two\nlines", '"two\\nlines"'),
        ("\x85", '"\\u0085"'),
        ([], "[]"),
        ({}, "{}"),
        (
            {"a": [], "b": {"c": [1, [2, 3], {"d": None}]}},
            "a: []\nb:\n  c:\n    - 1\n    - - 2\n      - 3\n    - d: null",
        ),
    ],
)
def test_yaml_of_plain_data(value: Any, expected: str) -> None:
    assert to_yaml(value) == expected


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(plain)
def test_yaml_is_one_document_of_printable_lines(value: Any) -> None:
    text = to_yaml(value)
    assert all(
        line.isprintable() or any(ord(sign) > 0x9F for sign in line) for line in text.split("\n")
    )
