"""Bytes, rates, durations and bars."""

from __future__ import annotations

import pytest

from barnabas.byte_units import bytes_text
from barnabas.cli.terminal.units import bar_text, duration_text, parse_rate
from barnabas.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("50MB/s", 50_000_000),
        ("50 MB/s", 50_000_000),
        ("512KiB/s", 524_288),
        ("1.5g", 1_500_000_000),
        ("1000", 1000),
        ("2mb", 2_000_000),
    ],
)
def test_rates_are_parsed(text: str, rate: int) -> None:
    assert parse_rate("--throttle", text) == rate


@pytest.mark.parametrize("text", ["", "fast", "-1MB/s", "1XB/s", "50MB/h", "999", "0"])
def test_other_rates_are_wrong_usage(text: str) -> None:
    with pytest.raises(ConfigError, match="--throttle: "):
        parse_rate("--throttle", text)


def test_bytes_have_two_digits_or_more() -> None:
    shown = [
        bytes_text(count) for count in (0, 1, 999, 1000, 9_950, 99_499, 999_600, 10**15, 10**19)
    ]
    assert shown == [
        "0 B",
        "1 B",
        "999 B",
        "1.0 KB",
        "9.9 KB",
        "99 KB",
        "1.0 MB",
        "1.0 PB",
        "10000 PB",
    ]


def test_durations_have_at_most_two_units() -> None:
    shown = [duration_text(seconds) for seconds in (0, 1, 60, 90, 3600, 3661, 86_400, 90_000)]
    assert shown == [
        "less than 1 s",
        "1 s",
        "1 min",
        "1 min 30 s",
        "1 h",
        "1 h 1 min",
        "1 d",
        "1 d 1 h",
    ]


def test_bar_is_never_empty_for_something() -> None:
    assert bar_text(0, 5) == "     "
    assert bar_text(1e-9, 5) == "▏    "
    assert bar_text(2, 5) == "█████"
