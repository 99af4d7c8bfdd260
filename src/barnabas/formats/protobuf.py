"""Protobuf records: decoding to Arrow, column by column, and encoding. Pure.

Fields are matched by number, so the reader's schema reads the records of any compatible writer. With a registry, the
writer's schema is used to check that a record has the expected message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from barnabas.errors import ConfigError, reason
from barnabas.formats.decoding import cast_times
from barnabas.formats.framing import encode_indexes, frame_header, split_header, split_indexes
from barnabas.formats.problems import DecodeError, EncodeError, among
from barnabas.formats.protobuf_types import (
    DURATION,
    TIMESTAMP,
    WRAPPERS,
    Descriptor,
    column_fields,
    find_message,
    indexes_of,
    is_map,
    message_at,
    message_type,
    registered_descriptors,
    value_type,
)
from barnabas.formats.schema_registry import RegisteredSchema

MICROS = 1_000_000


class ProtobufSchema(NamedTuple):
    """One message of a compiled schema."""

    descriptor_set: bytes
    message: str
    """Full name."""

    @property
    def descriptor(self) -> Descriptor:
        return find_message(self.descriptor_set, self.message)

    @property
    def arrow_type(self) -> pa.DataType:
        return message_type(self.descriptor)


def protobuf_schema(descriptor_set: bytes, message: str | None) -> ProtobufSchema:
    """Choose a message of a schema. Raises ConfigError, also if the message has no Spark type."""
    descriptor = find_message(descriptor_set, message)
    if not column_fields(descriptor):
        raise ConfigError("message", f"{descriptor.full_name} has no fields")
    message_type(descriptor)
    return ProtobufSchema(descriptor_set, descriptor.full_name)


@lru_cache(maxsize=256)
def protobuf_class(schema: ProtobufSchema) -> type[Any]:
    from google.protobuf.message_factory import GetMessageClass

    found: type[Any] = GetMessageClass(schema.descriptor)
    return found


# ---- decoding ---------------------------------------------------------------------------------------------------


class ProtobufDecoder:
    """Decodes records of one message. With `find_schema`, each record starts with a schema id and message indexes."""

    def __init__(
        self,
        schema: ProtobufSchema,
        find_schema: Callable[[int], RegisteredSchema] | None = None,
    ) -> None:
        from google.protobuf.message import DecodeError as InvalidMessage

        self.schema = schema
        self.parse = protobuf_class(schema).FromString
        self.invalid = InvalidMessage
        self.find_schema = find_schema
        self.messages: dict[tuple[int, tuple[int, ...]], str] = {}
        """Return why a record with this schema id and these message indexes cannot be decoded, or an empty text."""

    def decode(self, data: bytes) -> Any:
        """Parse one record. Raises DecodeError."""
        if self.find_schema is not None:
            schema_id, position = split_header(data)
            indexes, position = split_indexes(data, position)
            if problem := self.problem(schema_id, indexes):
                raise DecodeError(f"{problem} (schema id {schema_id})")
            data = data[position:]
        try:
            return self.parse(data)
        except (self.invalid, RecursionError):
            raise DecodeError(f"the bytes are not a message {self.schema.message}") from None

    def problem(self, schema_id: int, indexes: tuple[int, ...]) -> str:
        found = self.messages.get((schema_id, indexes))
        if found is None:
            assert self.find_schema is not None
            try:
                written = message_at(registered_descriptors(self.find_schema(schema_id)), indexes)
                expected = self.schema.message
                found = (
                    ""
                    if written == expected
                    else f"the message is {written or 'not in the schema'}, not {expected}"
                )
            except DecodeError as error:
                found = str(error)
            self.messages[schema_id, indexes] = found
        return found

    def to_arrow(self, values: Sequence[Any]) -> pa.Array:
        column = messages_to_arrow(values, self.schema.descriptor)
        return cast_times(column, self.schema.arrow_type)


def messages_to_arrow(messages: Sequence[Any], descriptor: Descriptor) -> pa.Array:
    """Return the struct column of messages. None is null."""
    fields = column_fields(descriptor)
    columns = [field_column(messages, field) for field in fields]
    mask = pa.array([message is None for message in messages], pa.bool_())
    return pa.StructArray.from_arrays(columns, [field.name for field in fields], mask=mask)


def field_column(messages: Sequence[Any], field: Descriptor) -> pa.Array:
    name = field.name
    if field.is_repeated:
        lists = [None if each is None else getattr(each, name) for each in messages]
        return map_column(lists, field) if is_map(field) else list_column(lists, field)
    if field.has_presence:
        return value_column(
            [
                getattr(each, name) if each is not None and each.HasField(name) else None
                for each in messages
            ],
            field,
        )
    return value_column([None if each is None else getattr(each, name) for each in messages], field)


def list_column(lists: Sequence[Any], field: Descriptor) -> pa.Array:
    items = value_column([item for each in lists if each is not None for item in each], field)
    kind = pa.list_(pa.field("element", items.type))
    return pa.ListArray.from_arrays(offsets_of(lists), items, type=kind)


def map_column(maps: Sequence[Any], field: Descriptor) -> pa.Array:
    key_field, item_field = field.message_type.fields
    entries = [(key, each[key]) for each in maps if each is not None for key in each]
    keys = value_column([key for key, _ in entries], key_field)
    items = value_column([item for _, item in entries], item_field)
    return pa.MapArray.from_arrays(offsets_of(maps), keys, items)


def offsets_of(lists: Sequence[Any]) -> pa.Array:
    """Return the offsets of lists in their flattened elements. The offset of a null list is null."""
    offsets: list[int | None] = []
    end = 0
    for each in lists:
        offsets.append(None if each is None else end)
        end += 0 if each is None else len(each)
    return pa.array([*offsets, end], pa.int32())


def value_column(values: Sequence[Any], field: Descriptor) -> pa.Array:
    """Return a column of single values of a field. None is null."""
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        texts = [None if each is None else enum_text(names, each) for each in values]
        return pa.array(texts, pa.string())
    if field.message_type is None:
        return pa.array(values, value_type(field, ()))
    name = field.message_type.full_name
    if name in WRAPPERS:
        inner = [None if each is None else each.value for each in values]
        return value_column(inner, field.message_type.fields[0])
    if name in (TIMESTAMP, DURATION):
        micros = [
            None if each is None else each.seconds * MICROS + each.nanos // 1000 for each in values
        ]
        return pa.array(micros, value_type(field, ()))
    return messages_to_arrow(values, field.message_type)


def enum_text(names: Mapping[int, Any], number: int) -> str:
    """Return the name of an enum value. A number that the schema does not have stays a number."""
    found = names.get(number)
    return str(number) if found is None else str(found.name)


# ---- encoding ---------------------------------------------------------------------------------------------------


class ProtobufEncoder:
    """Encodes rows, after the schema id and message indexes if there is an id."""

    def __init__(self, schema: ProtobufSchema, schema_id: int | None = None) -> None:
        self.schema = schema
        self.row_type = schema.arrow_type
        self.header = b""
        if schema_id is not None:
            self.header = frame_header(schema_id) + encode_indexes(indexes_of(schema.descriptor))

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """Encode one row. Raises EncodeError."""
        from google.protobuf.message import EncodeError as InvalidMessage

        message = protobuf_class(self.schema)()
        try:
            fill_message(message, row)
            body: bytes = message.SerializeToString()
        except (InvalidMessage, ValueError, TypeError, KeyError, OverflowError) as error:
            why = f"a row does not fit the message {self.schema.message}"
            raise EncodeError(f"{why}: {reason(error)}") from None
        return self.header + body


def fill_message(message: Any, row: Mapping[str, Any]) -> None:
    """Set the fields of a message. A null value leaves the field unset."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in row.items():
        if value is None:
            continue
        field = fields[name]
        check_oneof(message, field)
        if is_map(field):
            fill_map(getattr(message, name), value, field.message_type.fields[1])
        elif field.is_repeated:
            fill_list(getattr(message, name), value, field)
        elif field.message_type is not None:
            inner = getattr(message, name)
            inner.SetInParent()
            fill_value(inner, value)
        else:
            setattr(message, name, scalar(value, field))


def check_oneof(message: Any, field: Descriptor) -> None:
    oneof = field.containing_oneof
    if oneof is not None and (other := message.WhichOneof(oneof.name)):
        raise EncodeError(
            f"fields {other} and {field.name} are both set, but oneof {oneof.name} allows one; "
            "set the others to null"
        )


def fill_map(target: Any, entries: Mapping[Any, Any], field: Descriptor) -> None:
    for key, value in entries.items():
        if value is None:
            raise EncodeError(f"a map has null for the key {key!r}, which Protobuf does not allow")
        if field.message_type is not None:
            fill_value(target[key], value)
        else:
            target[key] = scalar(value, field)


def fill_list(target: Any, values: Sequence[Any], field: Descriptor) -> None:
    for value in values:
        if value is None:
            raise EncodeError(
                f"field {field.name} has a null element, which Protobuf does not allow"
            )
        if field.message_type is not None:
            fill_value(target.add(), value)
        else:
            target.append(scalar(value, field))


def fill_value(message: Any, value: Any) -> None:
    """Set a nested message from the value of its column."""
    name = message.DESCRIPTOR.full_name
    if name in WRAPPERS:
        message.value = scalar(value, message.DESCRIPTOR.fields[0])
    elif name == TIMESTAMP:
        message.seconds, micros = divmod(value, MICROS)
        message.nanos = micros * 1000
    elif name == DURATION:
        # Both parts of a duration have the same sign.
        sign = -1 if value < 0 else 1
        seconds, micros = divmod(abs(value), MICROS)
        message.seconds, message.nanos = sign * seconds, sign * micros * 1000
    else:
        fill_message(message, value)


def scalar(value: Any, field: Descriptor) -> Any:
    if field.enum_type is not None:
        return enum_number(value, field.enum_type)
    # Unsigned 64-bit integers are decimals in Spark.
    return int(value) if isinstance(value, Decimal) else value


def enum_number(text: str, enum: Descriptor) -> int:
    """Return the number of an enum value, which is its name or a number."""
    found = enum.values_by_name.get(text)
    if found is not None:
        return int(found.number)
    if not text.removeprefix("-").isdecimal():
        known = among([value.name for value in enum.values])
        raise EncodeError(f"{text!r} is not a value of enum {enum.full_name}; it has {known}")
    return int(text)
