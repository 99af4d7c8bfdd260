from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import ConfigError
from barnabas.formats.avro import AvroDecoder, AvroEncoder, avro_schema
from barnabas.formats.decoding import FAILFAST, PERMISSIVE, check_mode, decode_column
from barnabas.formats.encoding import encode_column
from barnabas.formats.problems import DecodeError, EncodeError
from barnabas.formats.schema_registry import RegisteredSchema, SchemaRegistryError, UnknownSchemaId
from tests.unit.formats.golden import AVRO_RECORD, AVRO_ROW, AVRO_SCHEMA, NOW

SCHEMA = avro_schema(AVRO_SCHEMA)


def record(*fields: dict[str, Any], name: str = "R") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def finder(schemas: dict[int, str]) -> Callable[[int], RegisteredSchema]:
    def find(schema_id: int) -> RegisteredSchema:
        if schema_id not in schemas:
            raise UnknownSchemaId(f"no schema with id {schema_id}")
        return RegisteredSchema(schema_id, "AVRO", schemas[schema_id], ())

    return find


def decode(
    data: list[bytes | None],
    reader: str,
    schemas: dict[int, str] | None = None,
    mode: str = FAILFAST,
) -> list[Any]:
    decoder = AvroDecoder(avro_schema(reader), finder(schemas) if schemas is not None else None)
    column = decode_column(pa.array(data, pa.binary()), decoder, mode)
    column.validate(full=True)
    assert column.type == avro_schema(reader).arrow_type
    return list(column.to_pylist())


def encode(rows: list[Any], schema: str, schema_id: int | None = None) -> list[bytes]:
    parsed = avro_schema(schema)
    column = pa.array(rows, parsed.arrow_type)
    return list(encode_column(column, AvroEncoder(parsed, schema_id)).to_pylist())


def by_fastavro(schema: str, value: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema)), value)
    return stream.getvalue()


# ---- other implementations


def test_record_of_confluent_is_decoded() -> None:
    assert decode([AVRO_RECORD, None], AVRO_SCHEMA, {1: AVRO_SCHEMA}) == [AVRO_ROW, None]


def test_record_is_encoded_as_by_confluent() -> None:
    assert encode([AVRO_ROW, None], AVRO_SCHEMA, 1) == [AVRO_RECORD, None]


INSTANTS = st.datetimes(timezones=st.just(dt.UTC))
MILLIS = INSTANTS.map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000))
ITEMS = st.fixed_dictionaries({"sku": st.text(), "t": MILLIS})
ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "user": st.none() | st.text(),
        "amount": st.integers(-(10**10) + 1, 10**10 - 1).map(lambda each: Decimal(each).scaleb(-2)),
        "day": st.dates(),
        "at": MILLIS,
        "at2": st.none() | INSTANTS,
        "uid": st.uuids().map(str),
        "state": st.sampled_from(["NEW", "OLD"]),
        "items": st.lists(ITEMS, max_size=3),
        "tags": st.dictionaries(st.text(), st.integers(-(2**31), 2**31 - 1), max_size=3),
        "first": st.none() | ITEMS,
    }
)


@given(rows=st.lists(st.none() | ROWS, max_size=4))
def test_rows_round_trip_as_with_fastavro(rows: list[dict[str, Any] | None]) -> None:
    pairs = [row and {**row, "tags": list(row["tags"].items())} for row in rows]
    encoded = encode(pairs, AVRO_SCHEMA)
    assert encoded == [None if row is None else by_fastavro(AVRO_SCHEMA, row) for row in rows]
    assert decode([*encoded], AVRO_SCHEMA) == pairs


@given(data=st.binary(max_size=200))
def test_any_bytes_are_decoded_or_rejected(data: bytes) -> None:
    decode([data, b"\0\0\0\0\1" + data], AVRO_SCHEMA, mode=PERMISSIVE)
    decode([data, b"\0\0\0\0\1" + data], AVRO_SCHEMA, {1: AVRO_SCHEMA}, mode=PERMISSIVE)


@given(size=st.integers(0, len(AVRO_RECORD) - 1))
def test_truncated_record_is_rejected(size: int) -> None:
    with pytest.raises(DecodeError, match="first bytes: "):
        decode([AVRO_RECORD[:size]], AVRO_SCHEMA, {1: AVRO_SCHEMA})


# ---- types


@pytest.mark.parametrize(
    ("kind", "arrow_type", "value"),
    [
        ("boolean", pa.bool_(), True),
        ("int", pa.int32(), -7),
        ("float", pa.float32(), 0.5),
        ("double", pa.float64(), 0.1),
        ("bytes", pa.binary(), b"\0\xff"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), b"ab"),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", tz="UTC"), NOW),
        ({"type": "long", "logicalType": "timestamp-nanos"}, pa.timestamp("us", tz="UTC"), NOW),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            pa.timestamp("us"),
            NOW.replace(tzinfo=None),
        ),
        ({"type": "int", "logicalType": "time-millis"}, pa.int32(), 5),
        (
            {"type": "fixed", "name": "F", "size": 9, "logicalType": "decimal", "precision": 20},
            pa.decimal128(20, 0),
            Decimal(-(10**19)),
        ),
        (
            {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"},
            pa.string(),
            "00010203-0405-0607-0809-0a0b0c0d0e0f",
        ),
        (["int", "null", "long"], pa.int64(), 2**40),
        (["null", {"type": "array", "items": ["null", "int"]}], None, [1, None]),
        (
            {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}},
            pa.map_(pa.string(), pa.timestamp("us", tz="UTC")),
            [("a", NOW), ("b", NOW)],
        ),
        ("null", pa.null(), None),
        ({"type": "record", "name": "E", "fields": []}, pa.struct([]), {}),
    ],
)
def test_type_and_value(kind: Any, arrow_type: pa.DataType | None, value: Any) -> None:
    schema = record(field("a", kind))
    if arrow_type is not None:
        assert avro_schema(schema).arrow_type.field("a").type == arrow_type
    assert decode([*encode([{"a": value}], schema)], schema) == [{"a": value}]


def test_primitive_schema_decodes_keys() -> None:
    assert decode([b"\2k", None], '"string"') == ["k", None]


def test_nanoseconds_are_truncated() -> None:
    nanos = record(field("a", {"type": "long", "logicalType": "timestamp-nanos"}))
    data = by_fastavro(record(field("a", "long")), {"a": 1999})
    expected = dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC)
    assert decode([data], nanos) == [{"a": expected}]


def test_timestamp_out_of_range_fails_alone() -> None:
    schema = record(field("a", {"type": "long", "logicalType": "timestamp-millis"}))
    data = [by_fastavro(record(field("a", "long")), {"a": each}) for each in (0, 2**62, 0)]
    epoch = {"a": dt.datetime(1970, 1, 1, tzinfo=dt.UTC)}
    assert decode([*data], schema, mode=PERMISSIVE) == [epoch, None, epoch]
    with pytest.raises(DecodeError, match="out of range"):
        decode([*data], schema)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "not valid JSON"),
        ("{}", "missing 'type'"),
        (record(field("a", "strng")), "unknown type strng"),
        (record(field("a", ["string", "int"])), "a union of string, int has no Spark type"),
        (record(field("a", ["null", "R"])), "type R contains itself; Spark has no recursive types"),
        (
            record(field("a", {"type": "bytes", "logicalType": "decimal", "precision": 39})),
            "at most 38 digits",
        ),
    ],
)
def test_schema_without_spark_type_is_rejected(schema: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        _ = avro_schema(schema).arrow_type


# ---- schema resolution


def test_new_fields_get_their_defaults_and_removed_ones_are_skipped() -> None:
    old = record(field("id", "int"), field("gone", ["string", "int"]))
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    inner = {
        "type": "record",
        "name": "In",
        "fields": [field("b", "bytes"), field("n", "int", default=3)],
    }
    new = record(
        field("id", "long"),
        field("text", "string", default="x"),
        field("raw", "bytes", default="\u00ff"),
        field("price", decimal, default="\u0001\u0000"),
        field("maybe", ["null", "long"], default=None),
        field("inner", inner, default={"b": "\u0001"}),
        field("list", {"type": "array", "items": "bytes"}, default=["a"]),
    )
    expected = {
        "id": 1,
        "text": "x",
        "raw": b"\xff",
        "price": Decimal("2.56"),
        "maybe": None,
        "inner": {"b": b"\1", "n": 3},
        "list": [b"a"],
    }
    data = b"\0\0\0\0\1" + by_fastavro(old, {"id": 1, "gone": "away"})
    assert decode([data], new, {1: old}) == [expected]


def test_each_record_is_read_with_its_own_schema() -> None:
    old, new = (
        record(field("a", "int")),
        record(field("b", "string", default=""), field("a", "long")),
    )
    data = [
        b"\0\0\0\0\1" + by_fastavro(old, {"a": 1}),
        b"\0\0\0\0\2" + by_fastavro(new, {"a": 2, "b": "x"}),
    ]
    schemas = {1: old, 2: new}
    assert decode([*data], new, schemas) == [{"a": 1, "b": ""}, {"a": 2, "b": "x"}]
    assert decode([*data], old.replace("int", "long"), schemas) == [{"a": 1}, {"a": 2}]


def test_incompatible_writer_is_explained() -> None:
    schemas = {1: record(field("a", "string"))}
    data: list[bytes | None] = [b"\0\0\0\0\1\2x"]
    with pytest.raises(DecodeError, match=r"does not fit the reader's.*\(schema id 1\)"):
        decode(data, record(field("a", "int")), schemas)
    with pytest.raises(DecodeError, match="No default value for field b"):
        decode(data, record(field("a", "string"), field("b", "int")), schemas)


def test_named_types_of_references_are_known() -> None:
    item = record(field("sku", "string"), name="Item")
    order = record(field("first", "Item"))
    schema = avro_schema(order, (("Item", item),))
    decoder = AvroDecoder(schema)
    assert decode_column(pa.array([b"\2x"]), decoder, FAILFAST).to_pylist() == [
        {"first": {"sku": "x"}}
    ]


# ---- errors


def test_unknown_schema_id_is_asked_once_and_null_if_permissive() -> None:
    asked: list[int] = []

    def find(schema_id: int) -> RegisteredSchema:
        asked.append(schema_id)
        return finder({1: '"long"'})(schema_id)

    decoder = AvroDecoder(avro_schema('"long"'), find)
    data = pa.array([b"\0\0\0\0\1\2", b"\0\0\0\0\7\2", b"\0\0\0\0\7\2"])
    assert decode_column(data, decoder, PERMISSIVE).to_pylist() == [1, None, None]
    assert asked == [1, 7]
    with pytest.raises(DecodeError, match="no schema with id 7"):
        decode_column(data, decoder, FAILFAST)


def test_unreachable_registry_is_an_error_in_both_modes() -> None:
    def find(schema_id: int) -> RegisteredSchema:
        raise SchemaRegistryError("does not respond")

    decoder = AvroDecoder(avro_schema('"long"'), find)
    for mode in (FAILFAST, PERMISSIVE):
        with pytest.raises(SchemaRegistryError, match="does not respond"):
            decode_column(pa.array([b"\0\0\0\0\1\2"]), decoder, mode)


def test_protobuf_schema_id_is_rejected() -> None:
    decoder = AvroDecoder(
        avro_schema('"long"'), lambda number: RegisteredSchema(number, "PROTOBUF", "", ())
    )
    with pytest.raises(DecodeError, match="is for PROTOBUF, not AVRO"):
        decode_column(pa.array([b"\0\0\0\0\1\2"]), decoder, FAILFAST)


def test_trailing_bytes_are_rejected() -> None:
    with pytest.raises(DecodeError, match=r"1 trailing bytes .*first bytes: 0205 \(2 bytes\)"):
        decode([b"\2\5"], '"long"')


def test_column_of_another_type_is_rejected() -> None:
    with pytest.raises(ConfigError, match="must be binary, not int64"):
        decode_column(pa.array([1]), AvroDecoder(SCHEMA), FAILFAST)


def test_unknown_mode_is_rejected() -> None:
    assert check_mode("permissive") == PERMISSIVE
    with pytest.raises(ConfigError, match="'DROPMALFORMED' is unknown; choose FAILFAST"):
        check_mode("DROPMALFORMED")


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"id": "x"}, "field id is string, but the schema needs integer; cast it"),
        ({"id": 2**40}, "a value of field id does not fit the schema"),
        ({"id": 1, "more": 1}, "has the field more, which is not in the schema"),
        ({"n": {"m": 1}}, "id is specified in the schema but missing"),
        ({"id": None}, "does not fit the Avro schema"),
        ({"id": 1, "n": {"m": 1.5}}, "field m is floating point, but the schema needs integer"),
        ({"id": 1, "e": "C"}, "C"),
    ],
)
def test_row_that_does_not_fit_is_rejected(row: dict[str, Any], why: str) -> None:
    inner = {"type": "record", "name": "N", "fields": [field("m", "int")]}
    symbols = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    schema = record(
        field("id", "int"),
        field("n", ["null", inner], default=None),
        field("e", symbols, default="A"),
    )
    with pytest.raises(EncodeError, match=why):
        encode_column(pa.array([row]), AvroEncoder(avro_schema(schema)))


def test_absent_field_gets_its_default_and_fields_are_matched_by_name() -> None:
    schema = record(field("a", "int"), field("b", "string", default="x"), field("c", "double"))
    column = pa.array([{"c": 1, "a": 2}])
    encoded = encode_column(column, AvroEncoder(avro_schema(schema))).to_pylist()
    assert decode(encoded, schema) == [{"a": 2, "b": "x", "c": 1.0}]


def test_slice_of_a_column_is_encoded() -> None:
    schema = record(
        field("l", {"type": "array", "items": "int"}), field("m", {"type": "map", "values": "int"})
    )
    kind = avro_schema(schema).arrow_type
    rows = [{"l": [number], "m": [(str(number), number)]} for number in range(5)]
    column = pa.array(rows, kind).slice(2, 2)
    encoded = encode_column(column, AvroEncoder(avro_schema(schema))).to_pylist()
    assert decode(encoded, schema) == rows[2:4]
