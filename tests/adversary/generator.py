"""Hostile requests for any API, made from its schema.

Each kind of attack is a generator of `Attack`s. Nothing here does I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from math import isqrt
from typing import Any, NamedTuple
from uuid import UUID

from barnabas.broker.connection import REQUEST_BYTES_MAX
from barnabas.broker.router import SMALL_BYTES
from barnabas.wire.apis import Api
from barnabas.wire.codec import build_struct_layout
from barnabas.wire.headers import RequestHeader, encode_request_header
from barnabas.wire.primitives import STRING_MAX, uvarint
from tests.adversary.hints import (
    EMPTY_UNLESS_ATTACKED,
    IDENTIFYING_NUMBERS,
    UNLESS_VALIDATE_ONLY,
    WAITS,
    Entities,
    existing,
)
from tests.adversary.schema import (
    Field,
    Path,
    array_paths,
    fields_of,
    nested_paths,
    number_paths,
    string_paths,
    versions_to_try,
    walk,
)
from tests.raw_connection import with_size

LARGE, SMALL = REQUEST_BYTES_MAX, SMALL_BYTES - 1
"""The largest request without batches, and the largest one that is decoded on the event loop."""
MEDIUM = 256 * 1024
OVERHEAD_BYTES = 1024
"""Room for the header and for fields around the attacked array."""
SLASHED = ("a/" * 5000 + "a", "../" * 20 + "etc", "/", "//", ".")
PIPELINE_BYTES, PIPELINE_FRAMES_MAX = 256 * 1024, 500

# Placeholders for names, ids and numbers, replaced by distinct ones of the same size.
NAME_MARK = "zzNAMEzz"
ID_MARK = UUID(bytes=b"\x5e\xed" * 8)
NUMBER_MARK = 0x5EED5EED
FILL, ROOT = "fill", "root"


class Send(NamedTuple):
    """Bytes for one connection, and how many answers they ask for."""

    data: bytes
    answers: int = 1


class Attack(NamedTuple):
    """Sends that are measured together, each on its own connection."""

    api: str
    kind: str
    detail: str
    sends: list[Send]

    def __str__(self) -> str:
        return f"{self.api} {self.kind} {self.detail}"


class Writer:
    """Writes one version of a request, with arrays of any size and with chosen values."""

    def __init__(
        self,
        api: Api,
        version: int,
        entities: Entities,
        *,
        size: int = SMALL,
        counts: dict[Path, str] | None = None,
        distinct: Path | None = None,
        overrides: dict[Path, Any] | None = None,
        nulls: bool | None = None,
        wildcards: bool = False,
    ) -> None:
        """`nulls` makes every array null or empty, `wildcards` makes null what can be and is not attacked."""
        self.api = api
        self.version = version
        self.flexible = version >= api.flexible_since
        self.entities = entities
        self.room = size - OVERHEAD_BYTES
        self.counts = counts or {}
        self.distinct = distinct
        self.overrides = overrides or {}
        self.nulls = nulls
        self.is_validate_only = "validate_only" in [
            field.name for field in cached_fields(api.request, version)
        ]
        self.wildcards = wildcards
        self.is_harmless = bool(counts) and distinct is None and not overrides

    def frame(self) -> bytes:
        header = encode_request_header(RequestHeader(self.api.key, self.version, 7, "adversary"))
        return with_size(header + self.struct(self.api.request, ()))

    def struct(self, cls: Any, above: Path) -> bytes:
        parts: list[bytes] = []
        wires = wires_of(cls, self.version, self.flexible)
        for field in cached_fields(cls, self.version):
            path = (*above, field.name)
            if field.is_array:
                parts.append(self.array(field, path))
            elif field.is_struct and field.is_nullable:
                is_attacked = any(wanted[: len(path)] == path for wanted in self.overrides)
                content = self.struct(field.type, path) if is_attacked else b""
                parts.append(b"\x01" + content if is_attacked else b"\xff")
            elif field.is_struct:
                parts.append(self.struct(field.type, path))
            else:
                wires[field.name].write(self.value(field, path), parts.append)
        if self.flexible:
            parts.append(b"\x00")
        return b"".join(parts)

    def array(self, field: Field, path: Path) -> bytes:
        if self.nulls is not None:
            return self.count(-1 if self.nulls and field.is_nullable else 0)
        is_attacked = any(wanted[: len(path)] == path for wanted in (*self.counts, *self.overrides))
        is_empty = field.name in EMPTY_UNLESS_ATTACKED
        if (self.wildcards or is_empty) and field.is_nullable and not is_attacked:
            return self.count(-1)
        if is_empty and not is_attacked:
            return self.count(0)
        element = self.element(field, path)
        number = 1
        if self.counts.get(path) == FILL:
            number = max(self.room // len(element), 1)
        elif self.counts.get(path) == ROOT:
            number = max(isqrt(self.room // len(element)), 1)
        if path == self.distinct:
            return self.count(number) + b"".join(variants(element, number))
        return self.count(number) + element * number

    def element(self, field: Field, path: Path) -> bytes:
        if field.is_struct:
            return self.struct(field.type, path)
        value = self.value(field, path)
        if field.letter:
            return struct.pack(">" + field.letter, value)
        raw = value.encode() if isinstance(value, str) else bytes(value)
        assert field.type is str, f"no array of {field.type} yet: {field}"
        return (uvarint(len(raw) + 1) if self.flexible else struct.pack(">h", len(raw))) + raw

    def count(self, number: int) -> bytes:
        return uvarint(number + 1) if self.flexible else struct.pack(">i", number)

    def value(self, field: Field, path: Path) -> Any:
        if path in self.overrides:
            return self.overrides[path]
        if field.name in UNLESS_VALIDATE_ONLY and not self.is_validate_only:
            return UNLESS_VALIDATE_ONLY[field.name]
        value = existing(field, self.entities, is_current=self.is_harmless)
        if self.distinct is not None and self.distinct in (path, path[:-1]):
            if field.type is str and value is not None:
                return NAME_MARK
            if field.type is UUID and value == self.entities.topic_id:
                return ID_MARK
            if field.letter == "i" and field.name in IDENTIFYING_NUMBERS:
                return NUMBER_MARK
        return value


def variants(element: bytes, number: int) -> Iterator[bytes]:
    """Copies of an element, each with its own name, id and number."""
    name, number_mark = NAME_MARK.encode(), struct.pack(">i", NUMBER_MARK)
    has_name, has_id, has_number = (mark in element for mark in (name, ID_MARK.bytes, number_mark))
    for at in range(number):
        found = element
        if has_name:
            found = found.replace(name, b"%08x" % at)
        if has_id:
            found = found.replace(ID_MARK.bytes, b"%016x" % at)
        if has_number:
            found = found.replace(number_mark, struct.pack(">i", 100_000 + at))
        yield found


@cache
def cached_fields(cls: Any, version: int) -> list[Field]:
    return fields_of(cls, version)


@cache
def wires_of(cls: Any, version: int, flexible: bool) -> dict[str, Any]:
    return {field.name: field.codec for field in build_struct_layout(cls, version, flexible).plain}


# ---- the kinds of attack


def sizes_for(api: Api, version: int, path: Path, thorough: bool) -> list[int]:
    """Large requests take seconds, so only the outermost arrays of the newest version get them."""
    if thorough:
        return [LARGE, SMALL]
    if version != api.versions[-1]:
        return [SMALL]
    return [LARGE if len(path) == 1 else MEDIUM, SMALL]


def fill(
    api: Api,
    entities: Entities,
    thorough: bool,
    *,
    is_distinct: bool = False,
    wildcards: bool = False,
) -> Iterator[Attack]:
    for version in versions_to_try(api):
        nullable = [path for path, field in walk(api.request, version) if is_wildcard(field)]
        for path in array_paths(api.request, version):
            if wildcards and not any(other != path[: len(other)] for other in nullable):
                continue
            for size in sizes_for(api, version, path, thorough):
                writer = Writer(
                    api,
                    version,
                    entities,
                    size=size,
                    counts={path: FILL},
                    distinct=path if is_distinct else None,
                    wildcards=wildcards,
                )
                kind = "distinct" if is_distinct else "repeat"
                detail = f"v{version} {dotted(path)}" + " with wildcards" * wildcards
                yield Attack(api.name, kind, detail, [Send(writer.frame())])


def is_wildcard(field: Field) -> bool:
    """Null in such an array asks for all there is."""
    return field.is_array and field.is_nullable


def repeat(api: Api, entities: Entities, thorough: bool) -> Iterator[Attack]:
    """One existing name, as often as a request can hold it, once with a wildcard below each."""
    yield from fill(api, entities, thorough)
    yield from fill(api, entities, thorough, wildcards=True)


def distinct(api: Api, entities: Entities, thorough: bool) -> Iterator[Attack]:
    """As many unknown names as a request can hold."""
    return fill(api, entities, thorough, is_distinct=True)


def nested(api: Api, entities: Entities, thorough: bool) -> Iterator[Attack]:
    """Many elements, each with many elements."""
    for version in versions_to_try(api):
        arrays = array_paths(api.request, version)
        for path in nested_paths(api.request, version):
            outer = next(path[:n] for n in range(len(path) - 1, 0, -1) if path[:n] in arrays)
            for size in sizes_for(api, version, path, thorough):
                counts = {path: ROOT, outer: FILL}
                writer = Writer(api, version, entities, size=size, counts=counts)
                detail = f"v{version} {dotted(path)}"
                yield Attack(api.name, "nested", detail, [Send(writer.frame())])


def everything(api: Api, entities: Entities, _: bool) -> Iterator[Attack]:
    """Null and empty arrays, which often mean all there is."""
    sends = [
        Send(Writer(api, version, entities, nulls=nulls).frame())
        for version in api.versions
        for nulls in (True, False)
    ]
    yield Attack(api.name, "everything", "all versions", sends)


def long_strings(api: Api, entities: Entities, _: bool) -> Iterator[Attack]:
    """The longest string in every place, and as many of them as fit."""
    for version in versions_to_try(api):
        arrays = array_paths(api.request, version)
        sends = []
        for path in string_paths(api.request, version):
            around = [path[:n] for n in range(1, len(path) + 1) if path[:n] in arrays]
            counts = {around[0]: FILL} if around else {}
            overrides = {path: "x" * STRING_MAX}
            size = LARGE if version == api.versions[-1] else 4 * STRING_MAX
            writer = Writer(api, version, entities, size=size, counts=counts, overrides=overrides)
            sends.append(Send(writer.frame()))
        if sends:
            yield Attack(api.name, "long", f"v{version}", sends)


def slashes(api: Api, entities: Entities, _: bool) -> Iterator[Attack]:
    """Names that look like deep paths, upwards and downwards."""
    for version in versions_to_try(api):
        sends = [
            Send(Writer(api, version, entities, overrides={path: name}).frame())
            for path in string_paths(api.request, version)
            for name in SLASHED
        ]
        if sends:
            yield Attack(api.name, "slashes", f"v{version}", sends)


def extremes(api: Api, entities: Entities, _: bool) -> Iterator[Attack]:
    """The smallest and the largest value of every number, alone and together."""
    version = api.versions[-1]
    letters = {path: field.letter for path, field in walk(api.request, version)}
    paths = [path for path in number_paths(api.request, version) if path[-1] not in WAITS]
    sends = []
    for value in (lowest, highest):
        wanted = [{path: value(letters[path])} for path in paths]
        together = {path: value(letters[path]) for path in paths}
        sends += [
            Send(Writer(api, version, entities, overrides=overrides).frame())
            for overrides in (*wanted, together)
        ]
    yield Attack(api.name, "extremes", f"v{version}", sends)


def lowest(letter: str) -> int:
    return 0 if letter.isupper() else -(1 << 8 * struct.calcsize(letter) - 1)


def highest(letter: str) -> int:
    bits = 8 * struct.calcsize(letter)
    return (1 << bits) - 1 if letter.isupper() else (1 << bits - 1) - 1


def pipelined(api: Api, entities: Entities, _: bool) -> Iterator[Attack]:
    """Many requests in one write: small ones, and some of the largest that are decoded on the event loop."""
    version = api.versions[-1]
    one = Writer(api, version, entities).frame()
    number = min(PIPELINE_BYTES // len(one), PIPELINE_FRAMES_MAX)
    yield Attack(api.name, "pipelined", f"v{version} {number} small", [Send(one * number, number)])
    for path in array_paths(api.request, version)[:1]:
        large = Writer(api, version, entities, counts={path: FILL}).frame()
        yield Attack(api.name, "pipelined", f"v{version} 4 large", [Send(large * 4, 4)])


KINDS = {
    "repeat": repeat,
    "distinct": distinct,
    "nested": nested,
    "everything": everything,
    "long": long_strings,
    "slashes": slashes,
    "extremes": extremes,
    "pipelined": pipelined,
}


def kinds_for(api: Api) -> list[str]:
    """The kinds that this API's schema has fields for."""
    versions = api.versions
    arrays = any(array_paths(api.request, version) for version in versions)
    is_nested = any(nested_paths(api.request, version) for version in versions)
    strings = any(string_paths(api.request, version) for version in versions)
    applies = {"repeat": arrays, "distinct": arrays, "nested": is_nested}
    applies |= {"long": strings, "slashes": strings}
    applies |= {"extremes": bool(number_paths(api.request, versions[-1]))}
    return [kind for kind in KINDS if applies.get(kind, True)]


def dotted(path: Path) -> str:
    return ".".join(path)
