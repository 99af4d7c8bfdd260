"""Protobuf schemas: descriptors, the choice of a message, and Arrow types. Pure, except that text is compiled.

A schema is a FileDescriptorSet, the compiler's output: all files, each one after the files that it imports. Its last
file is the main one.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

import pyarrow as pa

from barnabas.errors import ConfigError, reason
from barnabas.formats.avro_types import list_type
from barnabas.formats.problems import DecodeError, among
from barnabas.formats.protoc import compile_file, compile_text
from barnabas.formats.schema_files import SchemaFile
from barnabas.formats.schema_registry import PROTOBUF, RegisteredSchema

BUNDLED = re.compile(r"google/(protobuf|type)/(\w+)\.proto")
"""Files that come with the compiler. A registry has no schemas for them."""
TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in (
        *("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"),
    )
}
"""Messages with one field `value`. Their column has the type of this field, and null if the message is absent."""
UNSIGNED_64 = pa.decimal128(20, 0)

Descriptor = Any
"""Descriptors of the library `protobuf` have no useful static types."""


# ---- descriptors ------------------------------------------------------------------------------------------------


def descriptors_in_file(source: SchemaFile) -> bytes:
    """Return the FileDescriptorSet of `schema=`: a .proto file, its text, or a compiled set. Raises ConfigError."""
    if source.path is not None and source.path.suffix == ".proto":
        return compile_file(source.path)
    if source.path is None and is_text(source.content):
        return compile_text(source.text, {})
    check_set(source.content)
    return source.content


def registered_descriptors(schema: RegisteredSchema) -> bytes:
    """Return the FileDescriptorSet of a schema of the registry.

    Raises DecodeError for another format, ConfigError if the schema is invalid.
    """
    if schema.type != PROTOBUF:
        raise DecodeError(f"the schema is for {schema.type}, not {PROTOBUF}")
    try:
        return descriptors_of(schema.text, schema.references)
    except ConfigError as error:
        raise ConfigError(f"schema {schema.id} of the registry", error.why) from None


@lru_cache(maxsize=256)
def descriptors_of(text: str, references: tuple[tuple[str, str], ...]) -> bytes:
    """Return the FileDescriptorSet of a schema in text form, or as the base64 of a descriptor."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.message import DecodeError as InvalidMessage

    files = (*references, ("schema.proto", text))
    try:
        compiled = [base64.b64decode(content, validate=True) for _, content in files]
        found = [FileDescriptorProto.FromString(content) for content in compiled]
    except (binascii.Error, ValueError, InvalidMessage):
        return compile_text(text, dict(references))
    for (name, _), file in zip(files, found, strict=True):
        file.name = name
    result: bytes = FileDescriptorSet(file=with_bundled_files(found)).SerializeToString()
    return result


def with_bundled_files(files: Iterable[Descriptor]) -> list[Descriptor]:
    """Return the files with the bundled files that they import, in the order of their imports."""
    ordered: dict[str, Descriptor] = {}
    for file in files:
        for name in file.dependency:
            if name not in ordered and BUNDLED.fullmatch(name):
                bundled = [bundled_file(name)]
                ordered |= {each.name: each for each in with_bundled_files(bundled)}
        ordered[file.name] = file
    return list(ordered.values())


def bundled_file(name: str) -> Descriptor:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    try:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        raise ConfigError("schema", f"imports {name}, which is not installed") from None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def check_set(descriptor_set: bytes) -> None:
    pool_of(descriptor_set)


@lru_cache(maxsize=256)
def pool_of(descriptor_set: bytes) -> tuple[Any, tuple[str, ...]]:
    """Return the pool with all types of a set, and the names of its files. Raises ConfigError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError as InvalidMessage

    try:
        files = FileDescriptorSet.FromString(descriptor_set).file
        pool = DescriptorPool()
        for file in files:
            pool.AddSerializedFile(file.SerializeToString())
            pool.FindFileByName(file.name)
    except (InvalidMessage, TypeError, KeyError, ValueError) as error:
        why = f"is not a .proto file or a compiled descriptor set: {reason(error)}"
        hint = "protoc --include_imports --descriptor_set_out=FILE writes one"
        raise ConfigError("schema", f"{why}; {hint}") from None
    if not files:
        raise ConfigError("schema", "is empty: it has no Protobuf file")
    return pool, tuple(file.name for file in files)


def is_text(content: bytes) -> bool:
    """Return whether the content is the text of a .proto file. A compiled set has control characters."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    return not any(character < " " and character not in "\t\n\r\f" for character in text)


# ---- messages ---------------------------------------------------------------------------------------------------


def find_message(descriptor_set: bytes, name: str | None) -> Descriptor:
    """Return the message with this full or short name; without a name, the only one of the main file.

    Raises ConfigError.
    """
    pool, files = pool_of(descriptor_set)
    top_level = list(pool.FindFileByName(files[-1]).message_types_by_name.values())
    known = [each for top in top_level for each in with_nested(top)]
    if name is None:
        if len(top_level) == 1:
            return top_level[0]
        choice = f"the schema has {among([each.full_name for each in top_level]) or 'no message'}"
        raise ConfigError("message", f"is missing; {choice}")
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        found = [each for each in known if each.full_name.endswith(f".{name}")]
    if len(found) != 1:
        choice = among([each.full_name for each in known])
        why = "is ambiguous" if found else "is unknown"
        raise ConfigError("message", f"{name} {why}; the schema has {choice}")
    return found[0]


def with_nested(message: Descriptor) -> Iterator[Descriptor]:
    yield message
    for nested in message.nested_types:
        if not is_map_entry(nested):
            yield from with_nested(nested)


def message_at(descriptor_set: bytes, indexes: tuple[int, ...]) -> str | None:
    """Return the full name of the message at these indexes of the main file, or None."""
    pool, files = pool_of(descriptor_set)
    types = list(pool.FindFileByName(files[-1]).message_types_by_name.values())
    name = None
    for index in indexes:
        if index >= len(types):
            return None
        name = str(types[index].full_name)
        types = list(types[index].nested_types)
    return name


def indexes_of(message: Descriptor) -> tuple[int, ...]:
    """Return the path from the file to the message, as it is written before a record."""
    outer = message.containing_type
    siblings = message.file.message_types_by_name.values() if outer is None else outer.nested_types
    index = [each.full_name for each in siblings].index(message.full_name)
    return (index,) if outer is None else (*indexes_of(outer), index)


# ---- Arrow types ------------------------------------------------------------------------------------------------


def message_type(message: Descriptor, outer: tuple[str, ...] = ()) -> pa.DataType:
    """Return the struct type of a message. `outer` has the enclosing messages. Raises ConfigError."""
    if message.full_name in outer:
        why = f"message {message.full_name} contains itself; Spark has no recursive types"
        raise ConfigError("schema", f"{why}: read it with a schema without this field")
    inner = (*outer, message.full_name)
    return pa.struct([(field.name, field_type(field, inner)) for field in column_fields(message)])


def column_fields(message: Descriptor) -> list[Descriptor]:
    """Return the fields that become columns. Parquet has no empty structs, so fields of empty messages are left out."""
    return [field for field in message.fields if not is_empty(field.message_type, ())]


def is_empty(message: Descriptor | None, outer: tuple[str, ...]) -> bool:
    """Return whether a message has no fields, or only fields of empty messages. `outer` has the enclosing messages."""
    if message is None or message.full_name in outer:
        return False
    inner = (*outer, message.full_name)
    return all(is_empty(field.message_type, inner) for field in message.fields)


def field_type(field: Descriptor, outer: tuple[str, ...]) -> pa.DataType:
    if is_map(field):
        key, value = field.message_type.fields
        return pa.map_(value_type(key, outer), value_type(value, outer))
    kind = value_type(field, outer)
    return list_type(kind) if field.is_repeated else kind


def value_type(field: Descriptor, outer: tuple[str, ...]) -> pa.DataType:
    """Return the type of one value of a field."""
    if field.message_type is None:
        return scalar_types()[field.type]
    match field.message_type.full_name:
        case "google.protobuf.Timestamp":
            return pa.timestamp("us", tz="UTC")
        case "google.protobuf.Duration":
            return pa.duration("us")
        case name if name in WRAPPERS:
            return value_type(field.message_type.fields[0], outer)
        case _:
            return message_type(field.message_type, outer)


@lru_cache(maxsize=1)
def scalar_types() -> Mapping[int, pa.DataType]:
    """Arrow types by Protobuf type. Unsigned integers get the next wider type, so that every value fits."""
    from google.protobuf.descriptor import FieldDescriptor as Field

    return {
        **dict.fromkeys((Field.TYPE_INT32, Field.TYPE_SINT32, Field.TYPE_SFIXED32), pa.int32()),
        **dict.fromkeys((Field.TYPE_INT64, Field.TYPE_SINT64, Field.TYPE_SFIXED64), pa.int64()),
        **dict.fromkeys((Field.TYPE_UINT32, Field.TYPE_FIXED32), pa.int64()),
        **dict.fromkeys((Field.TYPE_UINT64, Field.TYPE_FIXED64), UNSIGNED_64),
        Field.TYPE_DOUBLE: pa.float64(),
        Field.TYPE_FLOAT: pa.float32(),
        Field.TYPE_BOOL: pa.bool_(),
        Field.TYPE_STRING: pa.string(),
        Field.TYPE_BYTES: pa.binary(),
        Field.TYPE_ENUM: pa.string(),
    }


def is_map(field: Descriptor) -> bool:
    return field.message_type is not None and field.is_repeated and is_map_entry(field.message_type)


def is_map_entry(message: Descriptor) -> bool:
    return bool(message.GetOptions().map_entry)
