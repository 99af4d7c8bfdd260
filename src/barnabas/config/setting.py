"""Declaration of one setting: name, type, default, allowed values and a one-line description.

A setting is declared once: as a field of BrokerConfig or TopicConfig, or as a row of without_effect.py. The
documentation page, DescribeConfigs and the command line use this declaration.

Values are parsed as in Kafka: surrounding white space is removed, booleans ignore case, numbers must fit their type,
and lists are separated by commas. An invalid value raises a ConfigError with the setting, the value and the allowed
values. The error never contains the value of a password.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Any

from msgspec import Struct

from barnabas.errors import ConfigError

Value = bool | int | float | str | tuple[str, ...] | None


class Kind(IntEnum):
    """Types of Kafka's settings, with their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = Kind

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308


class Update(StrEnum):
    """Whether Kafka can change a setting at run time, and for which brokers."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


READ_ONLY, PER_BROKER, CLUSTER_WIDE = Update


class ValueCheck(Struct, frozen=True):
    """Validation rule of a setting. `allowed` describes the values for which `holds` is true: `at least 1`."""

    allowed: str
    holds: Callable[[Any], bool]


class Setting(Struct, frozen=True):
    """Declaration of one setting. A default of None means that the setting has no default."""

    name: str
    kind: Kind
    default: Value
    check: ValueCheck
    doc: str
    update: Update = READ_ONLY
    internal: bool = False
    default_of: str | None = None
    """Topic setting that falls back to this broker setting."""
    factor: int = 1
    """Multiplier that converts a value to the unit of that topic setting."""

    @property
    def field(self) -> str:
        """Field name of the setting: `log_segment_bytes` for `log.segment.bytes`."""
        return self.name.replace(".", "_")

    def parse(self, text: str) -> Value:
        """Parse and validate a value. Raises ConfigError."""
        try:
            value = READERS[self.kind](text.strip(JAVA_WHITE_SPACE))
        except ValueError as error:
            raise self.invalid_value_error(text, str(error)) from None
        if not self.check.holds(value):
            raise self.invalid_value_error(text, self.check.allowed)
        return value

    def show(self, value: Value) -> str | None:
        """Format a value as Kafka does. Returns None for passwords and for a missing value."""
        if value is None or self.kind is PASSWORD:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return java_double(value) if isinstance(value, float) else str(value)

    def invalid_value_error(self, text: str, allowed: str) -> ConfigError:
        shown = "the value" if self.kind is PASSWORD else repr(text)
        return ConfigError(self.name, f"{shown} is not allowed, it must be {allowed}")


DECLARED: list[tuple[Any, ...]] = []
"""Settings declared so far in the class body that is being executed, without their names."""


def setting(
    kind: Kind,
    default: Value,
    check: ValueCheck,
    doc: str,
    update: Update = READ_ONLY,
    *,
    internal: bool = False,
    default_of: str | None = None,
    factor: int = 1,
    field_default: Any = None,
) -> Any:
    """Declare a setting as a field of a configuration class.

    Returns the default of the field. It is `field_default` if the field's type differs from the parsed type: listeners
    are parsed as a string, and the field contains endpoints.
    """
    DECLARED.append((kind, default, check, doc, update, internal, default_of, factor))
    return default if field_default is None else field_default


def collect_settings(config: type[Struct]) -> dict[str, Setting]:
    """Return the settings of a configuration class by Kafka's name, in order of declaration.

    Call it once, directly after the class definition. Settings are the first fields of the class.
    """
    names = [field.replace("_", ".") for field in config.__struct_fields__]
    declared = {name: Setting(name, *each) for name, each in zip(names, DECLARED, strict=False)}
    DECLARED.clear()
    return declared


def unknown_setting_error(name: str, known: list[str], what: str) -> ConfigError:
    """Return the error for an unknown setting. It suggests a similar name, if there is one."""
    from difflib import get_close_matches  # slow to import, and needed only here

    near = get_close_matches(name, known, n=1, cutoff=0.75)
    return ConfigError(name, f"no such {what}" + (f"; did you mean {near[0]}?" if near else ""))


# Checks -------------------------------------------------------------------------------------------

ANY = ValueCheck("any value", lambda value: True)
NOT_EMPTY = ValueCheck("not empty", lambda value: value != "")


def at_least(low: int) -> ValueCheck:
    return ValueCheck(f"at least {low}", lambda value: value is None or value >= low)


def between(low: float, high: float) -> ValueCheck:
    return ValueCheck(f"from {low} to {high}", lambda value: low <= value <= high)


def one_of(*allowed: str) -> ValueCheck:
    return ValueCheck(f"one of {', '.join(allowed)}", lambda value: value in allowed)


def each_of(*allowed: str) -> ValueCheck:
    """Allow only these list elements; the list may be empty."""
    return ValueCheck(
        f"a list of {', '.join(allowed)}", lambda value: all(each in allowed for each in value)
    )


def from_or(low: int, high: int, other: int) -> ValueCheck:
    return ValueCheck(
        f"from {low} to {high}, or {other}", lambda value: low <= value <= high or value == other
    )


COMPRESSION_TYPE = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
GZIP_LEVEL = from_or(1, 9, -1)
LZ4_LEVEL = between(1, 17)
ZSTD_LEVEL = between(-131072, 22)
CLEANUP_POLICY = each_of("compact", "delete")
TIMESTAMP_TYPE = one_of("CreateTime", "LogAppendTime")
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")  # by number in the protocol
SECURITY_PROTOCOL = one_of(*SECURITY_PROTOCOLS)


def is_throttled_replicas(value: tuple[str, ...]) -> bool:
    return "".join(value) == "*" or all(re.fullmatch("([0-9]+:[0-9]+)?", each) for each in value)


THROTTLED_REPLICAS = ValueCheck("* or a list of partition:broker", is_throttled_replicas)

# Highest -IV number of each release; -1 if it has none.
RELEASES = {"0.8.0": -1, "0.8.1": -1, "0.8.2": -1, "0.9.0": -1, "0.10.0": 1, "0.10.1": 2}
RELEASES |= {"0.10.2": 0, "0.11.0": 2, "1.0": 0, "1.1": 0, "2.0": 1, "2.1": 2, "2.2": 1, "2.3": 1}
RELEASES |= {"2.4": 1, "2.5": 0, "2.6": 0, "2.7": 2, "2.8": 1, "3.0": 1, "3.1": 0, "3.2": 0}
RELEASES |= {"3.3": 3, "3.4": 0, "3.5": 2, "3.6": 2, "3.7": 4, "3.8": 0, "3.9": 0, "4.0": 1}


def is_release(value: str) -> bool:
    """Accept `3.9`, `3.9-IV0` and `3.9.1`; a patch version is ignored."""
    parts = value.split(".")
    part_count = 3 if value.startswith("0.") else 2
    release, dash, step = ".".join(parts[:part_count]).partition("-IV")
    if release not in RELEASES:
        return False
    return not dash or step in map(str, range(RELEASES[release] + 1))


RELEASE = ValueCheck("a Kafka release", is_release)


# Reading text -------------------------------------------------------------------------------------

JAVA_WHITE_SPACE = "".join(map(chr, range(33)))
WHOLE_NUMBER = re.compile(r"[+-]?\d{1,100}")
"""Bounded: int() fails for thousands of digits."""
FRACTION = re.compile(
    r"([+-]?(?:NaN|Infinity|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?))[fFdD]?", re.ASCII
)


def read_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def integer_reader(bits: int) -> Callable[[str], int]:
    bound = 1 << (bits - 1)

    def read(text: str) -> int:
        if not WHOLE_NUMBER.fullmatch(text) or not -bound <= int(text) < bound:
            raise ValueError(f"a {bits}-bit integer")
        return int(text)

    return read


def read_double(text: str) -> float:
    match = FRACTION.fullmatch(text)
    if not match:
        raise ValueError("a number")
    return float(match[1])


def read_list(text: str) -> tuple[str, ...]:
    # A regular expression such as \s*,\s* takes seconds for a value with thousands of spaces.
    return tuple(each.strip() for each in text.split(",")) if text else ()


READERS: dict[Kind, Callable[[str], Value]] = {
    BOOLEAN: read_boolean,
    STRING: str,
    INT: integer_reader(32),
    SHORT: integer_reader(16),
    LONG: integer_reader(64),
    DOUBLE: read_double,
    LIST: read_list,
    CLASS: str,
    PASSWORD: str,
}


def java_double(value: float) -> str:
    """Format a double as Java does: 0.5, but 1.0E7 and 1.7976931348623157E308."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(value)
    significant = repr(value).partition("e")[0].strip("-0").replace(".", "").strip("0")
    digits, _, exponent = f"{value:.{max(len(significant) - 1, 1)}e}".partition("e")
    return f"{digits}E{int(exponent)}"
