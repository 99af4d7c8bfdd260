"""Request schemas as the attacks see them: which fields a version has, and where its arrays and strings are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints
from uuid import UUID

from barnabas.wire.apis import APIS, Api
from barnabas.wire.codec import Blob, Fixed, NullableSince, Since, Tag, Until, field_defaults

Path = tuple[str, ...]
"""Field names from the message down to one field."""


class Field(NamedTuple):
    """One field in one version. Tagged fields are left at their defaults, and are not listed."""

    owner: str
    """Name of the class that has the field."""
    name: str
    type: Any
    """str, UUID, bytes, bool, int, float, or the class of a struct."""
    letter: str
    """Format character of a number, as in `struct`."""
    is_array: bool
    is_nullable: bool

    @property
    def is_struct(self) -> bool:
        return hasattr(self.type, "__annotations__") and self.type not in (str, UUID)


def fields_of(cls: type[Any], version: int) -> list[Field]:
    hints = get_type_hints(cls, include_extras=True)
    found = [field_of(cls.__name__, name, hints[name], version) for name, _ in field_defaults(cls)]
    return [field for field in found if field is not None]


def field_of(owner: str, name: str, hint: Any, version: int) -> Field | None:
    since, until, nullable_since, letter, is_array, is_blob = 0, version, 0, "", False, False
    is_nullable = False
    while True:
        if get_origin(hint) is Annotated:
            hint, *marks = get_args(hint)
            for mark in marks:
                match mark:
                    case Since(number=number):
                        since = number
                    case Until(number=number):
                        until = number
                    case NullableSince(number=number):
                        nullable_since = number
                    case Fixed():
                        letter = mark.letter
                    case Tag():
                        return None
                    case _:
                        is_blob = is_blob or isinstance(mark, Blob)
        elif get_origin(hint) is tuple:
            is_array, hint = True, get_args(hint)[0]
        elif type(None) in get_args(hint):
            is_nullable = is_nullable or not is_array
            hint = next(arg for arg in get_args(hint) if arg is not type(None))
        else:
            break
    if not since <= version <= until:
        return None
    kind = bytes if is_blob else hint
    nullable = is_nullable and version >= nullable_since
    return Field(owner, name, kind, letter, is_array, nullable)


def walk(cls: type[Any], version: int, above: Path = ()) -> Iterator[tuple[Path, Field]]:
    """Every field at every depth."""
    for field in fields_of(cls, version):
        path = (*above, field.name)
        yield path, field
        if field.is_struct:
            yield from walk(field.type, version, path)


def array_paths(cls: type[Any], version: int) -> list[Path]:
    return [path for path, field in walk(cls, version) if field.is_array]


def nested_paths(cls: type[Any], version: int) -> list[Path]:
    """Arrays within elements of other arrays."""
    arrays = array_paths(cls, version)
    return [path for path in arrays if any(path[:n] in arrays for n in range(1, len(path)))]


def string_paths(cls: type[Any], version: int) -> list[Path]:
    return [path for path, field in walk(cls, version) if field.type is str]


def number_paths(cls: type[Any], version: int) -> list[Path]:
    return [path for path, field in walk(cls, version) if field.letter and field.type is not bool]


def versions_to_try(api: Api) -> list[int]:
    """The newest version first, then the last one of every earlier form."""
    found: list[int] = []
    forms: set[tuple[Any, ...]] = set()
    for version in reversed(api.versions):
        shape = tuple(array_paths(api.request, version)), version >= api.flexible_since
        if shape not in forms:
            forms.add(shape)
            found.append(version)
    if api.versions[0] not in found:
        found.append(api.versions[0])
    return found


def api_named(name: str) -> Api:
    return next(api for api in APIS.values() if api.name == name)
