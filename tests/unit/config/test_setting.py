from __future__ import annotations

import time
from contextlib import suppress

import pytest

from barnabas.config.setting import (
    ANY,
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    RELEASE,
    SHORT,
    STRING,
    THROTTLED_REPLICAS,
    Kind,
    Setting,
    Value,
    at_least,
    java_double,
    one_of,
)
from barnabas.errors import ConfigError


def setting_of(kind: Kind) -> Setting:
    return Setting("some.setting", kind, None, ANY, "for a test")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BOOLEAN, " TRUE ", True),
        (BOOLEAN, "False", False),
        (INT, "+7", 7),
        (INT, " -2147483648\t", -(2**31)),
        (SHORT, "32767", 32767),
        (LONG, "9223372036854775807", 2**63 - 1),
        (DOUBLE, "1e3", 1000.0),
        (DOUBLE, ".5f", 0.5),
        (LIST, " a , b,c ", ("a", "b", "c")),
        (LIST, "", ()),
        (LIST, "a,,b,", ("a", "", "b", "")),
        (STRING, "  in the middle  ", "in the middle"),
    ],
)
def test_values_are_parsed_like_kafka(kind: Kind, text: str, value: Value) -> None:
    assert setting_of(kind).parse(text) == value


LONGEST = 32_767
"""Length of the longest string in a request."""


@pytest.mark.parametrize("kind", [BOOLEAN, INT, SHORT, LONG, DOUBLE, LIST, STRING])
@pytest.mark.parametrize("text", ["a" + " " * (LONGEST - 2) + "b", "1" * (LONGEST - 1) + "x"])
def test_longest_value_is_parsed_in_milliseconds(kind: Kind, text: str) -> None:
    began = time.process_time()
    with suppress(ConfigError):
        setting_of(kind).parse(text)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("kind", "text", "allowed"),
    [
        (INT, "1" * 5000, "a 32-bit integer"),
        (BOOLEAN, "yes", "true or false"),
        (BOOLEAN, "", "true or false"),
        (INT, "2147483648", "a 32-bit integer"),
        (INT, "1_000", "a 32-bit integer"),
        (INT, "1.0", "a 32-bit integer"),
        (INT, "", "a 32-bit integer"),
        (SHORT, "32768", "a 16-bit integer"),
        (LONG, "9223372036854775808", "a 64-bit integer"),
        (DOUBLE, "half", "a number"),
        (DOUBLE, "1_0.0", "a number"),
    ],
)
def test_value_of_wrong_type_is_rejected_with_allowed_values(
    kind: Kind, text: str, allowed: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        setting_of(kind).parse(text)
    assert str(refused.value) == f"some.setting: {text!r} is not allowed, it must be {allowed}"


def test_value_out_of_range_is_rejected_with_range() -> None:
    with pytest.raises(ConfigError, match=r"^n: '0' is not allowed, it must be at least 1$"):
        Setting("n", INT, 1, at_least(1), "for a test").parse("0")


def test_password_is_not_in_error() -> None:
    secret = Setting("p", PASSWORD, None, one_of("hunter1"), "for a test")
    with pytest.raises(ConfigError) as refused:
        secret.parse("hunter2")
    assert "hunter2" not in str(refused.value)
    assert secret.show("hunter1") is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (0.0001, "1.0E-4"),
        (0.00012345, "1.2345E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (123456789012345.0, "1.23456789012345E14"),
        (float("inf"), "Infinity"),
    ],
)
def test_doubles_are_formatted_like_java(value: float, shown: str) -> None:
    assert java_double(value) == shown


@pytest.mark.parametrize("text", ["3.9", "3.9-IV0", "3.9.1", "0.10.2", "0.10.2.1", "2.8-IV1"])
def test_known_releases_are_accepted(text: str) -> None:
    assert RELEASE.holds(text)


@pytest.mark.parametrize(
    "text", ["5.0", "3.9-IV7", "0.10", "3", "", "latest", "3.9-IV", f"3.9-IV{'1' * 5000}"]
)
def test_unknown_releases_are_rejected(text: str) -> None:
    assert not RELEASE.holds(text)


@pytest.mark.parametrize("value", [("*",), (), ("0:1", "1:2"), ("",)])
def test_throttled_replicas_accept_star_or_pairs(value: tuple[str, ...]) -> None:
    assert THROTTLED_REPLICAS.holds(value)


@pytest.mark.parametrize("value", [("*", "*"), ("0",), ("0:1", "*"), ("a:b",)])
def test_throttled_replicas_reject_other_values(value: tuple[str, ...]) -> None:
    assert not THROTTLED_REPLICAS.holds(value)
