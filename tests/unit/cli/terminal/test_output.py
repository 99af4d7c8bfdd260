from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.terminal.output import (
    OutputFormat,
    format_table,
    plural,
    print_lines,
    print_note,
    render,
    show_or_watch,
    to_json,
    to_yaml,
    wrap,
)


def test_table_aligns_numbers_right_without_trailing_blanks() -> None:
    assert format_table(["topic", "partitions", "state"], [["orders", 6, "ok"], ["a", 12, ""]]) == (
        "TOPIC   PARTITIONS  STATE\norders           6  ok\na               12"
    )


ROWS = [["t" * 249, "some reason", 1], ["short", "x" * 30, 22]]


@pytest.mark.parametrize("columns", [60, 100, 200])
def test_table_truncates_widest_column_to_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    page = format_table(["name", "why", "n"], ROWS)
    assert max(map(len, page.splitlines())) == columns
    assert "some reason" in page
    assert "…" in page


def test_table_in_a_pipe_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    page = format_table(["name", "why", "n"], ROWS)
    assert "t" * 249 in page
    assert "…" not in page


def test_sentences_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = "word " * 50
    assert max(map(len, wrap(text, indent=2).splitlines())) in range(95, 101)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert max(map(len, wrap(text, indent=2).splitlines())) in range(55, 61)


def test_table_escapes_control_characters() -> None:
    assert "\x1b" not in format_table(["a"], [["\x1b[2Jboo\nnew line"]])
    assert "\x1b" not in format_table(["\x1b[2J"], [["a"]])
    assert format_table(["a"], [["tab\t, \x9b, \u202e"]]).endswith("tab\\t, \\x9b, \\u202e")


def test_plural_formats_counts() -> None:
    assert plural(1, "record") == "1 record"
    assert plural(12_000, "record") == "12,000 records"


def test_document_renders_as_text_json_and_yaml() -> None:
    document = {"topics": [{"topic": "é", "partitions": 3}]}
    assert render(OutputFormat.TEXT, document, lambda _: "words") == "words"
    assert json.loads(render(OutputFormat.JSON, document, str)) == document
    assert render(OutputFormat.YAML, document, str) == 'topics:\n  - topic: "é"\n    partitions: 3'


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
def test_yaml_lines_are_printable(value: Any) -> None:
    assert all(line.isprintable() for line in to_yaml(value).split("\n"))


@given(plain)
def test_json_is_printable_and_exact(value: Any) -> None:
    text = to_json(value, indent=2)
    assert all(line.isprintable() for line in text.split("\n"))
    assert json.loads(text) == value


def test_numbers_that_are_not_finite_are_strings() -> None:
    value = {"a": [float("nan"), 1.5], "b": (float("inf"), -float("inf"))}
    expected = {"a": ["NaN", 1.5], "b": ["Infinity", "-Infinity"]}
    assert json.loads(to_json(value)) == expected
    assert to_yaml(float("nan")) == '"NaN"'


def test_watched_json_in_a_pipe_has_one_line_per_document(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    documents = iter([{"a": [1]}, {"a": [2]}])
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(StopIteration):
        show_or_watch(True, OutputFormat.JSON, lambda: next(documents), str)
    assert capsysbinary.readouterr().out == b'{"a": [1]}\n{"a": [2]}\n'


def test_yaml_escapes_control_characters() -> None:
    assert to_yaml("é\x9b\u202e\U000e0001") == '"é\\u009b\\u202e\\U000e0001"'


@pytest.mark.parametrize("output", OutputFormat)
def test_rendered_lines_are_printable(output: OutputFormat) -> None:
    hostile = "a\n\x1b[31m\x9b\u202e\u2028"
    document = {hostile: [{"group": hostile}]}
    page = render(output, document, lambda shown: f"{shown}\n{shown['a' + ESCAPED][0]['group']}")
    assert all(line.isprintable() for line in page.split("\n"))
    assert len(page.split("\n")) == {"text": 2, "json": 7, "yaml": 2}[output]


ESCAPED = "\\n\\x1b[31m\\x9b\\u202e\\u2028"


def test_say_and_note_print_one_line_per_argument(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    print_lines("a\nb", "c\td", keep="\t")
    print_note("a\nb\x1b", "c")
    out, err = capsysbinary.readouterr()
    assert (out, err) == (b"a\\nb\nc\td\n", b"a\\nb\\x1b\nc\n")
