"""Random messages of any class and version, generated from the schema, and a list of all (class,
version) pairs.

Numbers come from the limits of their types as well as from the middle. Where an independent library
has a narrower type than the protocol (durations, timestamps, known error codes), values stay in its
range, so that all tests can use one generator.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from uuid import UUID

from barnabas.model import ZERO_ID
from barnabas.wire.apis import APIS
from barnabas.wire.codec import Blob, Fixed, Message, NullableSince, Since, Until

CLASSES: list[type[Message]] = [cls for api in APIS.values() for cls in (api.request, api.response)]
ALL = [(cls, version) for cls in CLASSES for version in cls.VERSIONS]
BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
LONG_DURATIONS = ("retention_time_ms", "lifetime_ms", "period_ms")
WORDS = ("", "orders", "a" * 126, "b" * 127, "c" * 128, "d" * 300, "naïve-☃", "x")


def name_of(case: object) -> str:
    return case.__name__ if isinstance(case, type) else f"v{case}"


def random_message(random: Random, cls: Any, version: int, most: int = 3) -> Any:
    """Build a random message. Fields that the version does not have keep their defaults."""
    return cls(
        **{
            name: random_value(random, hint, name, version, nullable, most)
            for name, hint, nullable in fields_in(cls, version)
        }
    )


@cache
def fields_in(cls: type[Any], version: int) -> list[tuple[str, Any, bool]]:
    """Return name, type hint and nullability of the fields of this version."""
    hints = get_type_hints(cls, include_extras=True)
    names = getattr(cls, "_fields", None) or cls.__struct_fields__
    found = []
    for name in names:
        hint = hints[name]
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        since = next((mark.number for mark in marks if isinstance(mark, Since)), 0)
        until = next((mark.number for mark in marks if isinstance(mark, Until)), version)
        nullable = next((mark.number for mark in marks if isinstance(mark, NullableSince)), 0)
        if since <= version <= until:
            found.append((name, hint, version >= nullable))
    return found


def random_value(
    random: Random, hint: Any, name: str, version: int, nullable: bool, most: int
) -> Any:
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        for mark in marks:
            if isinstance(mark, Fixed):
                return random_number(random, mark.letter, name)
            if isinstance(mark, Blob):
                return random.randbytes(random.choice((0, 1, 126, 127, 128, 1000)))
        return random_value(random, inner, name, version, nullable, most)
    if type(None) in get_args(hint):
        if nullable and random.random() < 0.3:
            return None
        (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
        return random_value(random, inner, name, version, False, most)
    if hint is str:
        return random.choice(WORDS)
    if hint is UUID:
        return random.choice((ZERO_ID, UUID(int=random.getrandbits(128))))
    if get_origin(hint) is tuple:
        element = get_args(hint)[0]
        count = random.randint(0, most)
        return tuple(
            random_value(random, element, name, version, False, most) for _ in range(count)
        )
    return random_message(random, hint, version, most)


def random_number(random: Random, letter: str, name: str) -> float:
    if letter == "d":
        return random.choice((0.0, -1.5, 1e300, random.random()))
    if letter == "?":
        return random.random() < 0.5
    if name.endswith("error_code"):
        return random.randint(0, 100)
    if name in ("log_append_time_ms", "timestamp"):
        return random.choice((-1, 0, 1, 1_700_000_000_123))
    if name == "transaction_start_time_ms" or name.endswith("_timestamp_ms"):
        return random.choice((0, 1, 1_700_000_000_123))
    if letter == "q" and name.endswith(LONG_DURATIONS):
        return random.choice((0, 1, 604_800_000))
    bits = BITS[letter]
    low = 0 if name.endswith("_ms") else -(1 << bits - 1)
    high = (1 << bits - 1) - 1
    return random.choice((low, high, 0, 1, random.randint(low, high)))
