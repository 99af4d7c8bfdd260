from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import ConfigError
from barnabas.formats import avro_limits
from barnabas.formats.avro import AvroDecoder, avro_schema
from barnabas.formats.avro_limits import DEPTH_MAX, EMPTY_ITEMS_MAX, check_limits
from barnabas.formats.decoding import FAILFAST, PERMISSIVE, decode_column
from barnabas.formats.problems import DecodeError
from barnabas.formats.schema_registry import RegisteredSchema
from tests.unit.formats.test_avro import by_fastavro, field, record

EMPTY = {"type": "record", "name": "Empty", "fields": [field("nothing", "null")]}
NODE = record(field("id", "int"), field("next", ["null", "Node"]), name="Node")
TREE = record(field("id", "int"), field("nodes", {"type": "array", "items": "Node"}), name="Node")
FLAT = record(field("id", "int"), name="Node")
HEADER = b"\0\0\0\0\1"


def zigzag(number: int) -> bytes:
    """Encode a number by hand, so that it need not fit the record."""
    rest, encoded = (number << 1) ^ (number >> 63), b""
    while rest > 0x7F:
        encoded += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return encoded + bytes([rest])


def decoder(reader: str, writer: str) -> AvroDecoder:
    return AvroDecoder(avro_schema(reader), lambda each: RegisteredSchema(each, "AVRO", writer, ()))


@pytest.mark.parametrize("items", ["null", EMPTY, {"type": "fixed", "name": "F", "size": 0}])
@pytest.mark.parametrize(
    "array",
    [
        zigzag(10**12) + b"\0",
        zigzag(-(10**12)) + b"\0\0",
        zigzag(EMPTY_ITEMS_MAX) * 2 + b"\0",
    ],
    ids=["one block", "block with a size", "two blocks"],
)
def test_array_of_too_many_items_without_bytes_is_rejected(items: Any, array: bytes) -> None:
    schema = record(field("many", {"type": "array", "items": items}), field("id", "int"))
    column = pa.array([array + b"\2", HEADER + array + b"\2"])
    message = "cannot decode a record: its arrays have more than 1,000 items that take no bytes"
    with pytest.raises(DecodeError, match=message):
        decode_column(column[:1], AvroDecoder(avro_schema(schema)), FAILFAST)
    skipping = decoder(record(field("id", "int")), schema)
    with pytest.raises(DecodeError, match=r"take no bytes \(schema id 1\)"):
        decode_column(column[1:], skipping, FAILFAST)
    assert decode_column(column[1:], skipping, PERMISSIVE).to_pylist() == [None]


def test_plausible_array_of_items_without_bytes_is_decoded() -> None:
    schema = record(field("many", {"type": "array", "items": "null"}))
    rows = decode_column(
        pa.array([zigzag(EMPTY_ITEMS_MAX) + b"\0"]), AvroDecoder(avro_schema(schema)), FAILFAST
    )
    assert rows.to_pylist() == [{"many": [None] * EMPTY_ITEMS_MAX}]


@pytest.mark.parametrize(
    ("writer", "start", "end"), [(NODE, b"\2\2", b"\2\0"), (TREE, b"\2\2", b"\2\0")]
)
def test_deeply_nested_record_is_rejected(writer: str, start: bytes, end: bytes) -> None:
    """fastavro would end the process."""
    reader = decoder(FLAT, writer)
    closing = b"\0" if writer is TREE else b""

    def nested(depth: int) -> pa.Array:
        return pa.array([HEADER + start * depth + end + closing * depth])

    assert decode_column(nested(100), reader, FAILFAST).to_pylist() == [{"id": 1}]
    with pytest.raises(DecodeError, match="its values are nested more than 1,000 deep"):
        decode_column(nested(1_000_000), reader, FAILFAST)


def test_ordinary_schemas_are_not_checked() -> None:
    kinds = ["long", "string", {"type": "array", "items": ["null", "long"]}]
    fields = [field(f"f{number}", kind) for number, kind in enumerate(kinds)]
    shared = field("first", EMPTY), field("second", {"type": "map", "values": "Empty"})
    assert not avro_schema(record(*fields, *shared)).needs_limits
    assert avro_schema(NODE).needs_limits
    assert avro_schema(record(field("a", {"type": "array", "items": EMPTY}))).needs_limits


OTHERS = record(
    field("next", ["null", "R", "boolean", "float", "double", "bytes", {"type": "fixed", "name": "F", "size": 3}]),
    field("word", {"type": "string", "logicalType": "uuid"}),
    field("map", {"type": "map", "values": "long"}),
    field("color", {"type": "enum", "name": "E", "symbols": ["RED", "BLUE"]}),
    field("many", {"type": "array", "items": "null"}),
)  # fmt: skip
LEAVES = st.one_of(st.none(), st.booleans(), st.floats(width=32, allow_nan=False), st.binary())


@given(
    st.recursive(
        st.fixed_dictionaries(
            {
                "next": LEAVES,
                "word": st.uuids().map(str),
                "map": st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1), max_size=3),
                "color": st.sampled_from(["RED", "BLUE"]),
                "many": st.lists(st.none(), max_size=3),
            }
        ),
        lambda inner: st.builds(lambda outer, each: {**outer, "next": each}, inner, inner),
        max_leaves=4,
    )
)
def test_walk_ends_where_the_record_ends(row: dict[str, Any]) -> None:
    schema = avro_schema(OTHERS)
    data = by_fastavro(OTHERS, row)
    walk = avro_limits.RecordWalk(data, 0, schema.named)
    walk.values.append((schema.parsed, 0))
    while walk.values:
        walk.read(*walk.values.pop())
    assert walk.position == len(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_walked_or_rejected(data: bytes) -> None:
    schema = avro_schema(OTHERS)
    try:
        check_limits(data, 0, schema.parsed, schema.named)
    except DecodeError as error:
        assert str(error).startswith(("its ", "a number has more than 10 bytes"))


def test_type_without_a_finite_value_is_rejected() -> None:
    schema = avro_schema(record(field("self", "R"), field("id", "int")))
    with pytest.raises(DecodeError, match=f"nested more than {DEPTH_MAX:,} deep"):
        check_limits(b"", 0, schema.parsed, schema.named)


def test_deeply_nested_schema_is_rejected() -> None:
    items: Any = "long"
    for _ in range(50):
        items = {"type": "array", "items": items}
    assert avro_schema(json.dumps(items)).arrow_type is not None
    depth = 100_000
    text = '{"type": "array", "items": ' * depth + '"long"' + "}" * depth
    with pytest.raises(ConfigError, match="nested too deeply"):
        avro_schema(text)
