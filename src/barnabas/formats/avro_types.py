"""Avro schemas: parsing, their Arrow types, and the form in which fastavro reads them. Pure.

fastavro would create a Python object for every date and timestamp. So it gets a schema without these logical types, and
Arrow converts the integers of a whole column at once. Decimals and UUIDs in 16 bytes stay logical types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa

from barnabas.errors import ConfigError, reason
from barnabas.formats.avro_limits import needs_limits

PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
NUMBERS = ("int", "long", "float", "double")
"""From narrow to wide."""
DECIMAL_DIGITS_MAX = 38
UUID_BYTES = 16
UUID_AS_TEXT = "barnabas-uuid"
"""Logical type of a UUID in 16 bytes that fastavro reads and writes as text."""


class AvroSchema:
    """A parsed schema. Its Arrow types are computed on demand: a writer's schema may have types that Spark lacks."""

    def __init__(self, parsed: Any, named: Mapping[str, Any], raw: Any) -> None:
        self.parsed = parsed
        self.named = named
        self.raw = raw
        """The schema for fastavro: dates and timestamps are integers."""

    @cached_property
    def stored_type(self) -> pa.DataType:
        """Arrow type in the units of the schema. Raises ConfigError."""
        return arrow_type_of(self.parsed, self.named, ())

    @cached_property
    def arrow_type(self) -> pa.DataType:
        """Arrow type of the Spark column: timestamps in microseconds. Raises ConfigError."""
        return in_microseconds(self.stored_type)

    @cached_property
    def needs_limits(self) -> bool:
        """Whether its records must be checked before they are read (avro_limits.py)."""
        return needs_limits(self.parsed, self.named)


def parse_avro(text: str, references: Iterable[tuple[str, str]] = ()) -> AvroSchema:
    """Parse a schema. `references` are the (name, schema) pairs that it uses, in order. Raises ConfigError."""
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    named: dict[str, Any] = {}
    raw_named: dict[str, Any] = {}
    parsed: Any = None
    raw: Any = None
    try:
        for source in (*(reference for _, reference in references), text):
            parsed = parse_schema(json.loads(source), named)
            raw = parse_schema(raw_form(json.loads(source)), raw_named)
    except json.JSONDecodeError as error:
        raise ConfigError("schema", f"is not an Avro schema: not valid JSON, {error}") from None
    except UnknownType as error:
        raise ConfigError("schema", f"is not an Avro schema: unknown type {error.name}") from None
    except RecursionError:
        raise ConfigError("schema", "is not an Avro schema: it is nested too deeply") from None
    except (SchemaParseException, KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"missing {error}" if isinstance(error, KeyError) else reason(error)
        raise ConfigError("schema", f"is not an Avro schema: {what}") from None
    for schema in (raw, *raw_named.values()):
        convert_defaults(schema, raw_named)
    return AvroSchema(parsed, named, raw)


# ---- Arrow types ------------------------------------------------------------------------------------------------


def arrow_type_of(schema: Any, named: Mapping[str, Any], outer: tuple[str, ...]) -> pa.DataType:
    """Return the Arrow type. `outer` has the names of the enclosing records. Raises ConfigError."""
    if isinstance(schema, list):
        return union_type(schema, named, outer)
    if isinstance(schema, str):
        return (
            PRIMITIVES[schema]
            if schema in PRIMITIVES
            else arrow_type_of(named[schema], named, outer)
        )
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return arrow_type_of(kind, named, outer)
    if kind in ("record", "error"):
        return record_type(schema, named, outer)
    if kind == "array":
        return list_type(arrow_type_of(schema["items"], named, outer))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type_of(schema["values"], named, outer))
    logical = schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return decimal_type(schema)
    if logical == "uuid" and kind == "fixed" and schema["size"] == UUID_BYTES:
        return pa.string()
    if kind in PRIMITIVES:
        return LOGICAL.get((kind, logical), PRIMITIVES[kind])
    return arrow_type_of(kind, named, outer)


def record_type(schema: Any, named: Mapping[str, Any], outer: tuple[str, ...]) -> pa.DataType:
    name = schema["name"]
    if name in outer:
        why = f"type {name} contains itself; Spark has no recursive types"
        raise ConfigError("schema", f"{why}: read it with a schema without this field")
    inner = (*outer, name)
    fields = [
        (field["name"], arrow_type_of(field["type"], named, inner)) for field in schema["fields"]
    ]
    return pa.struct(fields)


def union_type(
    branches: list[Any], named: Mapping[str, Any], outer: tuple[str, ...]
) -> pa.DataType:
    """Return the type of the only branch besides null, or the widest of several number types."""
    others = [branch for branch in branches if branch != "null"]
    if len(others) == 1:
        return arrow_type_of(others[0], named, outer)
    if not others:
        return pa.null()
    if set(map(str, others)) in ({"int", "long"}, {"float", "double"}):
        return PRIMITIVES[max(others, key=NUMBERS.index)]
    names = ", ".join(branch if isinstance(branch, str) else branch["type"] for branch in others)
    why = f"a union of {names} has no Spark type"
    raise ConfigError("schema", f"{why}; use a union of null and one type, or one field per type")


def decimal_type(schema: Mapping[str, Any]) -> pa.DataType:
    precision, scale = schema.get("precision", 0), schema.get("scale", 0)
    if not 0 < precision <= DECIMAL_DIGITS_MAX or not 0 <= scale <= precision:
        why = f"a decimal of precision {precision} and scale {scale} has no Spark type"
        raise ConfigError("schema", f"{why}; it has at most {DECIMAL_DIGITS_MAX} digits")
    return pa.decimal128(precision, scale)


def list_type(items: pa.DataType) -> pa.DataType:
    """Return the Arrow type of an array. The name of the inner field is Spark's."""
    return pa.list_(pa.field("element", items))


def in_microseconds(kind: pa.DataType) -> pa.DataType:
    """Return the type with all timestamps in microseconds, the unit of Spark."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([(field.name, in_microseconds(field.type)) for field in fields])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, in_microseconds(kind.item_type))
    if pa.types.is_list(kind):
        return list_type(in_microseconds(kind.value_type))
    return kind


# ---- the schema for fastavro ------------------------------------------------------------------------------------


def raw_form(schema: Any) -> Any:
    """Return the schema without the logical types that Arrow converts."""
    if isinstance(schema, list):
        return [raw_form(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    raw = {key: value for key, value in schema.items() if key != "logicalType"}
    logical = schema.get("logicalType")
    if logical == "decimal":
        raw["logicalType"] = logical
    if logical == "uuid" and raw.get("type") == "fixed" and raw.get("size") == UUID_BYTES:
        raw["logicalType"] = UUID_AS_TEXT
    for key in ("type", "items", "values"):
        if key in raw:
            raw[key] = raw_form(raw[key])
    if isinstance(raw.get("fields"), list):
        raw["fields"] = [raw_form(field) for field in raw["fields"]]
    return raw


def convert_defaults(schema: Any, named: Mapping[str, Any]) -> None:
    """Replace the JSON defaults in a parsed schema with the values that fastavro reads from bytes."""
    if isinstance(schema, list):
        for branch in schema:
            convert_defaults(branch, named)
    elif isinstance(schema, dict):
        for field in schema.get("fields", ()):
            convert_defaults(field["type"], named)
            if "default" in field:
                field["default"] = avro_default(field["type"], field["default"], named)
        for key in ("items", "values"):
            convert_defaults(schema.get(key), named)


def avro_default(schema: Any, value: Any, named: Mapping[str, Any]) -> Any:
    """Return a default as a value. In JSON, bytes are text with one character per byte."""
    if isinstance(schema, list):
        branches = [branch for branch in schema if (branch == "null") == (value is None)]
        return avro_default(branches[0], value, named) if branches else value
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    kind = schema["type"]
    if kind in ("bytes", "fixed") and isinstance(value, str):
        return bytes_default(schema, value.encode("latin-1"))
    if kind == "array" and isinstance(value, list):
        return [avro_default(schema["items"], each, named) for each in value]
    if kind == "map" and isinstance(value, dict):
        return {key: avro_default(schema["values"], each, named) for key, each in value.items()}
    if kind == "record" and isinstance(value, dict):
        return record_default(schema, value, named)
    return value


def record_default(schema: Any, value: dict[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for field in schema["fields"]:
        name = field["name"]
        if name in value:
            found[name] = avro_default(field["type"], value[name], named)
        else:
            found[name] = field.get("default")
    return found


def bytes_default(schema: Mapping[str, Any], value: bytes) -> Any:
    logical = schema.get("logicalType")
    if logical == "decimal":
        unscaled = int.from_bytes(value, "big", signed=True)
        return Decimal(unscaled).scaleb(-schema.get("scale", 0))
    return uuid_text(value) if logical == UUID_AS_TEXT else value


def uuid_text(value: bytes) -> str:
    """Return a UUID in its usual form.

    >>> uuid_text(bytes(range(16)))
    '00010203-0405-0607-0809-0a0b0c0d0e0f'
    """
    digits = value.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
