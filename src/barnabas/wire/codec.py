"""Messages to bytes and back: an annotated class is the schema, compiled once per version into closures.

    timeout_ms: Int32 = 60_000                                  in every version
    validate_only: Annotated[Bool, Since(1)] = False            from version 1 on; before it the default stands in
    replica_id: Annotated[Int32, Until(14)] = -1                up to and with version 14
    name: Annotated[str | None, NullableSince(10)]              null is legal from version 10 on
    cluster_id: Annotated[str | None, Since(12), Tag(0)] = None a tagged field, absent from the wire at its default
    topics: Annotated[tuple[Topic, ...], Since(6), Essential]   refused, not dropped, in a version without it

From FLEXIBLE_SINCE on, sizes and counts are varints of n + 1 and every struct ends in tagged fields; unknown tags
are skipped. A message is a frozen Struct with keywords; the structs inside it are NamedTuples, which are read and made
by position.

Laws. Bytes fields come back as memoryviews into the data that was given: nothing is copied, and the data must live as
long as they do. Bytes after a message are no error. Received bytes raise RemoteWireError or nothing; every size and
count is held against the bytes that remain before anything is made of it. A value of ours that does not fit raises
LocalWireError.
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
    Wire,
    array,
    blob,
    fixed,
    nullable_struct,
    read_tags,
    read_uuid,
    string,
    uvarint,
    write_uuid,
)

# ---- the vocabulary of schemas --------------------------------------------------------------------------------


class Fixed:
    """A big-endian number of fixed width, as `struct` calls it."""

    def __init__(self, letter: str) -> None:
        self.letter = letter


class Blob:
    """Opaque bytes behind a four-byte (or varint) size."""


class Mark:
    """Equal to itself alone: `Annotated` keeps one object for all that compare equal, so as a tuple Since(3) could
    come back as Until(3)."""

    __match_args__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Since(Mark):
    """The first version that has the field."""


class Until(Mark):
    """The last version that has the field."""


class NullableSince(Mark):
    """The first version in which it may be null."""


class Tag(Mark):
    """The field is tagged with this number."""


class EssentialMark:
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


class MessageTooLarge(Exception):
    """An encoded message would be larger than allowed."""


def encode(message: Message, version: int, *, bytes_max: int | None = None) -> bytes:
    """Raises MessageTooLarge beyond `bytes_max`, before more memory than that is used."""
    if bytes_max is None:
        return b"".join(encode_parts(message, version))
    # Pieces of a few bytes each would take ten times as much memory as the whole.
    whole = bytearray()

    def append(part: bytes) -> None:
        whole.extend(part)
        if len(whole) > bytes_max:
            whole.clear()  # the traceback keeps this function until the next garbage collection
            raise MessageTooLarge(f"more than {bytes_max} bytes")

    write_message(message, version, append)
    return bytes(whole)


def encode_parts(message: Message, version: int) -> list[bytes]:
    """The same bytes in pieces."""
    parts: list[bytes] = []
    write_message(message, version, parts.append)
    return parts


def write_message(message: Message, version: int, append: Append) -> None:
    cls = type(message)
    if version not in cls.VERSIONS:
        raise LocalWireError(f"{cls.__name__} has no version {version}")
    write_struct(message, version, version >= cls.FLEXIBLE_SINCE, append)


def encode_struct(value: Any, version: int, flexible: bool) -> list[bytes]:
    """A part of a message by itself, for those who join messages from prepared pieces."""
    parts: list[bytes] = []
    write_struct(value, version, flexible, parts.append)
    return parts


def write_struct(value: Any, version: int, flexible: bool, append: Append) -> None:
    try:
        compiled(value.__class__, version, flexible).write(value, append)
    except (struct.error, UnicodeEncodeError, AttributeError, TypeError) as error:
        raise LocalWireError(f"{type(value).__name__} v{version}: {error}") from error


def has_more_elements(value: Any, most: int) -> bool:
    """Whether the arrays of a message hold more than `most` elements in all. Takes no longer than counting those."""
    return count_elements(value, most) > most


def count_elements(value: Any, most: int) -> int:
    fields = value if isinstance(value, tuple) else map(value.__getattribute__, names_of(value))
    count = 0
    for field in fields:
        if type(field) is tuple or type(field) is list:
            count += len(field)
            if count > most:
                return count
            if field and isinstance(field[0], tuple):
                for element in field:
                    count += count_elements(element, most - count)
                    if count > most:
                        return count
    return count


def names_of(value: Any) -> tuple[str, ...]:
    return getattr(value, "__struct_fields__", ())


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


# ---- one type, one version ------------------------------------------------------------------------------------


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
            assert default is not NODEFAULT, f"{cls.__name__}.{name} needs a default"
            layout.absent[name] = default
            if Essential in marks:
                layout.essential.append(name)
    layout.tagged.sort(key=lambda field: field.tag or 0)
    return layout


def defaults_of(cls: type[Any]) -> Iterable[tuple[str, Any]]:
    if issubclass(cls, tuple):
        names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
        return [(name, cls._field_defaults.get(name, NODEFAULT)) for name in names]  # type: ignore[attr-defined]
    defaults: tuple[Any, ...] = cls.__struct_defaults__  # of the last fields
    names = cls.__struct_fields__
    required = (NODEFAULT,) * (len(names) - len(defaults))
    return list(zip(names, required + defaults, strict=True))


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


def builder(cls: type[Any], order: list[str]) -> Callable[[list[Any]], Any]:
    """A maker from values in this order."""
    if issubclass(cls, tuple):
        names: list[str] = list(cls._fields)  # type: ignore[attr-defined]
        make: Callable[[Iterable[Any]], Any] = cls._make  # type: ignore[attr-defined]
        if names == order or len(names) == 1:
            return make
        pick = itemgetter(*(order.index(name) for name in names))
        return lambda values: make(pick(values))
    return lambda values: cls(**dict(zip(order, values, strict=True)))
