"""Values that users pass to the API: keyword settings, keys, values and headers. Errors name the wrong argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index

from barnabas.batch.compression import Compression
from barnabas.client.consumer import Beginning, End
from barnabas.client.group_assignors import ASSIGNORS
from barnabas.errors import ConfigError

Data = bytes | bytearray | memoryview | str | None
"""A key or a value. A string is encoded as UTF-8."""
HeaderPairs = Mapping[str, Data] | Iterable[tuple[str, Data]]

ACKS = {"all": -1, -1: -1, 0: 0, 1: 1, "-1": -1, "0": 0, "1": 1}
ISOLATION_LEVELS = {"read_uncommitted": False, "read_committed": True}
RESETS: Mapping[str, Beginning | End] = {"earliest": Beginning(), "latest": End()}


def parse_acks(acks: int | str) -> int:
    """Return the number of `acks` in the protocol: -1 for "all"."""
    if acks not in ACKS:
        raise ConfigError("acks", f"{acks!r} is not one of 'all', 1, 0")
    return ACKS[acks]


def parse_compression_type(name: str) -> Compression:
    """Return a codec by Kafka's name."""
    names = {codec.name.lower(): codec for codec in Compression}
    if name not in names:
        raise ConfigError("compression_type", f"{name!r} is not one of {listed(names)}")
    return names[name]


def parse_auto_offset_reset(name: str) -> Beginning | End:
    """Return the start position for "earliest" or "latest"."""
    if name not in RESETS:
        raise ConfigError("auto_offset_reset", f"{name!r} is not one of {listed(RESETS)}")
    return RESETS[name]


def parse_isolation_level(name: str) -> bool:
    """Return whether the level is "read_committed"."""
    if name not in ISOLATION_LEVELS:
        raise ConfigError("isolation_level", f"{name!r} is not one of {listed(ISOLATION_LEVELS)}")
    return ISOLATION_LEVELS[name]


def parse_assignors(names: Iterable[str]) -> tuple[str, ...]:
    """Check the names of partition assignors."""
    names = (names,) if isinstance(names, str) else tuple(names)
    for name in names or ("",):
        if name not in ASSIGNORS:
            why = f"{name!r} is not one of {listed(ASSIGNORS)}"
            raise ConfigError("partition_assignment_strategy", why)
    return names


def require_positive(name: str, value: float) -> float:
    """Return `value`. Raises ConfigError unless it is greater than 0."""
    if value <= 0:
        raise ConfigError(name, f"{value!r} is not greater than 0")
    return value


def require_text_list(name: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return the strings as a tuple. A single string counts as one. Raises ConfigError if there is none."""
    found = (values,) if isinstance(values, str) else tuple(values)
    if not found:
        raise ConfigError(name, "is empty; name at least one")
    return found


def to_bytes(name: str, data: object) -> bytes | None:
    """Encode a key, a value or the value of a header. Raises TypeError for other types than bytes, str and None."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    kind = type(data).__name__
    raise TypeError(
        f"{name} must be bytes, str or None, not {kind}; encode it first, as JSON for example"
    )


def to_int64(name: str, value: object) -> int:
    """Return a number as an int. Raises TypeError for a float or another type, ConfigError beyond 64 bits."""
    if not isinstance(value, int):
        try:
            value = index(value)  # type: ignore[arg-type]  # checked here: NumPy's integers pass
        except TypeError:
            kind = type(value).__name__
            raise TypeError(f"{name} must be an int, not {kind}; convert it with int()") from None
    if value.bit_length() > 63:
        raise ConfigError(name, f"{value} is out of range; it must fit 64 bits")
    return value


def to_headers(headers: HeaderPairs) -> tuple[tuple[str, bytes | None], ...]:
    """Encode headers: a mapping, or pairs of name and value."""
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((to_name(name), to_bytes(f"header {name!r}", data)) for name, data in pairs)


def to_name(name: object) -> str:
    """Return the name of a header. Raises TypeError unless it is a string, UnicodeError if UTF-8 cannot encode it."""
    if not isinstance(name, str):
        raise TypeError(f"the name of header {name!r} must be str, not {type(name).__name__}")
    name.encode()
    return name


def listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
