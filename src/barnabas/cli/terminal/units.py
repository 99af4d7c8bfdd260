"""Rates and durations as text, and bars. Units are decimal: 1 MB is 1,000,000 bytes."""

from __future__ import annotations

import re

from barnabas.errors import ConfigError

RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?(?:/s)?", re.IGNORECASE)
SCALES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
BINARY_SCALES = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
RATE_MIN = 1000
EIGHTHS = " ▏▎▍▌▋▊▉█"


def parse_rate(option: str, text: str) -> int:
    """Parse `50MB/s`, `512KiB/s` or `1000000`; returns bytes per second. Raises ConfigError."""
    found = RATE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(
            option, f"{text!r} is not a rate; write 50MB/s, 512KiB/s or a number of bytes"
        )
    number, unit = found[1], (found[2] or "").lower()
    rate = int(float(number) * {**SCALES, **BINARY_SCALES}[unit])
    if rate < RATE_MIN:
        raise ConfigError(option, f"{text!r} is too slow; the minimum is 1KB/s")
    return rate


def duration_text(seconds: float) -> str:
    """
    >>> duration_text(0.2), duration_text(59), duration_text(61), duration_text(7260), duration_text(200000)
    ('less than 1 s', '59 s', '1 min 1 s', '2 h 1 min', '2 d 7 h')
    """
    if seconds < 1:
        return "less than 1 s"
    whole = round(seconds)
    for size, unit, part_size, part in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // part_size
            return f"{whole // size} {unit} {rest} {part}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def bar_text(share: float, width: int) -> str:
    """Return a bar, padded to `width`. A share above 0 is always visible.

    >>> bar_text(0.5, 4), bar_text(0, 4), bar_text(0.001, 4), bar_text(1, 4)
    ('██  ', '    ', '▏   ', '████')
    """
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[rest] if rest else "")).ljust(width)
