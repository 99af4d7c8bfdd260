"""Spark schemas of the source and the sink."""

from __future__ import annotations

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from barnabas.errors import ConfigError
from barnabas.spark.arrow_records import arrow_schema
from barnabas.spark.ranges import COLUMNS

TYPES: dict[str, DataType] = {
    field.name: field.dataType for field in from_arrow_schema(arrow_schema(COLUMNS))
}
HEADERS = TYPES["headers"]
WRITABLE: dict[str, tuple[DataType, ...]] = {
    "key": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (HEADERS,),
    "timestamp": (TYPES["timestamp"],),
}


def source_schema(*, include_headers: bool) -> StructType:
    names = COLUMNS if include_headers else COLUMNS[:-1]
    return StructType([StructField(name, TYPES[name]) for name in names])


def selected_columns(schema: StructType) -> tuple[str, ...]:
    """Return the columns that a user's schema selects, in its order. Raises ConfigError for an invalid schema."""
    known = {name.lower(): name for name in COLUMNS}
    columns: list[str] = []
    for field in schema.fields:
        name = known.get(field.name.lower())
        if name is None:
            why = f"a topic has no column {field.name}; it has {', '.join(COLUMNS)}"
            raise ConfigError("schema", why)
        if not same_type(field.dataType, TYPES[name]):
            expected = TYPES[name].simpleString()
            why = f"column {field.name} is {expected}, not {field.dataType.simpleString()}"
            hint = "read it with this type and cast it afterwards"
            raise ConfigError("schema", f"{why}; {hint}")
        if name in columns:
            raise ConfigError("schema", f"names column {field.name} twice")
        columns.append(name)
    if not columns:
        raise ConfigError("schema", f"has no column; choose from {', '.join(COLUMNS)}")
    return tuple(columns)


def check_sink_schema(schema: StructType, topic: str | None) -> None:
    """Raise ConfigError if rows cannot be written as records. Other columns are ignored, as in Spark's Kafka sink."""
    fields = {field.name: field for field in schema.fields}
    if "value" not in fields:
        why = "is missing; add it, for example with selectExpr('to_json(struct(*)) as value')"
        raise ConfigError("column value", why)
    if "topic" not in fields and topic is None:
        raise ConfigError("topic", "is missing; set the option, or add a column topic")
    for name, types in WRITABLE.items():
        if name not in fields or (name == "topic" and topic is not None):
            continue
        found = fields[name].dataType
        if not any(same_type(found, expected) for expected in types):
            wanted = " or ".join(expected.simpleString() for expected in types)
            why = f"must be {wanted}, not {found.simpleString()}; cast it"
            raise ConfigError(f"column {name}", why)


def same_type(one: DataType, other: DataType) -> bool:
    """Return whether two types are equal except for nullability and collation."""
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return same_type(one.elementType, other.elementType)
    if isinstance(one, StructType) and isinstance(other, StructType):
        return [field.name for field in one] == [field.name for field in other] and all(
            same_type(left.dataType, right.dataType)
            for left, right in zip(one.fields, other.fields, strict=True)
        )
    return type(one) is type(other)
