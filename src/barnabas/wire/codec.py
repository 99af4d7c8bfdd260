"""Encoding and decoding of Kafka messages: an annotated class is the schema, compiled once per version into closures.

    timeout_ms: Int32 = 60_000                                  in every version
    validate_only: Annotated[Bool, Since(1)] = False            from version 1 on; the default applies before
    replica_id: Annotated[Int32, Until(14)] = -1                up to and including version 14
    name: Annotated[str | None, NullableSince(10)]              null is allowed from version 10 on
    cluster_id: Annotated[str | None, Since(12), Tag(0)] = None a tagged field, not sent if it has its default
    topics: Annotated[tuple[Topic, ...], Since(6), Essential]   if it is set, versions without it cannot be encoded

From FLEXIBLE_SINCE on, sizes and counts are varints of n + 1, and every struct ends with tagged fields. Unknown tags
are skipped. A message is an ApiMessage (apis.py) with keyword arguments. Most structs inside it are NamedTuples.

Invariants:

- Bytes fields are returned as memoryviews of the input, without a copy. The input must not change while they are used.
- Trailing bytes after a message are ignored.
- Decoding raises RemoteWireError only. Sizes and counts are checked against the remaining bytes before memory is
  allocated for them.
- Encoding raises LocalWireError for a value that does not fit its field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter, itemgetter
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Protocol,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

from msgspec import NODEFAULT

from barnabas.errors import LocalWireError, RemoteWireError
from barnabas.wire.primitives import (
    Append,
    TypeCodec,
    array_codec,
    bytes_codec,
    fixed_codec,
    nullable_struct_codec,
    read_tags,
    read_uuid,
    string_codec,
    uvarint,
    write_uuid,
)

# ---- annotations of schemas -----------------------------------------------------------------------------------


class Fixed:
    """A big-endian number of fixed width. `letter` is its format character in `struct`."""

    def __init__(self, letter: str) -> None:
        self.letter = letter


class Blob:
    """Opaque bytes after a size of four bytes, or after a varint in flexible versions."""


class FieldMark:
    """Annotation of a field with a number.

    It must not be a tuple: `Annotated` merges annotations that compare equal, and would return Until(3) for Since(3).
    """

    def __init__(self, number: int) -> None:
        self.number = number


class Since(FieldMark):
    """The first version that has the field."""


class Until(FieldMark):
    """The last version that has the field."""


class NullableSince(FieldMark):
    """The first version in which the field may be null."""


class Tag(FieldMark):
    """The field is tagged with this number."""


class EssentialMark:
    """Marks a field that must not be dropped: without it the message has another meaning."""


Essential = EssentialMark()

Bool = Annotated[bool, Fixed("?")]
Int8 = Annotated[int, Fixed("b")]
Int16 = Annotated[int, Fixed("h")]
Int32 = Annotated[int, Fixed("i")]
Int64 = Annotated[int, Fixed("q")]
Float64 = Annotated[float, Fixed("d")]
Bytes = Annotated[bytes | memoryview, Blob()]
Records = Bytes


class Message(Protocol):
    """A request or response class."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[range]
    FLEXIBLE_SINCE: ClassVar[int]


M = TypeVar("M", bound=Message)

VERSION = struct.Struct(">h")
ELEMENT_BYTES = 1024
"""Bytes whose encoding takes about as long as that of an element."""

# ---- encode and decode ----------------------------------------------------------------------------------------


class MessageTooLarge(Exception):
    """An encoded message would be larger than allowed."""


def encode(message: Message, version: int, *, bytes_max: int | None = None) -> bytes:
    """Return the encoded message. Raises MessageTooLarge as soon as it exceeds `bytes_max` bytes."""
    if bytes_max is None:
        return b"".join(encode_parts(message, version))
    # A list of small parts would take ten times as much memory as the whole message.
    whole = bytearray()

    def append(part: bytes) -> None:
        whole.extend(part)
        if len(whole) > bytes_max:
            whole.clear()  # the traceback keeps `whole` alive until the next garbage collection
            raise MessageTooLarge(f"{type(message).__name__} exceeds {bytes_max} bytes")

    write_message(message, version, append)
    return bytes(whole)


def encode_parts(message: Message, version: int) -> list[bytes]:
    """Return the encoded message as a list of parts."""
    parts: list[bytes] = []
    write_message(message, version, parts.append)
    return parts


def write_message(message: Message, version: int, append: Append) -> None:
    cls = type(message)
    if version not in cls.VERSIONS:
        raise LocalWireError(f"{cls.__name__} has no version {version}")
    write_struct(message, version, version >= cls.FLEXIBLE_SINCE, append)


def encode_struct(value: Any, version: int, flexible: bool) -> list[bytes]:
    """Return an encoded struct as a list of parts, for callers that build messages from parts."""
    parts: list[bytes] = []
    write_struct(value, version, flexible, parts.append)
    return parts


def encode_versioned(value: Any, version: int) -> bytes:
    """Return the version (2 bytes) and the struct in this version, which is not flexible."""
    return VERSION.pack(version) + b"".join(encode_struct(value, version, flexible=False))


def write_struct(value: Any, version: int, flexible: bool, append: Append) -> None:
    try:
        compile_struct(value.__class__, version, flexible).write(value, append)
    except (struct.error, UnicodeEncodeError, AttributeError, TypeError) as error:
        raise LocalWireError(f"{type(value).__name__} v{version}: {error}") from error


def has_more_elements(value: Any, limit: int) -> bool:
    """Return whether a message holds more than `limit` elements in total. Stops counting at the limit."""
    return count_elements(value, limit) > limit


def count_elements(value: Any, limit: int) -> int:
    """Return the number of elements in the arrays of a message, or any number above `limit` if there are more.

    ELEMENT_BYTES bytes count as an element.
    """
    fields = (
        value
        if isinstance(value, tuple)
        else map(value.__getattribute__, getattr(value, "__struct_fields__", ()))
    )
    count = 0
    for field in fields:
        if type(field) is tuple or type(field) is list:
            count += len(field)
            if count > limit:
                return count
            if field and isinstance(field[0], tuple):
                for element in field:
                    count += count_elements(element, limit - count)
                    if count > limit:
                        return count
        elif type(field) is bytes:
            count += len(field) // ELEMENT_BYTES
    return count


def decode(cls: type[M], version: int, data: memoryview | bytes, at: int = 0) -> M:
    """Return the message that begins at position `at`. Raises RemoteWireError."""
    return decode_from(cls, version, data, at)[0]


def decode_from(cls: type[M], version: int, data: memoryview | bytes, at: int = 0) -> tuple[M, int]:
    """Return the message that begins at position `at`, and the position after it. Raises RemoteWireError."""
    if version not in cls.VERSIONS:
        raise RemoteWireError(f"{cls.__name__} has no version {version}")
    try:
        message, end = compile_struct(cls, version, version >= cls.FLEXIBLE_SINCE).read(
            memoryview(data), at
        )
    except (struct.error, IndexError) as error:
        raise RemoteWireError(f"{cls.__name__} v{version} ends too early") from error
    except UnicodeDecodeError as error:
        raise RemoteWireError(f"{cls.__name__} v{version}: not UTF-8") from error
    return message, end


# ---- codec of a type ------------------------------------------------------------------------------------------


def build_codec(hint: Any, version: int, flexible: bool, nullable: bool = False) -> TypeCodec:
    """Return the codec of a type hint. `nullable` is true if null is allowed in this version."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        for mark in marks:
            if isinstance(mark, Fixed):
                return fixed_codec(mark.letter)
            if isinstance(mark, Blob):
                return bytes_codec(flexible, nullable)
        return build_codec(inner, version, flexible, nullable)
    if type(None) in get_args(hint):
        (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
        return build_codec(inner, version, flexible, nullable)
    if hint is str:
        return string_codec(flexible, nullable)
    if hint is UUID:
        return TypeCodec(read_uuid, write_uuid, 16)
    if get_origin(hint) is tuple:
        return array_codec(build_codec(get_args(hint)[0], version, flexible), flexible, nullable)
    codec = compile_struct(hint, version, flexible)
    return nullable_struct_codec(codec) if nullable else codec


# ---- codec of a struct ----------------------------------------------------------------------------------------


class Field(NamedTuple):
    name: str
    codec: TypeCodec
    tag: int | None
    default: Any


class StructLayout(NamedTuple):
    """The fields of a struct in one version, in the order of encoding."""

    plain: list[Field]
    tagged: list[Field]
    absent: dict[str, Any]
    """Fields that this version does not have, with their defaults."""
    essential: list[str]
    """The absent fields marked Essential: encoding a value other than the default is an error."""


@cache
def compile_struct(cls: type[Any], version: int, flexible: bool) -> TypeCodec:
    """Return the codec of a struct in one version."""
    layout = build_struct_layout(cls, version, flexible)
    write = make_struct_writer(cls.__name__, version, flexible, layout)
    read = make_struct_reader(cls, flexible, layout)
    return TypeCodec(read, write, sum(field.codec.min_bytes for field in layout.plain) + flexible)


def build_struct_layout(cls: type[Any], version: int, flexible: bool) -> StructLayout:
    layout = StructLayout([], [], {}, [])
    hints = get_type_hints(cls, include_extras=True)
    for name, default in field_defaults(cls):
        hint = hints[name]
        base, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        numbers = {type(mark): mark.number for mark in marks if isinstance(mark, FieldMark)}
        if numbers.get(Since, 0) <= version <= numbers.get(Until, version):
            nullable = type(None) in get_args(base) and version >= numbers.get(NullableSince, 0)
            tag = numbers.get(Tag)
            field = Field(name, build_codec(hint, version, flexible, nullable), tag, default)
            (layout.plain if tag is None else layout.tagged).append(field)
        else:
            assert default is not NODEFAULT, f"{cls.__name__}.{name} needs a default"
            layout.absent[name] = default
            if Essential in marks:
                layout.essential.append(name)
    layout.tagged.sort(key=lambda field: field.tag or 0)
    return layout


def field_defaults(cls: type[Any]) -> Iterable[tuple[str, Any]]:
    """Return the name and the default of each field; NODEFAULT for a required field."""
    if issubclass(cls, tuple):
        names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
        return [(name, cls._field_defaults.get(name, NODEFAULT)) for name in names]  # type: ignore[attr-defined]
    defaults: tuple[Any, ...] = cls.__struct_defaults__  # of the last fields
    names = cls.__struct_fields__
    required = (NODEFAULT,) * (len(names) - len(defaults))
    return list(zip(names, required + defaults, strict=True))


def group_fixed_width(plain: list[Field]) -> list[list[Field]]:
    """Group consecutive fixed-width fields, to pack each group in one call. Other fields form groups of one."""
    groups: list[list[Field]] = []
    for field in plain:
        if field.codec.letter and groups and groups[-1][0].codec.letter:
            groups[-1].append(field)
        else:
            groups.append([field])
    return groups


def make_struct_writer(
    name: str, version: int, flexible: bool, layout: StructLayout
) -> Callable[[Any, Append], None]:
    steps = [make_write_step(group) for group in group_fixed_width(layout.plain)]
    if layout.tagged:
        steps.append(make_tags_writer(layout.tagged))
    elif flexible:
        steps.append(lambda value, append: append(b"\x00"))
    essential = [(field, layout.absent[field]) for field in layout.essential]

    def write(value: Any, append: Append) -> None:
        for field, default in essential:
            if getattr(value, field) != default:
                raise LocalWireError(f"{name} v{version} has no {field}")
        for step in steps:
            step(value, append)

    return write


def make_write_step(group: list[Field]) -> Callable[[Any, Append], None]:
    get = attrgetter(*(field.name for field in group))
    if len(group) > 1:
        pack = struct.Struct(">" + "".join(field.codec.letter for field in group)).pack
        return lambda value, append: append(pack(*get(value)))
    write = group[0].codec.write
    return lambda value, append: write(get(value), append)


def make_tags_writer(tagged: list[Field]) -> Callable[[Any, Append], None]:
    def write(value: Any, append: Append) -> None:
        present = [field for field in tagged if getattr(value, field.name) != field.default]
        append(uvarint(len(present)))
        for field in present:
            parts: list[bytes] = []
            field.codec.write(getattr(value, field.name), parts.append)
            raw = b"".join(parts)
            append(uvarint(field.tag or 0) + uvarint(len(raw)) + raw)

    return write


ReadStep = Callable[[memoryview, int, list[Any]], int]


def make_struct_reader(
    cls: type[Any], flexible: bool, layout: StructLayout
) -> Callable[[memoryview, int], tuple[Any, int]]:
    steps = [make_read_step(group) for group in group_fixed_width(layout.plain)]
    if flexible:
        steps.append(make_tags_reader(layout.tagged))
    order = [field.name for field in (*layout.plain, *layout.tagged)]
    build = make_builder(cls, [*order, *layout.absent])
    absent = list(layout.absent.values())

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        values: list[Any] = []
        for step in steps:
            at = step(data, at, values)
        return build(values + absent), at

    return read


def make_read_step(group: list[Field]) -> ReadStep:
    if len(group) > 1:
        numbers = struct.Struct(">" + "".join(field.codec.letter for field in group))
        unpack_from, size = numbers.unpack_from, numbers.size

        def read_numbers(data: memoryview, at: int, values: list[Any]) -> int:
            values += unpack_from(data, at)
            return at + size

        return read_numbers
    read = group[0].codec.read

    def read_one(data: memoryview, at: int, values: list[Any]) -> int:
        value, at = read(data, at)
        values.append(value)
        return at

    return read_one


def make_tags_reader(tagged: list[Field]) -> ReadStep:
    known = {field.tag: (index, field.codec.read) for index, field in enumerate(tagged)}
    defaults = [field.default for field in tagged]

    def read(data: memoryview, at: int, values: list[Any]) -> int:
        first = len(values)
        values += defaults
        if not data[at]:
            return at + 1
        found, after = read_tags(data, at)
        for tag, start, end in found:
            if tag in known:
                index, read_value = known[tag]
                values[first + index], stop = read_value(data, start)
                if stop != end:
                    raise RemoteWireError(
                        f"tag {tag} at {start} has {end - start} bytes, but its value has {stop - start}"
                    )
        return after

    return read


def make_builder(cls: type[Any], order: list[str]) -> Callable[[list[Any]], Any]:
    """Return a function that builds a `cls` from a list of values in this order of fields."""
    if issubclass(cls, tuple):
        names: list[str] = list(cls._fields)  # type: ignore[attr-defined]
        make: Callable[[Iterable[Any]], Any] = cls._make  # type: ignore[attr-defined]
        if names == order or len(names) == 1:
            return make
        pick = itemgetter(*(order.index(name) for name in names))
        return lambda values: make(pick(values))
    return lambda values: cls(**dict(zip(order, values, strict=True)))
