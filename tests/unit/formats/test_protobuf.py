from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import ConfigError
from barnabas.formats.decoding import FAILFAST, PERMISSIVE, decode_column
from barnabas.formats.encoding import encode_column
from barnabas.formats.problems import DecodeError, EncodeError
from barnabas.formats.protobuf import (
    ProtobufDecoder,
    ProtobufEncoder,
    ProtobufSchema,
    protobuf_class,
    protobuf_schema,
)
from barnabas.formats.protobuf_types import descriptors_in_file, registered_descriptors
from barnabas.formats.schema_files import load_schema
from barnabas.formats.schema_registry import RegisteredSchema, SchemaRegistry, UnknownSchemaId
from support.schema_registry import running_registry
from tests.unit.formats.golden import (
    ITEM_RECORD,
    ITEM_ROW,
    NOW,
    ORDER_RECORD,
    ORDER_ROW,
    PROTO_SCHEMA,
    REFUND_RECORD,
    REFUND_ROW,
)

ALL_TYPES = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/empty.proto";
message All {
  enum Color { RED = 0; BLUE = 1; }
  message Inner { string text = 1; repeated int32 numbers = 2; }
  double d = 1; float f = 2; int32 i32 = 3; int64 i64 = 4; uint32 u32 = 5; uint64 u64 = 6;
  sint32 s32 = 7; sint64 s64 = 8; fixed32 f32 = 9; fixed64 f64 = 10; sfixed32 sf32 = 11; sfixed64 sf64 = 12;
  bool b = 13; string s = 14; bytes raw = 15; Color color = 16;
  optional int32 maybe = 17;
  Inner inner = 18;
  repeated Inner inners = 19;
  map<string, Inner> by_name = 20;
  map<bool, Color> colors = 21;
  google.protobuf.Timestamp at = 22;
  google.protobuf.Duration took = 23;
  google.protobuf.UInt64Value wrapped = 24;
  repeated google.protobuf.Timestamp times = 25;
  oneof choice { string name = 26; Inner other = 27; google.protobuf.Empty nothing = 28; }
}
"""


def compiled(text: str, message: str | None = None) -> ProtobufSchema:
    return protobuf_schema(descriptors_in_file(load_schema(text)), message)


ALL = compiled(ALL_TYPES)
ORDER = compiled(PROTO_SCHEMA, "Order")


def finder(*schemas: str) -> Callable[[int], RegisteredSchema]:
    """Return schemas by id; the first one has id 2, as in the golden records."""

    def find(schema_id: int) -> RegisteredSchema:
        if not 0 <= schema_id - 2 < len(schemas):
            raise UnknownSchemaId(f"no schema with id {schema_id}")
        return RegisteredSchema(schema_id, "PROTOBUF", schemas[schema_id - 2], ())

    return find


def decode(
    data: list[bytes | None],
    schema: ProtobufSchema,
    find: Callable[[int], RegisteredSchema] | None = None,
    mode: str = FAILFAST,
) -> list[Any]:
    column = decode_column(pa.array(data, pa.binary()), ProtobufDecoder(schema, find), mode)
    column.validate(full=True)
    assert column.type == schema.arrow_type
    return list(column.to_pylist())


def encode(rows: list[Any], schema: ProtobufSchema, schema_id: int | None = None) -> list[bytes]:
    column = pa.array(rows, schema.arrow_type)
    return list(encode_column(column, ProtobufEncoder(schema, schema_id)).to_pylist())


# ---- other implementations


@pytest.mark.parametrize(
    ("message", "record", "row"),
    [
        ("Order", ORDER_RECORD, ORDER_ROW),
        ("shop.Order.Item", ITEM_RECORD, ITEM_ROW),
        ("Refund", REFUND_RECORD, REFUND_ROW),
    ],
)
def test_records_of_confluent_are_decoded_and_encoded(
    message: str, record: bytes, row: dict[str, Any]
) -> None:
    schema = compiled(PROTO_SCHEMA, message)
    assert decode([record, None], schema, finder(PROTO_SCHEMA)) == [row, None]
    assert encode([row, None], schema, 2) == [record, None]


def test_other_message_of_the_file_is_rejected() -> None:
    data: list[bytes | None] = [REFUND_RECORD, ORDER_RECORD, b"\0\0\0\0\2\4\0\x20"]
    find = finder(PROTO_SCHEMA)
    assert decode(data, ORDER, find, PERMISSIVE) == [None, ORDER_ROW, None]
    with pytest.raises(DecodeError, match=r"is shop.Refund, not shop.Order \(schema id 2\)"):
        decode(data, ORDER, find)
    with pytest.raises(DecodeError, match=r"is not in the schema, not shop\.Order"):
        decode(data[2:], ORDER, find)


def test_canonical_json_of_protobuf_gives_the_same_message() -> None:
    """google.protobuf.json_format is the independent encoder."""
    rows = [
        {"i64": "-9", "u64": str(2**64 - 1), "color": "BLUE", "s": "ü", "raw": "AP8=", "maybe": 0},
        {"inner": {"text": "x", "numbers": [1, 2]}, "byName": {"k": {"text": "y"}}, "wrapped": "0"},
        {"at": "2024-01-02T03:04:05.678Z", "took": "-1.500s", "colors": {"true": "BLUE"}},
        {"other": {"text": "z"}, "times": ["1969-12-31T23:59:59.999999Z"]},
    ]
    data = [ParseDict(row, protobuf_class(ALL)()).SerializeToString() for row in rows]
    first, second, third, fourth = decode([*data], ALL)
    assert (first["i64"], first["u64"], first["color"], first["s"]) == (
        *(-9, Decimal(2**64 - 1), "BLUE", "ü"),
    )
    assert (first["raw"], first["maybe"], first["inner"], first["at"]) == (b"\0\xff", 0, None, None)
    assert (first["name"], first["other"], first["inners"]) == (None, None, [])
    assert second["inner"] == {"text": "x", "numbers": [1, 2]}
    assert second["by_name"] == [("k", {"text": "y", "numbers": []})]
    assert (second["wrapped"], second["maybe"]) == (Decimal(0), None)
    assert (third["at"], third["took"]) == (NOW, dt.timedelta(seconds=-1.5))
    assert third["colors"] == [(True, "BLUE")]
    assert fourth["other"] == {"text": "z", "numbers": []}
    assert fourth["times"] == [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC)]
    # Fields may be written in another order, so messages are compared rather than bytes.
    again = encode([first, second, third, fourth], ALL)
    parse = protobuf_class(ALL).FromString
    assert [parse(each) for each in again] == [parse(each) for each in data]


INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
UINT32 = st.integers(0, 2**32 - 1)
UINT64 = st.integers(0, 2**64 - 1).map(Decimal)
TEXT = st.text()
INSTANTS = st.datetimes(timezones=st.just(dt.UTC))
INNER = st.fixed_dictionaries({"text": TEXT, "numbers": st.lists(INT32, max_size=2)})
COLOR = st.sampled_from(["RED", "BLUE", "17", "-3"])


def pairs(keys: st.SearchStrategy[Any], values: st.SearchStrategy[Any]) -> Any:
    return st.dictionaries(keys, values, max_size=2).map(lambda each: sorted(each.items()))


ROWS = st.fixed_dictionaries(
    {
        "d": st.floats(allow_nan=False),
        "f": st.floats(width=32, allow_nan=False),
        **dict.fromkeys(("i32", "s32", "sf32"), INT32),
        **dict.fromkeys(("i64", "s64", "sf64"), INT64),
        **dict.fromkeys(("u32", "f32"), UINT32),
        **dict.fromkeys(("u64", "f64"), UINT64),
        "b": st.booleans(),
        "s": TEXT,
        "raw": st.binary(),
        "color": COLOR,
        "maybe": st.none() | INT32,
        "inner": st.none() | INNER,
        "inners": st.lists(INNER, max_size=2),
        "by_name": pairs(TEXT, INNER),
        "colors": pairs(st.booleans(), COLOR),
        "at": st.none() | INSTANTS,
        "took": st.none() | st.timedeltas(dt.timedelta(-10000), dt.timedelta(10000)),
        "wrapped": st.none() | UINT64,
        "times": st.lists(INSTANTS, max_size=2),
        "name": st.none(),
        "other": st.none() | INNER,
    }
)


@given(rows=st.lists(st.none() | ROWS, max_size=3))
def test_rows_round_trip(rows: list[dict[str, Any] | None]) -> None:
    back = decode([*encode(rows, ALL)], ALL)
    for row in back:
        if row is not None:
            row["by_name"].sort()
            row["colors"].sort()
    assert back == rows


@given(data=st.binary(max_size=100))
def test_any_bytes_are_decoded_or_rejected(data: bytes) -> None:
    framed = [data, b"\0\0\0\0\2" + data, b"\0\0\0\0\2\0" + data]
    decode([data], ALL, mode=PERMISSIVE)
    decode([*framed], ORDER, finder(PROTO_SCHEMA), mode=PERMISSIVE)


def test_truncated_record_is_rejected() -> None:
    with pytest.raises(DecodeError, match=r"not a message shop.Order; first bytes: 00000000020008"):
        decode([ORDER_RECORD[:-1]], ORDER, finder(PROTO_SCHEMA))


@pytest.mark.parametrize(
    "data",
    [b"\x0a\xff\xff\xff\xff\x07ab", b"\x7b" * 100_000, b"\x0a" + b"\xff" * 100_000],
    ids=["declared length", "nested groups", "long number"],
)
def test_implausible_record_is_rejected(data: bytes) -> None:
    with pytest.raises(DecodeError, match="not a message Node"):
        decode([data], compiled('syntax = "proto3"; message Node { bytes id = 1; }', "Node"))


def test_newer_writer_is_read_with_older_schema() -> None:
    newer = PROTO_SCHEMA.replace("message Refund {", "message Refund { string why = 2;")
    schema = compiled(PROTO_SCHEMA, "Refund")
    data = encode([{"why": "late", "order": 9}], compiled(newer, "Refund"), 3)
    assert decode([*data, REFUND_RECORD], schema, finder(PROTO_SCHEMA, newer)) == [REFUND_ROW] * 2


def test_fields_of_empty_messages_are_left_out() -> None:
    text = """syntax = "proto3";
    message Order { Outer outer = 1; int32 id = 2; repeated Outer list = 3; }
    message Outer { Inner inner = 1; }
    message Inner {}
    """
    schema = compiled(text, "Order")
    assert schema.arrow_type == pa.struct([("id", pa.int32())])
    assert decode([b"\x0a\2\x0a\0\x10\5"], schema) == [{"id": 5}]


# ---- schemas


def test_imports_are_searched_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "item.proto").write_text('syntax = "proto3"; message Item { string sku = 1; }')
    main = tmp_path / "order.proto"
    main.write_text('syntax = "proto3"; import "item.proto"; message Order { Item item = 1; }')
    descriptors = descriptors_in_file(load_schema(main))
    item = pa.struct([("sku", pa.string())])
    expected = pa.struct([("item", item)])
    assert protobuf_schema(descriptors, None).arrow_type == expected
    # The output of the compiler is a schema too, as bytes and as a file.
    assert descriptors_in_file(load_schema(descriptors)) == descriptors
    (tmp_path / "order.desc").write_bytes(descriptors)
    compiled_file = descriptors_in_file(load_schema(tmp_path / "order.desc"))
    assert protobuf_schema(compiled_file, "Order").arrow_type == expected


@pytest.mark.parametrize("sends_descriptors", [False, True])
def test_registry_with_references_as_text_and_as_descriptors(sends_descriptors: bool) -> None:
    item = 'syntax = "proto3"; package a; message Item { string sku = 1; }'
    order = (
        'syntax = "proto3"; import "dir/item.proto"; import "google/protobuf/timestamp.proto"; '
        "message Order { a.Item item = 1; google.protobuf.Timestamp at = 2; }"
    )
    with running_registry() as server:
        server.store.sends_descriptors = sends_descriptors
        server.store.register("item", {"schema": item, "schemaType": "PROTOBUF"})
        references = [{"name": "dir/item.proto", "subject": "item", "version": 1}]
        body = {"schema": order, "schemaType": "PROTOBUF", "references": references}
        schema_id = server.store.register("order", body)
        found = SchemaRegistry(server.url).by_id(schema_id)
    schema = protobuf_schema(registered_descriptors(found), None)
    row = {"item": {"sku": "x"}, "at": NOW}
    data = encode([row], schema, 2)
    assert decode([*data], schema, lambda _: found) == [row]


@pytest.mark.parametrize(
    ("text", "message", "why"),
    [
        ("message {", None, "is not a valid .proto file: schema.proto:1:9: Expected message name"),
        ('syntax = "proto3"; import "x.proto";', None, "x.proto: File not found"),
        (PROTO_SCHEMA, None, "message: is missing; the schema has shop.Order, shop.Refund"),
        (PROTO_SCHEMA, "Nope", "Nope is unknown; the schema has shop.Order, shop.Order.Line"),
        ('syntax = "proto3";', None, "message: is missing; the schema has no message"),
        ('syntax = "proto3"; message Empty {}', None, "Empty has no fields"),
        (
            'syntax = "proto3"; message A { B b = 1; } message B { A a = 1; }',
            "A",
            "A contains itself",
        ),
        (
            'syntax = "proto3"; message Node { repeated Node children = 1; }',
            None,
            "message Node contains itself; Spark has no recursive types",
        ),
    ],
)
def test_unusable_schema_is_explained(text: str, message: str | None, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        compiled(text, message)


@pytest.mark.parametrize("content", [b"\x01\x02", b"\xff\xfe", b"\0"])
def test_bytes_that_are_no_descriptor_set_are_rejected(content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"not a \.proto file or a compiled descriptor set"):
        descriptors_in_file(load_schema(content))


def test_descriptor_set_without_its_imports_is_rejected() -> None:
    whole = FileDescriptorSet.FromString(ALL.descriptor_set)
    alone = FileDescriptorSet(file=[whole.file[-1]]).SerializeToString()
    with pytest.raises(ConfigError, match="protoc --include_imports --descriptor_set_out=FILE"):
        descriptors_in_file(load_schema(alone))


def test_avro_schema_id_is_rejected() -> None:
    def find(schema_id: int) -> RegisteredSchema:
        return RegisteredSchema(schema_id, "AVRO", '"long"', ())

    with pytest.raises(DecodeError, match="is for AVRO, not PROTOBUF"):
        decode([ORDER_RECORD], ORDER, find)


# ---- rows that do not fit


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"i32": "x"}, "field i32 is string, but the schema needs integer"),
        ({"i32": 2**40}, "a value of field i32 does not fit"),
        ({"u32": -1}, "Value out of range|does not fit the message"),
        ({"more": 1}, "has the field more, which is not in the schema"),
        ({"color": "GREEN"}, "'GREEN' is not a value of enum shop.All.Color; it has RED, BLUE"),
        ({"name": "a", "other": {"text": "b"}}, "oneof choice allows one; set the others to null"),
        ({"times": [None, NOW]}, "field times has a null element"),
        ({"inner": {"numbers": [1, None]}}, "field numbers has a null element"),
    ],
)
def test_row_that_does_not_fit_is_rejected(row: dict[str, Any], why: str) -> None:
    with pytest.raises(EncodeError, match=why):
        encode_column(pa.array([row]), ProtobufEncoder(ALL))


def test_null_in_a_map_is_rejected() -> None:
    with pytest.raises(EncodeError, match="a map has null for the key 'k'"):
        encode([{"by_name": [("k", None)]}], ALL)
