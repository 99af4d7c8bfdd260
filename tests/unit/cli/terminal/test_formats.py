from __future__ import annotations

import json

import pytest

from barnabas.cli.terminal.formats import (
    compile_filter,
    compile_format,
    record_document,
    unescape_bytes,
)
from barnabas.client.consumer import ConsumedRecord
from barnabas.errors import ConfigError

RECORD = ConsumedRecord(
    "orders", 3, 42, 1_700, b"eu-1", b"\x1b[31mred\xff", (("a", b"1"), ("b", None))
)
EMPTY = ConsumedRecord("orders", 0, 0, -1, None, None, ())


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (r"%t %p %o %k\n", b"orders 3 42 eu-1\n"),
        (r"%T|%K|%S|%h", b"1700|4|9|a=1,b="),
        (r"%s\t\\\x41\0%%", b"\x1b[31mred\xff\t\\A\0%"),
        (r"100%%é", "100%é".encode()),
        (r"\q \x", rb"\q \x"),
        ("\\", b"\\"),
        ("", b""),
    ],
)
def test_format_tokens_match_kcat(template: str, expected: bytes) -> None:
    assert compile_format(template)(RECORD) == expected


def test_null_fields_are_empty_with_size_minus_one() -> None:
    assert compile_format("%k,%s,%h,%K,%S,%T")(EMPTY) == b",,,-1,-1,-1"


def test_control_characters_are_escaped_on_terminal() -> None:
    assert compile_format("%s\\n", for_terminal=True)(RECORD) == b"\\x1b[31mred\xff\n"


@pytest.mark.parametrize("template", ["%", "%q", "%k %"])
def test_unknown_format_token_is_rejected(template: str) -> None:
    with pytest.raises(ConfigError, match="unknown format %"):
        compile_format(template)


def test_delimiters_may_be_escaped() -> None:
    assert unescape_bytes(r"\t") == b"\t"
    assert unescape_bytes(r"\x1f|\n") == b"\x1f|\n"
    assert unescape_bytes("::") == b"::"


def test_record_document_is_valid_json() -> None:
    found = record_document(RECORD)
    assert found["value"] == "G1szMW1yZWT/"
    assert found["value_encoding"] == "base64"
    assert found["key"] == "eu-1" and "key_encoding" not in found
    assert found["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": None}]
    assert json.loads(json.dumps(found)) == found
    assert record_document(EMPTY)["key"] is None


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ("value:red", True),
        ("value:blue", False),
        ("key:eu-", True),
        ("key~^eu-[0-9]$", True),
        ("value~^red", False),
        ("value:.", False),
    ],
)
def test_filters_match_text_and_patterns(expression: str, matches: bool) -> None:
    assert compile_filter(expression)(RECORD) is matches


def test_null_value_matches_no_filter() -> None:
    assert not compile_filter("value:a")(EMPTY)


@pytest.mark.parametrize(
    "expression", ["", "value", "value:", "topic:a", "value=1", "value~(", "__import__('os')"]
)
def test_invalid_filter_is_rejected(expression: str) -> None:
    with pytest.raises(ConfigError, match="--filter"):
        compile_filter(expression)


def test_names_and_contents_are_escaped_on_terminal() -> None:
    record = ConsumedRecord(
        "t\n\u202e", 0, 0, 0, None, "a\tb\nc\x9b\u202e".encode() + b"\x9b\xe9", (("h\n", b"\x1b"),)
    )
    write = compile_format("%t|%h|%s", for_terminal=True)
    assert write(record) == (rb"t\n\u202e|h\n=\x1b|" + b"a\tb\nc" + rb"\x9b\u202e\x9b" + b"\xe9")
    raw = compile_format("%t|%h|%s")
    assert raw(record) == "t\n\u202e|h\n=\x1b|".encode() + (record.value or b"")
