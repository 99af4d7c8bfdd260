from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from barnabas.errors import ConfigError
from barnabas.formats.json_schema import json_schema_type

TEXT, LONG = pa.string(), pa.int64()


def type_of(schema: Any, **more: Any) -> pa.DataType:
    text = json.dumps({"type": "object", "properties": {"a": schema}, **more})
    return json_schema_type(text).field("a").type


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer"}, LONG),
        ({"type": "number"}, pa.float64()),
        ({"type": ["integer", "number"]}, pa.float64()),
        ({"type": "boolean"}, pa.bool_()),
        ({"type": "string"}, TEXT),
        ({"type": "string", "format": "date-time"}, pa.timestamp("us", tz="UTC")),
        ({"type": "string", "format": "date"}, pa.date32()),
        ({"type": "string", "format": "email"}, TEXT),
        ({"enum": ["x", "y"]}, TEXT),
        ({"const": "x"}, TEXT),
        ({"type": ["null", "integer"]}, LONG),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, LONG),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, LONG),
        ({"type": "array", "items": {"type": "integer"}}, pa.list_(pa.field("element", LONG))),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, pa.map_(TEXT, LONG)),
        ({"properties": {"b": {"type": "integer"}}}, pa.struct([("b", LONG)])),
    ],
)
def test_type(schema: Any, expected: pa.DataType) -> None:
    assert type_of(schema) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"type": ["string", "integer"]},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "object"},
    ],
)
def test_other_parts_become_json_text(schema: Any) -> None:
    assert type_of(schema) == TEXT


def test_references_within_the_schema_and_to_other_schemas() -> None:
    assert type_of({"$ref": "#/$defs/id"}, **{"$defs": {"id": {"type": "integer"}}}) == LONG
    assert type_of({"$ref": "#/a~1b"}, **{"a/b": {"type": "integer"}}) == LONG
    other = json.dumps(
        {"definitions": {"id": {"type": "integer"}, "x": {"$ref": "#/definitions/id"}}}
    )
    schema = {"properties": {"a": {"$ref": "other.json#/definitions/x"}}}
    found = json_schema_type(json.dumps(schema), {"other.json": other})
    assert found.field("a").type == LONG


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not valid JSON"),
        ("[]", "must be a JSON object"),
        ('{"type": "string"}', "must describe an object with properties"),
        ('{"properties": {"a": {"$ref": "#/nope"}}}', "#/nope does not exist"),
        ('{"properties": {"a": {"$ref": "x.json"}}}', "refers to x.json, which is unknown"),
        ('{"properties": {"a": {"$ref": "#/properties/a"}}}', "circular"),
        ('{"properties": {"a": {"$ref": "#"}}}', "contains itself through"),
        ('{"items": ' * 100_000 + "true" + "}" * 100_000, "nested too deeply"),
    ],
)
def test_unusable_schema_is_explained(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        json_schema_type(text)
