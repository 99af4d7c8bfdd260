from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.printable import json_escapes, printable

any_text = st.text(st.characters(codec=None, exclude_categories=()))
"""Includes lone surrogates."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", "orders"),
        ("größe-数量-заказы-طلبات-हिन्दी-한국어 😀 a̱", "größe-数量-заказы-طلبات-हिन्दी-한국어 😀 a̱"),
        ("a\nb\rc\td", "a\\nb\\rc\\td"),
        ("\x00\x07\x1b[31m\x7f", "\\x00\\x07\\x1b[31m\\x7f"),
        ("\x85\x9b31m", "\\x85\\x9b31m"),
        ("\u200e\u200f\u202a\u202e\u2066\u2069", "\\u200e\\u200f\\u202a\\u202e\\u2066\\u2069"),
        ("\u200b\u2028\u2029\ufeff", "\\u200b\\u2028\\u2029\\ufeff"),
        ("\U000e0001", "\\U000e0001"),
        ("\ud800", "\\ud800"),
        ("\udcff", "\\xff"),
        ("back\\slash", "back\\slash"),
        ("", ""),
    ],
)
def test_control_and_format_characters_are_escaped(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_invalid_utf8_bytes_are_escaped() -> None:
    assert printable("é".encode() + b"\xff\x1b") == "é\\xff\\x1b"


@given(any_text)
def test_result_is_one_printable_line(text: str) -> None:
    line = printable(text)
    assert line.isprintable()
    assert line.splitlines() in ([], [line])
    line.encode()


@given(st.binary())
def test_bytes_become_one_printable_line(content: bytes) -> None:
    assert printable(content).isprintable()


@given(st.text(st.characters(categories=["L", "M", "N", "P", "S"])))
def test_ordinary_text_of_any_script_is_kept(text: str) -> None:
    assert printable(text) == text


@given(any_text)
def test_printable_is_idempotent(text: str) -> None:
    assert printable(printable(text)) == printable(text)


@given(any_text, any_text)
def test_escaping_parts_equals_escaping_the_whole(one: str, other: str) -> None:
    assert printable(one) + printable(other) == printable(one + other)


def test_long_text_is_truncated_with_length_of_rest() -> None:
    assert printable("x" * 256, limit=256) == "x" * 256
    assert printable("x" * 32_000, limit=256) == "x" * 256 + "…(+31744)"
    assert printable("\n" * 10, limit=2) == "\\n\\n…(+8)"


def test_kept_characters_are_not_escaped() -> None:
    assert printable("a\tb\n\x1b", keep="\t\n") == "a\tb\n\\x1b"


@given(st.recursive(any_text, lambda inner: st.lists(inner) | st.dictionaries(any_text, inner)))
def test_json_text_is_printable_and_equal(value: object) -> None:
    text = json_escapes(json.dumps(value, ensure_ascii=False, indent=1))
    assert all(line.isprintable() for line in text.split("\n"))
    assert json.loads(text) == json.loads(json.dumps(value))
