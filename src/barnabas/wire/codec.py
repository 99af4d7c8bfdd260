"""Messages to bytes and back: an annotated dataclass is the schema, compiled once per version into closures.

    timeout_ms: Int32 = 60_000                                  in every version
    validate_only: Annotated[Bool, Since(1)] = False            from version 1 on; before it the default stands in
    replica_id: Annotated[Int32, Until(14)] = -1                up to and with version 14
    name: Annotated[str | None, NullableSince(10)]              null is legal from version 10 on
    cluster_id: Annotated[str | None, Since(12), Tag(0)] = None a tagged field, absent from the wire at its default
    topics: Annotated[tuple[Topic, ...], Since(6), Essential]   refused, not dropped, in a version without it

From FLEXIBLE_SINCE on, sizes and counts are varints of n + 1 and every struct ends in tagged fields; unknown tags
are skipped. A message is a frozen dataclass; the structs inside it are NamedTuples, because there may be thousands of
them: they are made several times faster, and their classes load in a tenth of the time.

Laws. Bytes fields come back as memoryviews into the data that was given: nothing is copied, and the data must live as
long as they do. Bytes after a message are no error. Received bytes raise RemoteWireError or nothing; every size and
count is held against the bytes that remain before anything is made of it. A value of ours that does not fit raises
LocalWireError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
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

from barnabas.errors import LocalWireError, RemoteWireError
from barnabas.model import ZERO_ID

# ---- the vocabulary of schemas --------------------------------------------------------------------------------


class Fixed(NamedTuple):
    """A big-endian number of fixed width, as `struct` calls it."""

    letter: str


class Blob(NamedTuple):
    """Opaque bytes behind a four-byte (or varint) size."""


class Since(NamedTuple):
    version: int


class Until(NamedTuple):
    version: int


class NullableSince(NamedTuple):
    version: int


class Tag(NamedTuple):
    number: int


class EssentialMark(NamedTuple):
    """Without this field the message would mean something else, so it is never dropped in silence."""


Essential = EssentialMark()

Bool = Annotated[bool, Fixed("?")]
Int8 = Annotated[int, Fixed("b")]
Int16 = Annotated[int, Fixed("h")]
UInt16 = Annotated[int, Fixed("H")]
Int32 = Annotated[int, Fixed("i")]
UInt32 = Annotated[int, Fixed("I")]
Int64 = Annotated[int, Fixed("q")]
Float64 = Annotated[float, Fixed("d")]
Bytes = Annotated[bytes | memoryview, Blob()]
Records = Bytes


class Message(Protocol):
    """What every request and response class has."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[range]
    FLEXIBLE_SINCE: ClassVar[int]


M = TypeVar("M", bound=Message)

# ---- the four doors -------------------------------------------------------------------------------------------


def encode(message: Message, version: int) -> bytes:
    return b"".join(encode_parts(message, version))


def encode_parts(message: Message, version: int) -> list[bytes]:
    """The same bytes in pieces."""
    cls = type(message)
    if version not in cls.VERSIONS:
        raise LocalWireError(f"{cls.__name__} has no version {version}")
    return encode_struct(message, version, version >= cls.FLEXIBLE_SINCE)


def encode_struct(value: Any, version: int, flexible: bool) -> list[bytes]:
    """A part of a message by itself, for those who join messages from prepared pieces."""
    parts: list[bytes] = []
    try:
        compiled(value.__class__, version, flexible).write(value, parts.append)
    except (struct.error, UnicodeEncodeError, AttributeError, TypeError) as error:
        raise LocalWireError(f"{type(value).__name__} v{version}: {error}") from error
    return parts


def decode(cls: type[M], version: int, data: memoryview | bytes, at: int = 0) -> M:
    return decode_from(cls, version, data, at)[0]


def decode_from(cls: type[M], version: int, data: memoryview | bytes, at: int = 0) -> tuple[M, int]:
    """The message and the position behind it."""
    if version not in cls.VERSIONS:
        raise RemoteWireError(f"{cls.__name__} has no version {version}")
    try:
        message, end = compiled(cls, version, version >= cls.FLEXIBLE_SINCE).read(
            memoryview(data), at
        )
    except (struct.error, IndexError) as error:
        raise RemoteWireError(f"{cls.__name__} v{version} ends too early") from error
    except UnicodeDecodeError as error:
        raise RemoteWireError(f"{cls.__name__} v{version}: not UTF-8") from error
    return message, end


# ---- sizes and varints ----------------------------------------------------------------------------------------

STRING_MAX = 0x7FFF
UNKNOWN_TAGS_MAX = 128

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")


def uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_uvarint(data: memoryview, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    number = byte & 0x7F
    for index in range(1, 5):
        byte = data[at + index]
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if number > 0xFFFF_FFFF:
                break
            return number, at + index + 1
    raise RemoteWireError(f"varint at {at} is longer than 32 bits")


def read_uvarlong(data: memoryview, at: int) -> tuple[int, int]:
    number = 0
    for index in range(10):
        byte = data[at + index]
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if number > 0xFFFF_FFFF_FFFF_FFFF:
                break
            return number, at + index + 1
    raise RemoteWireError(f"varint at {at} is longer than 64 bits")


SMALL_SIZES = tuple(uvarint(size + 1) for size in range(256))


def compact_size(size: int) -> bytes:
    """The compact form of a size or count; -1 is null."""
    return SMALL_SIZES[size] if 0 <= size < 256 else uvarint(size + 1)


def read_compact_size(data: memoryview, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte - 1, at + 1
    size, at = read_uvarint(data, at)
    return size - 1, at


def read_size16(data: memoryview, at: int) -> tuple[int, int]:
    return INT16.unpack_from(data, at)[0], at + 2


def read_size32(data: memoryview, at: int) -> tuple[int, int]:
    return INT32.unpack_from(data, at)[0], at + 4


def sizes(flexible: bool, short: bool = False) -> tuple[ReadSize, Callable[[int], bytes], int]:
    """Reader, writer and fewest bytes of a size."""
    if flexible:
        return read_compact_size, compact_size, 1
    return (read_size16, INT16.pack, 2) if short else (read_size32, INT32.pack, 4)


# ---- one type, one version ------------------------------------------------------------------------------------

Append = Callable[[bytes], None]
ReadSize = Callable[[memoryview, int], tuple[int, int]]


class Wire(NamedTuple):
    """How one type stands on the wire in one version."""

    read: Callable[[memoryview, int], tuple[Any, int]]
    write: Callable[[Any, Append], None]
    minimum: int
    """The fewest bytes a value takes: what an array's count is checked with."""
    letter: str = ""
    """For fixed-width numbers, so that neighbours are packed in one go."""


def wire_of(hint: Any, version: int, flexible: bool, nullable: bool = False) -> Wire:
    """A nullable hint is `X | None`; whether null is legal in this very version the caller has found out."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        for mark in marks:
            if isinstance(mark, Fixed):
                return fixed(mark.letter)
            if isinstance(mark, Blob):
                return blob(flexible, nullable)
        return wire_of(inner, version, flexible, nullable)
    if type(None) in get_args(hint):
        (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
        return wire_of(inner, version, flexible, nullable)
    if hint is str:
        return string(flexible, nullable)
    if hint is UUID:
        return Wire(read_uuid, write_uuid, 16)
    if get_origin(hint) is tuple:
        return array(wire_of(get_args(hint)[0], version, flexible), flexible, nullable)
    return (
        nullable_struct(compiled(hint, version, flexible))
        if nullable
        else compiled(hint, version, flexible)
    )


def fixed(letter: str) -> Wire:
    number = struct.Struct(">" + letter)
    unpack_from, pack, size = number.unpack_from, number.pack, number.size

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        return unpack_from(data, at)[0], at + size

    def write(value: Any, append: Append) -> None:
        append(pack(value))

    return Wire(read, write, size, letter)


def read_uuid(data: memoryview, at: int) -> tuple[UUID, int]:
    raw = bytes(data[at : at + 16])
    if len(raw) < 16:
        raise RemoteWireError(f"no room for a UUID at {at}")
    return UUID(bytes=raw) if any(raw) else ZERO_ID, at + 16


def write_uuid(value: UUID, append: Append) -> None:
    append(value.bytes)


def string(flexible: bool, nullable: bool) -> Wire:
    read_size, pack_size, minimum = sizes(flexible, short=True)

    def read(data: memoryview, at: int) -> tuple[str | None, int]:
        size, at = read_size(data, at)
        end = at + size
        if size < 0:
            return null(nullable, size, at)
        if end > len(data) or size > STRING_MAX:
            raise RemoteWireError(f"string of {size} bytes at {at} of {len(data)}")
        return str(data[at:end], "utf-8"), end

    def write(value: str | None, append: Append) -> None:
        if value is None:
            append(pack_null(nullable, pack_size))
            return
        raw = value.encode()
        if len(raw) > STRING_MAX:
            raise LocalWireError(f"string of {len(raw)} bytes")
        append(pack_size(len(raw)))
        append(raw)

    return Wire(read, write, minimum)


def blob(flexible: bool, nullable: bool) -> Wire:
    read_size, pack_size, minimum = sizes(flexible)

    def read(data: memoryview, at: int) -> tuple[memoryview | None, int]:
        size, at = read_size(data, at)
        end = at + size
        if size < 0:
            return null(nullable, size, at)
        if end > len(data):
            raise RemoteWireError(f"{size} bytes at {at} of {len(data)}")
        return data[at:end], end

    def write(value: bytes | None, append: Append) -> None:
        if value is None:
            append(pack_null(nullable, pack_size))
            return
        append(pack_size(len(value)))
        append(value)

    return Wire(read, write, minimum)


def array(element: Wire, flexible: bool, nullable: bool) -> Wire:
    read_size, pack_size, minimum = sizes(flexible)
    read_element, write_element, letter = element.read, element.write, element.letter
    element_minimum = max(element.minimum, 1)

    def read(data: memoryview, at: int) -> tuple[tuple[Any, ...] | None, int]:
        count, at = read_size(data, at)
        if count < 0:
            return null(nullable, count, at)
        if count * element_minimum > len(data) - at:
            raise RemoteWireError(f"{count} elements at {at} of {len(data)}")
        if letter:
            return struct.unpack_from(f">{count}{letter}", data, at), at + count * element_minimum
        values = []
        for _ in range(count):
            value, at = read_element(data, at)
            values.append(value)
        return tuple(values), at

    def write(values: tuple[Any, ...] | None, append: Append) -> None:
        if values is None:
            append(pack_null(nullable, pack_size))
            return
        append(pack_size(len(values)))
        if letter:
            append(struct.pack(f">{len(values)}{letter}", *values))
        else:
            for value in values:
                write_element(value, append)

    return Wire(read, write, minimum)


def nullable_struct(inner: Wire) -> Wire:
    """One byte ahead of the struct: 1, or -1 for null."""

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        if data[at] > 0x7F:
            return None, at + 1
        return inner.read(data, at + 1)

    def write(value: Any, append: Append) -> None:
        append(b"\xff" if value is None else b"\x01")
        if value is not None:
            inner.write(value, append)

    return Wire(read, write, 1)


def null(nullable: bool, size: int, at: int) -> tuple[None, int]:
    if size == -1 and nullable:
        return None, at
    raise RemoteWireError(f"{'null' if size == -1 else f'size {size}'} before {at}")


def pack_null(nullable: bool, pack_size: Callable[[int], bytes]) -> bytes:
    if not nullable:
        raise LocalWireError("null where the protocol has none")
    return pack_size(-1)


# ---- one struct, one version ----------------------------------------------------------------------------------


class Field(NamedTuple):
    name: str
    wire: Wire
    tag: int | None
    default: Any


class Layout(NamedTuple):
    """A struct's fields in one version, in wire order."""

    plain: list[Field]
    tagged: list[Field]
    absent: dict[str, Any]
    """Fields this version does not have, with the defaults that stand in for them."""
    essential: list[str]
    """Those of the absent ones that must not be lost."""


@cache
def compiled(cls: type[Any], version: int, flexible: bool) -> Wire:
    layout = layout_of(cls, version, flexible)
    write = struct_writer(cls.__name__, version, flexible, layout)
    read = struct_reader(cls, flexible, layout)
    return Wire(read, write, sum(field.wire.minimum for field in layout.plain) + flexible)


def layout_of(cls: type[Any], version: int, flexible: bool) -> Layout:
    layout = Layout([], [], {}, [])
    hints = get_type_hints(cls, include_extras=True)
    for name, default in defaults_of(cls):
        hint = hints[name]
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        since, until, nullable_since, tag = 0, version, 0, None
        for mark in marks:
            match mark:
                case Since(number):
                    since = number
                case Until(number):
                    until = number
                case NullableSince(number):
                    nullable_since = number
                case Tag(number):
                    tag = number
                case _:
                    pass
        if since <= version <= until:
            base = get_args(hint)[0] if get_origin(hint) is Annotated else hint
            nullable = type(None) in get_args(base) and version >= nullable_since
            field = Field(name, wire_of(hint, version, flexible, nullable), tag, default)
            (layout.plain if tag is None else layout.tagged).append(field)
        else:
            assert default is not MISSING, f"{cls.__name__}.{name} needs a default"
            layout.absent[name] = default
            if Essential in marks:
                layout.essential.append(name)
    layout.tagged.sort(key=lambda field: field.tag or 0)
    return layout


def defaults_of(cls: type[Any]) -> Iterable[tuple[str, Any]]:
    if issubclass(cls, tuple):
        names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
        return [(name, cls._field_defaults.get(name, MISSING)) for name in names]  # type: ignore[attr-defined]
    return [(field.name, field.default) for field in fields(cls)]


def runs(plain: list[Field]) -> list[list[Field]]:
    """Fixed-width neighbours together, everything else alone."""
    groups: list[list[Field]] = []
    for field in plain:
        if field.wire.letter and groups and groups[-1][0].wire.letter:
            groups[-1].append(field)
        else:
            groups.append([field])
    return groups


def struct_writer(
    name: str, version: int, flexible: bool, layout: Layout
) -> Callable[[Any, Append], None]:
    steps = [write_step(group) for group in runs(layout.plain)]
    if layout.tagged:
        steps.append(tags_writer(layout.tagged))
    elif flexible:
        steps.append(lambda value, append: append(b"\x00"))
    kept = [(field, layout.absent[field]) for field in layout.essential]

    def write(value: Any, append: Append) -> None:
        for field, default in kept:
            if getattr(value, field) != default:
                raise LocalWireError(f"{name} v{version} has no {field}")
        for step in steps:
            step(value, append)

    return write


def write_step(group: list[Field]) -> Callable[[Any, Append], None]:
    get = attrgetter(*(field.name for field in group))
    if len(group) > 1:
        pack = struct.Struct(">" + "".join(field.wire.letter for field in group)).pack
        return lambda value, append: append(pack(*get(value)))
    write = group[0].wire.write
    return lambda value, append: write(get(value), append)


def tags_writer(tagged: list[Field]) -> Callable[[Any, Append], None]:
    def write(value: Any, append: Append) -> None:
        present = [field for field in tagged if getattr(value, field.name) != field.default]
        append(uvarint(len(present)))
        for field in present:
            parts: list[bytes] = []
            field.wire.write(getattr(value, field.name), parts.append)
            raw = b"".join(parts)
            append(uvarint(field.tag or 0) + uvarint(len(raw)) + raw)

    return write


ReadStep = Callable[[memoryview, int, list[Any]], int]


def struct_reader(
    cls: type[Any], flexible: bool, layout: Layout
) -> Callable[[memoryview, int], tuple[Any, int]]:
    steps = [read_step(group) for group in runs(layout.plain)]
    if flexible:
        steps.append(tags_reader(layout.tagged))
    order = [field.name for field in (*layout.plain, *layout.tagged)]
    build = builder(cls, [*order, *layout.absent])
    absent = list(layout.absent.values())

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        values: list[Any] = []
        for step in steps:
            at = step(data, at, values)
        return build(values + absent), at

    return read


def read_step(group: list[Field]) -> ReadStep:
    if len(group) > 1:
        numbers = struct.Struct(">" + "".join(field.wire.letter for field in group))
        unpack_from, size = numbers.unpack_from, numbers.size

        def read_numbers(data: memoryview, at: int, values: list[Any]) -> int:
            values += unpack_from(data, at)
            return at + size

        return read_numbers
    read = group[0].wire.read

    def read_one(data: memoryview, at: int, values: list[Any]) -> int:
        value, at = read(data, at)
        values.append(value)
        return at

    return read_one


def tags_reader(tagged: list[Field]) -> ReadStep:
    known = {field.tag: (index, field.wire.read) for index, field in enumerate(tagged)}
    defaults = [field.default for field in tagged]

    def read(data: memoryview, at: int, values: list[Any]) -> int:
        first = len(values)
        values += defaults
        if not data[at]:
            return at + 1
        found, behind = read_tags(data, at)
        for tag, start, end in found:
            if tag in known:
                index, read_value = known[tag]
                values[first + index], stop = read_value(data, start)
                if stop != end:
                    raise RemoteWireError(f"tag {tag} at {start} has {end - start} bytes")
        return behind

    return read


def read_tags(data: memoryview, at: int) -> tuple[list[tuple[int, int, int]], int]:
    """(tag, start, end) of each tagged field, and the position behind them all."""
    count, at = read_uvarint(data, at)
    if count > UNKNOWN_TAGS_MAX:
        raise RemoteWireError(f"{count} tagged fields at {at}")
    found = []
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        if size > len(data) - at:
            raise RemoteWireError(f"tag {tag} of {size} bytes at {at} of {len(data)}")
        found.append((tag, at, at + size))
        at += size
    return found, at


def builder(cls: type[Any], order: list[str]) -> Callable[[list[Any]], Any]:
    """A maker from values in this order.

    It goes around a frozen dataclass's own `__init__`, which costs twice as much; message classes have no
    `__post_init__` that would be missed.
    """
    if issubclass(cls, tuple):
        names: list[str] = list(cls._fields)  # type: ignore[attr-defined]
        make: Callable[[Iterable[Any]], Any] = cls._make  # type: ignore[attr-defined]
        if names == order or len(names) == 1:
            return make
        pick = itemgetter(*(order.index(name) for name in names))
        return lambda values: make(pick(values))
    puts = [getattr(cls, name).__set__ for name in order]
    new = object.__new__

    def build(values: list[Any]) -> Any:
        made = new(cls)
        for put, value in zip(puts, values, strict=True):
            put(made, value)
        return made

    return build
