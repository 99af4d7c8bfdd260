from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from barnabas.errors import ConfigError
from barnabas.spark.schema import HEADERS, check_sink_schema, selected_columns, source_schema


def schema(**types: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def test_source_schema_matches_spark() -> None:
    assert source_schema(include_headers=False).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    assert source_schema(include_headers=True)["headers"].dataType == HEADERS


def test_narrower_schema_ignores_order_and_case() -> None:
    assert selected_columns(schema(OFFSET=LongType(), value=BinaryType())) == ("offset", "value")


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (
            schema(valeu=BinaryType()),
            "schema: a topic has no column valeu; it has key, value, topic",
        ),
        (
            schema(value=StringType()),
            "schema: column value is binary, not string; read it with this type",
        ),
        (schema(offset=IntegerType()), "schema: column offset is bigint, not int"),
        (schema(value=BinaryType(), VALUE=BinaryType()), "schema: names column VALUE twice"),
        (schema(), "schema: has no column; choose from key, value"),
    ],
)
def test_invalid_read_schema_is_rejected(requested: StructType, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        selected_columns(requested)
    assert str(error.value).startswith(message)


def test_text_and_bytes_can_be_written() -> None:
    check_sink_schema(schema(key=StringType(), value=BinaryType(), more=LongType()), "orders")
    check_sink_schema(schema(value=StringType(), topic=StringType(), headers=HEADERS), None)
    check_sink_schema(schema(value=StringType(), topic=LongType()), "orders")


@pytest.mark.parametrize(
    ("written", "topic", "message"),
    [
        (schema(key=BinaryType()), "orders", "column value: is missing; add it, for example with"),
        (schema(value=BinaryType()), None, "topic: is missing; set the option, or add a column topic"),
        (schema(value=LongType()), "orders", "column value: must be binary or string, not bigint; cast it"),
        (schema(value=BinaryType(), topic=LongType()), None, "column topic: must be string, not bigint"),
        (schema(value=BinaryType(), partition=LongType()), "o", "column partition: must be int, not bigint"),
        (schema(value=BinaryType(), headers=ArrayType(StringType())), "o", "column headers: must be array<"),
    ],
)  # fmt: skip
def test_invalid_write_schema_is_rejected(
    written: StructType, topic: str | None, message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        check_sink_schema(written, topic)
    assert str(error.value).startswith(message)
