"""Avro records: decoding with the writer's schema to the reader's schema, and encoding. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import InvalidOperation
from functools import cached_property, lru_cache
from io import BytesIO
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from barnabas.errors import ConfigError, reason
from barnabas.formats.avro_limits import check_limits
from barnabas.formats.avro_types import UUID_AS_TEXT, AvroSchema, parse_avro, uuid_text
from barnabas.formats.decoding import cast_times, columns_to_arrow
from barnabas.formats.framing import frame_header, split_header
from barnabas.formats.problems import DecodeError, EncodeError
from barnabas.formats.schema_registry import AVRO, RegisteredSchema

INVALID_BYTES = (
    *(EOFError, IndexError, ValueError, KeyError, TypeError, struct.error, OverflowError),
    *(InvalidOperation, MemoryError, RecursionError),
)
"""Exceptions of fastavro for bytes that do not fit the schema."""

FindSchema = Callable[[int], RegisteredSchema]


class Resolution(NamedTuple):
    """The schemas for fastavro: the writer's, and the reader's if it differs."""

    writer: AvroSchema
    reader: Any | None


@lru_cache(maxsize=256)
def avro_schema(text: str, references: tuple[tuple[str, str], ...] = ()) -> AvroSchema:
    """Parse a schema once per process. Raises ConfigError."""
    add_logical_types()
    return parse_avro(text, references)


def registered_avro(schema: RegisteredSchema) -> AvroSchema:
    """Return a schema of the registry. Raises DecodeError for another format, ConfigError if it is invalid."""
    if schema.type != AVRO:
        raise DecodeError(f"the schema is for {schema.type}, not {AVRO}")
    try:
        return avro_schema(schema.text, schema.references)
    except ConfigError as error:
        raise ConfigError(f"schema {schema.id} of the registry", error.why) from None


@lru_cache(maxsize=1)
def add_logical_types() -> None:
    """Teach fastavro UUIDs in 16 bytes as text. Its own logical types stay as they are."""
    from fastavro.read import LOGICAL_READERS
    from fastavro.write import LOGICAL_WRITERS

    LOGICAL_READERS[f"fixed-{UUID_AS_TEXT}"] = lambda data, *_: uuid_text(data)
    LOGICAL_WRITERS[f"fixed-{UUID_AS_TEXT}"] = lambda text, *_: UUID(text).bytes


class AvroDecoder:
    """Decodes records to the reader's schema.

    With `find_schema`, each record starts with the id of its writer's schema. Without it, the writer's schema is the
    reader's.
    """

    def __init__(self, reader: AvroSchema, find_schema: FindSchema | None = None) -> None:
        from fastavro import schemaless_reader
        from fastavro.read import SchemaResolutionError

        self.read = schemaless_reader
        self.errors = (*INVALID_BYTES, SchemaResolutionError)
        self.reader = reader
        self.find_schema = find_schema
        self.resolutions: dict[int, Resolution | DecodeError] = {}
        """By schema id. An id without a schema has its error, so that the registry is asked once per task."""

    def decode(self, data: bytes) -> Any:
        """Decode one record. Raises DecodeError."""
        if self.find_schema is None:
            return self.read_value(data, 0, Resolution(self.reader, None))
        schema_id, position = split_header(data)
        try:
            return self.read_value(data, position, self.resolution(schema_id))
        except DecodeError as error:
            raise DecodeError(f"{error} (schema id {schema_id})") from None

    def resolution(self, schema_id: int) -> Resolution:
        found = self.resolutions.get(schema_id)
        if found is None:
            assert self.find_schema is not None
            try:
                writer = registered_avro(self.find_schema(schema_id))
                is_same = writer.raw == self.reader.raw
                found = Resolution(writer, None if is_same else self.reader.raw)
            except DecodeError as error:
                found = error
            self.resolutions[schema_id] = found
        if isinstance(found, DecodeError):
            raise found
        return found

    def read_value(self, data: bytes, position: int, resolution: Resolution) -> Any:
        writer, reader = resolution
        if writer.needs_limits:
            check_limits(data, position, writer.parsed, writer.named)
        stream = BytesIO(data)
        stream.seek(position)
        try:
            value = self.read(stream, writer.raw, reader)
        except self.errors as error:
            raise DecodeError(explain_mismatch(error)) from None
        if left := len(data) - stream.tell():
            raise DecodeError(f"{left} trailing bytes after the record: another schema wrote it")
        return value

    def to_arrow(self, values: Sequence[Any]) -> pa.Array:
        column = columns_to_arrow(values, self.reader.stored_type)
        return cast_times(column, self.reader.arrow_type)


def explain_mismatch(error: BaseException) -> str:
    from fastavro.read import SchemaResolutionError

    if isinstance(error, SchemaResolutionError):
        why = f"the writer's schema does not fit the reader's: {reason(error)}"
        return f"{why}; pass a schema= that fits both"
    if isinstance(error, EOFError | IndexError):
        why = "they end too early, or have an invalid index of a union or enum"
        return f"the bytes do not fit the schema: {why}"
    return f"the bytes do not fit the schema: {reason(error)}"


class AvroEncoder:
    """Encodes rows, after the schema id if there is one."""

    def __init__(self, schema: AvroSchema, schema_id: int | None = None) -> None:
        self.schema = schema
        self.row_type = schema.stored_type
        self.header = b"" if schema_id is None else frame_header(schema_id)

    @cached_property
    def write(self) -> Callable[..., None]:
        from fastavro import schemaless_writer

        write: Callable[..., None] = schemaless_writer
        return write

    def encode(self, row: Any) -> bytes:
        """Encode one row. Raises EncodeError."""
        stream = BytesIO()
        stream.write(self.header)
        try:
            self.write(stream, self.schema.raw, row, strict_allow_default=True)
        except INVALID_BYTES as error:
            raise EncodeError(f"a row does not fit the Avro schema: {reason(error)}") from None
        return stream.getvalue()
