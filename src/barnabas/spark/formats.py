"""Column functions for Avro, Protobuf and JSON, with or without a schema registry. They need no jar.

    from barnabas.spark.formats import from_avro, to_avro

    orders.select(from_avro("value", schema="order.avsc").alias("order"))
    orders.select(from_avro("value", registry="http://localhost:8081", subject="orders-value").alias("order"))

With `registry`, a record starts with the id of its schema (Confluent's wire format). Without it, a record has only the
encoded value. Schemas are read and checked where the column is defined. Avro and Protobuf records are decoded by an
Arrow function in the Python workers; JSON is parsed by Spark itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType

from barnabas.errors import ConfigError
from barnabas.formats.avro import AvroDecoder, AvroEncoder, avro_schema
from barnabas.formats.decoding import FAILFAST, Decoder, check_mode, decode_column
from barnabas.formats.encoding import Encoder, encode_column
from barnabas.formats.framing import HEADER, frame_header
from barnabas.formats.json_schema import json_schema_type
from barnabas.formats.problems import SHOWN_BYTES, require
from barnabas.formats.protobuf import (
    ProtobufDecoder,
    ProtobufEncoder,
    ProtobufSchema,
    protobuf_schema,
)
from barnabas.formats.protobuf_types import descriptors_in_file, registered_descriptors
from barnabas.formats.schema_files import SchemaSource, load_schema
from barnabas.formats.schema_registry import (
    AVRO,
    JSON,
    LATEST,
    PROTOBUF,
    RegisteredSchema,
    shared_registry,
)
from barnabas.spark.worker_process import TaskObject

if TYPE_CHECKING:
    from pyspark.sql import Column

Codec = TypeVar("Codec")
AvroText = tuple[str, tuple[tuple[str, str], ...]]
"""Text of an Avro schema, and the (name, text) pairs of its references."""
CORRUPT = "_corrupt_record"
INT_MAX = 2**31 - 1
JSON_TIMESTAMP = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
"""Spark's default drops microseconds."""


# ---- Avro -------------------------------------------------------------------------------------------------------


def from_avro(
    column: Column | str,
    *,
    schema: SchemaSource | None = None,
    registry: str | None = None,
    subject: str | None = None,
    version: int | str = LATEST,
    mode: str = FAILFAST,
) -> Column:
    """Decode a column of Avro records.

    `schema` is the path or the text of the schema to read with. With `registry`, the default is a version of
    `subject`, and each record is decoded with the schema that wrote it. An invalid record is an error that names its
    first bytes, or null with mode PERMISSIVE. Raises ConfigError and SchemaRegistryError.
    """
    require("fastavro", "fastavro")
    check_reader(schema, registry, subject)
    mode = check_mode(mode)
    if schema is not None:
        reader: AvroText = (load_schema(schema).text, ())
    else:
        found = registered(registry, subject, version, AVRO)
        reader = (found.text, found.references)
    arrow_type = avro_schema(*reader).arrow_type
    make = CodecFactory(avro_decoder, reader, registry)
    return decoding_column("from_avro", column, make, arrow_type, mode)


def to_avro(
    column: Column | str,
    *,
    schema: SchemaSource | None = None,
    registry: str | None = None,
    subject: str | None = None,
    version: int | str = LATEST,
) -> Column:
    """Encode a column as Avro. Fields are matched by name.

    With `registry`, records start with the id of a version of `subject`. A `schema` is registered there first. Raises
    ConfigError and SchemaRegistryError.
    """
    require("fastavro", "fastavro")
    check_writer(schema, registry, subject)
    if schema is not None:
        text: AvroText = (load_schema(schema).text, ())
        avro_encoder(text, None)  # raises an error before the schema is registered
        schema_id = registered_id(registry, subject, AVRO, text[0])
    else:
        found = registered(registry, subject, version, AVRO)
        text, schema_id = (found.text, found.references), found.id
        avro_encoder(text, schema_id)
    return encoding_column("to_avro", column, CodecFactory(avro_encoder, text, schema_id))


def avro_decoder(reader: AvroText, registry: str | None) -> AvroDecoder:
    require("fastavro", "fastavro")
    return AvroDecoder(avro_schema(*reader), finder(registry))


def avro_encoder(text: AvroText, schema_id: int | None) -> AvroEncoder:
    require("fastavro", "fastavro")
    return AvroEncoder(avro_schema(*text), schema_id)


# ---- Protobuf ---------------------------------------------------------------------------------------------------


def from_protobuf(
    column: Column | str,
    *,
    schema: SchemaSource | None = None,
    message: str | None = None,
    registry: str | None = None,
    subject: str | None = None,
    version: int | str = LATEST,
    mode: str = FAILFAST,
) -> Column:
    """Decode a column of Protobuf records.

    `schema` is the path or the text of a .proto file, or a compiled FileDescriptorSet. `message` may be left out if the
    file has one message. The other arguments are those of `from_avro`.
    """
    require("google.protobuf", "protobuf")
    check_reader(schema, registry, subject)
    mode = check_mode(mode)
    if schema is not None:
        descriptor_set = descriptors_in_file(load_schema(schema))
    else:
        descriptor_set = registered_descriptors(registered(registry, subject, version, PROTOBUF))
    reader = protobuf_schema(descriptor_set, message)
    make = CodecFactory(protobuf_decoder, reader, registry)
    return decoding_column("from_protobuf", column, make, reader.arrow_type, mode)


def to_protobuf(
    column: Column | str,
    *,
    schema: SchemaSource | None = None,
    message: str | None = None,
    registry: str | None = None,
    subject: str | None = None,
    version: int | str = LATEST,
) -> Column:
    """Encode a column as Protobuf. Fields are matched by name; a null field is left out.

    With `registry`, records start with the id of a version of `subject`. A `schema` in text form is registered there
    first. Raises ConfigError and SchemaRegistryError.
    """
    require("google.protobuf", "protobuf")
    check_writer(schema, registry, subject)
    if schema is not None:
        source = load_schema(schema)
        writer = protobuf_schema(descriptors_in_file(source), message)
        schema_id = registered_id(registry, subject, PROTOBUF, source.text) if registry else None
    else:
        found = registered(registry, subject, version, PROTOBUF)
        writer, schema_id = protobuf_schema(registered_descriptors(found), message), found.id
    return encoding_column("to_protobuf", column, CodecFactory(protobuf_encoder, writer, schema_id))


def protobuf_decoder(schema: ProtobufSchema, registry: str | None) -> ProtobufDecoder:
    require("google.protobuf", "protobuf")
    return ProtobufDecoder(schema, finder(registry))


def protobuf_encoder(schema: ProtobufSchema, schema_id: int | None) -> ProtobufEncoder:
    require("google.protobuf", "protobuf")
    return ProtobufEncoder(schema, schema_id)


# ---- JSON -------------------------------------------------------------------------------------------------------


def from_json(
    column: Column | str,
    *,
    schema: SchemaSource | None = None,
    registry: str | None = None,
    subject: str | None = None,
    version: int | str = LATEST,
    mode: str = FAILFAST,
) -> Column:
    """Parse a column of JSON records to the type of a JSON Schema.

    The arguments are those of `from_avro`. Spark parses the text, and an absent property is null.
    """
    check_reader(schema, registry, subject)
    mode = check_mode(mode)
    if schema is not None:
        arrow_type = json_schema_type(load_schema(schema).text)
    else:
        found = registered(registry, subject, version, JSON)
        arrow_type = json_schema_type(found.text, dict(found.references))
    value = as_column(column).cast("binary")
    body, is_framed = value, F.lit(True)
    if registry is not None:
        body = F.substring(value, HEADER.size + 1, INT_MAX)
        is_framed = (F.substring(value, 1, 1) == F.lit(b"\0")) & (F.length(value) > HEADER.size)
    text = F.try_validate_utf8(body.cast("string"))
    row_type = from_arrow_type(arrow_type).add(CORRUPT, "string")
    parsed = F.from_json(
        text, row_type, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    )
    is_valid = F.coalesce(is_framed & parsed.isNotNull() & parsed[CORRUPT].isNull(), F.lit(False))
    return (
        F.when(value.isNotNull() & is_valid, parsed.dropFields(CORRUPT))
        .when(value.isNotNull() & ~is_valid, json_failure(value, registry, mode))
        .otherwise(F.lit(None))
    )


def json_failure(value: Column, registry: str | None, mode: str) -> Column:
    """Return the column for an invalid record: an error that names its first bytes, or null."""
    if mode != FAILFAST:
        return F.lit(None)
    shape = "JSON that fits the schema" + (" after a schema id" if registry else "")
    return F.raise_error(
        F.concat(
            F.lit(f"cannot decode a record: it is not {shape}; first bytes: "),
            F.lower(F.hex(F.substring(value, 1, SHOWN_BYTES))),
            *(F.lit(" ("), F.length(value).cast("string"), F.lit(" bytes); ")),
            F.lit("mode='PERMISSIVE' decodes invalid records to null"),
        )
    )


def to_json(
    column: Column | str,
    *,
    registry: str,
    subject: str,
    schema: SchemaSource | None = None,
    version: int | str = LATEST,
) -> Column:
    """Encode a column as JSON after the id of a version of `subject`. A `schema` is registered there first.

    Rows are not validated against the schema. Without a registry, use Spark's `to_json`. Raises ConfigError and
    SchemaRegistryError.
    """
    check_writer(schema, registry, subject)
    if schema is not None:
        text = load_schema(schema).text
        json_schema_type(text)
        schema_id = registered_id(registry, subject, JSON, text)
    else:
        schema_id = registered(registry, subject, version, JSON).id
    assert schema_id is not None
    text_column = F.to_json(as_column(column), {"timestampFormat": JSON_TIMESTAMP})
    return F.concat(F.lit(frame_header(schema_id)), text_column.cast("binary"))


# ---- shared -----------------------------------------------------------------------------------------------------


def check_reader(schema: object, registry: str | None, subject: str | None) -> None:
    if schema is None and registry is None:
        raise ConfigError("schema", "is missing; pass schema=, or registry= and subject=")
    if schema is None and subject is None:
        raise ConfigError("subject", "is missing; a topic's values usually have <topic>-value")
    if subject is not None and registry is None:
        raise ConfigError(
            "registry", "is missing; pass registry='http://host:8081', or no subject="
        )


def check_writer(schema: object, registry: str | None, subject: str | None) -> None:
    check_reader(schema, registry, subject)
    if registry is not None and subject is None:
        raise ConfigError("subject", "is missing; a topic's values usually have <topic>-value")


def registered(
    registry: str | None, subject: str | None, version: int | str, schema_type: str
) -> RegisteredSchema:
    """Return a version of a subject. Raises ConfigError if it has another format."""
    assert registry is not None and subject is not None
    found = shared_registry(registry).by_subject(subject, version)
    if found.type != schema_type:
        hint = f"use from_{found.type.lower()} and to_{found.type.lower()}"
        raise ConfigError("subject", f"{subject} has a {found.type} schema; {hint}")
    return found


def registered_id(
    registry: str | None, subject: str | None, schema_type: str, text: str
) -> int | None:
    """Register a schema and return its id, or None without a registry."""
    if registry is None:
        return None
    assert subject is not None
    return shared_registry(registry).register(subject, schema_type, text)


def finder(registry: str | None) -> Callable[[int], RegisteredSchema] | None:
    return None if registry is None else shared_registry(registry).by_id


def as_column(column: Column | str) -> Column:
    return F.col(column) if isinstance(column, str) else column


class CodecFactory(TaskObject, Generic[Codec]):
    """Makes the codec of a column in a worker."""

    def __init__(self, make: Callable[..., Codec], *arguments: object) -> None:
        self.make = make
        self.arguments = arguments

    def __call__(self) -> Codec:
        return self.make(*self.arguments)


def decoding_column(
    name: str,
    column: Column | str,
    make: Callable[[], Decoder],
    arrow_type: pa.DataType,
    mode: str,
) -> Column:
    """Return the column that decodes another one. A worker makes its decoder with the first batch of a task.

    `name` is the name of the function in query plans.
    """
    decoder: Decoder | None = None

    def decode(values: pa.Array) -> pa.Array:
        nonlocal decoder
        if decoder is None:
            decoder = make()
        return decode_column(values, decoder, mode)

    decode.__name__ = name
    function: Callable[[Column], Column] = arrow_udf(decode, from_arrow_type(arrow_type))
    return function(as_column(column))


def encoding_column(name: str, column: Column | str, make: Callable[[], Encoder]) -> Column:
    """Return the binary column that encodes another one."""
    encoder: Encoder | None = None

    def encode(values: pa.Array) -> pa.Array:
        nonlocal encoder
        if encoder is None:
            encoder = make()
        return encode_column(values, encoder)

    encode.__name__ = name
    function: Callable[[Column], Column] = arrow_udf(encode, BinaryType())
    return function(as_column(column))
