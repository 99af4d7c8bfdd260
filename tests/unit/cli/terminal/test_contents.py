"""Formats of keys and values: nothing is lost in JSON, and invalid content is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.terminal.contents import ContentOptions, Shown, new_content
from barnabas.cli.terminal.formats import (
    TEXT_CONTENTS,
    RecordContents,
    compile_format,
    record_document,
)
from barnabas.client.consumer import ConsumedRecord
from barnabas.errors import ConfigError
from barnabas.formats.problems import DecodeError, EncodeError

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "blob", "type": "bytes", "default": ""},
    ],
}


def content(name: str, **options: Any) -> Any:
    return new_content(name, options.get("schema"), options.get("registry"), "orders-value")


def record(value: bytes | None, **fields: Any) -> ConsumedRecord:
    return ConsumedRecord(
        "orders", 0, 7, 1_700, fields.get("key"), value, fields.get("headers", ())
    )


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("text", b"plain", Shown("plain")),
        ("text", b"\\x81", Shown("\\x81")),
        ("text", b"\x81", Shown("gQ==", "base64")),
        ("hex", b"\x81a", Shown("8161", "hex")),
        ("base64", b"a", Shown("YQ==", "base64")),
        ("json", b'{"id": 1}', Shown({"id": 1})),
        (
            "json",
            b"oops",
            Shown("oops", "text", "is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ),
        ("json", b"\xff\xff\xff", None),
    ],
)
def test_content_in_json(name: str, data: bytes, shown: Shown | None) -> None:
    found = content(name).to_document(data)
    if shown is None:
        assert found.encoding == "base64" and "is not JSON" in found.error
    else:
        assert found == shown


@pytest.mark.parametrize("name", ["text", "hex", "base64"])
@pytest.mark.parametrize("data", [b"", b"abc", bytes(range(256))])
def test_printed_content_can_be_written_again(name: str, data: bytes) -> None:
    codec = content(name)
    assert codec.parse(codec.to_text(data)) == data


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hex", b"8"),
        ("hex", b"zz"),
        ("base64", b"a"),
        ("base64", b"\xff"),
        ("json", b"{"),
        ("json", b'{"a": NaN}'),
    ],
)
def test_invalid_input_is_rejected(name: str, text: bytes) -> None:
    with pytest.raises(EncodeError, match=f"is not {'JSON' if name == 'json' else name}"):
        content(name).parse(text)


def test_avro_with_schema_file(tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(SCHEMA))
    codec = content("avro", schema=str(path))
    data = codec.parse(b'{"id": 5, "note": "gift"}')
    assert codec.to_document(data) == Shown({"id": 5, "note": "gift", "blob": ""})
    assert json.loads(codec.to_text(data)) == {"id": 5, "note": "gift", "blob": ""}
    with pytest.raises(EncodeError, match="does not fit the Avro schema"):
        codec.parse(b'{"id": "five"}')
    with pytest.raises(EncodeError, match="is not JSON"):
        codec.parse(b"{")
    with pytest.raises(DecodeError):
        codec.to_text(b"\x01")
    found = codec.to_document(b"\x01")
    assert found.content == "\x01" and found.encoding == "text" and found.error


def test_binary_headers_keys_and_values_are_base64() -> None:
    found = record_document(record(b"\x81", key=b"\x82", headers=(("h", b"\x83"), ("t", b"3"))))
    assert (found["value"], found["value_encoding"]) == ("gQ==", "base64")
    assert (found["key"], found["key_encoding"]) == ("gg==", "base64")
    assert found["headers"] == [
        {"name": "h", "value": "gw==", "value_encoding": "base64"},
        {"name": "t", "value": "3"},
    ]


def test_text_output_stops_at_value_in_another_format() -> None:
    contents = RecordContents(TEXT_CONTENTS.key, content("json"))
    write = compile_format("%s", contents)
    assert write(record(b"[1]")) == b"[1]"
    assert write(record(None)) == b""
    with pytest.raises(ConfigError) as failure:
        write(record(b"oops"))
    assert failure.value.key == "--value-format"
    assert failure.value.why.startswith("offset 7 of orders-0: is not JSON")


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"schema": "a.avsc"}, "--schema"),
        ({"key_schema": "a.avsc", "value_format": "avro"}, "--key-schema"),
        ({"registry": "http://localhost:8081"}, "--registry"),
        ({"value_format": "avro"}, "--schema"),
    ],
)
def test_options_that_do_not_fit_are_rejected(options: dict[str, str], key: str) -> None:
    plain: dict[str, Any] = {
        "key_format": "text",
        "value_format": "text",
        "key_schema": None,
        "schema": None,
        "registry": None,
    }
    with pytest.raises(ConfigError) as failure:
        chosen = ContentOptions(**{**plain, **options})
        chosen.check()
        chosen.of_values("orders")
    assert failure.value.key == key
