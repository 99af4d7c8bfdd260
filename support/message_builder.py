"""Builds wire messages from plain dictionaries and lists, by the types of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.codec import Message


def build_request(key: ApiKey, fields: Mapping[str, Any]) -> Message:
    """Return the request of an API. Nested structures are dictionaries, arrays are lists."""
    built: Message = build_value(APIS[key].request, fields)
    return built


def build_value(hint: Any, value: Any) -> Any:
    origin = get_origin(hint)
    if origin is Annotated:
        return build_value(get_args(hint)[0], value)
    if origin in (Union, UnionType):
        if value is None:
            return None
        return build_value(next(each for each in get_args(hint) if each is not type(None)), value)
    if origin is tuple:
        return tuple(build_value(get_args(hint)[0], each) for each in value)
    if isinstance(value, Mapping):
        hints = get_type_hints(hint, include_extras=True)
        return hint(**{name: build_value(hints[name], each) for name, each in value.items()})
    return value
