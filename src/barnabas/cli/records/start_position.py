"""Parser for the start positions of --offset.

beginning, earliest      the oldest record                   end, latest       new records only
1234                     that offset                         -10               ten records before the end
@1700000000000           the first record at or after that time, in ms since 1970
@-1h, @-90s, @-1d12h     the first record at or after that long ago; units are ms s m h d w
@2024-05-01T08:00        the first record at or after that time; local unless it ends in Z or +02:00
"""

from __future__ import annotations

import re
from datetime import datetime

from barnabas.client.consumer import Beginning, End, FromEnd, FromOffset, FromTime, Start
from barnabas.errors import ConfigError

UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
DURATION = re.compile(r"(?:\d{1,18}(?:ms|[smhdw]))+")
DURATION_MS_MAX = 2**63 - 1
DURATION_PART = re.compile(r"(\d+)(ms|[smhdw])")
EXAMPLES = "beginning, end, 1234, -10, @1700000000000, @-1h or @2024-05-01T08:00"
TIME_EXAMPLES = "-1h, 2024-05-01T08:00 or 1700000000000 (in ms)"


def parse_start(text: str, now_ms: int, option: str = "--offset") -> Start:
    """Parse a start position. Raises ConfigError for `option`, with examples."""
    if text in ("beginning", "earliest"):
        return Beginning()
    if text in ("end", "latest"):
        return End()
    if re.fullmatch(r"\d{1,18}", text):
        return FromOffset(int(text))
    if re.fullmatch(r"-\d{1,18}", text):
        return FromEnd(int(text[1:]))
    if text.startswith("@"):
        return FromTime(parse_time(text[1:], now_ms, option))
    raise ConfigError(option, f"{text!r} is not an offset; try {EXAMPLES}")


def parse_time(text: str, now_ms: int, option: str = "--offset") -> int:
    """Parse a time as above, without @. Return ms since 1970. Raises ConfigError for `option`."""
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    if text.startswith("-") and DURATION.fullmatch(text[1:]):
        return max(0, now_ms - duration_ms(text[1:]))
    try:
        return max(0, int(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        if option == "--offset":
            raise ConfigError(option, f"{'@' + text!r} is not a time; try {EXAMPLES}") from None
        raise ConfigError(option, f"{text!r} is not a time; try {TIME_EXAMPLES}") from None


def parse_duration(option: str, text: str) -> int:
    """Return the milliseconds of `90s` or `1h30m`. Raises ConfigError."""
    if not DURATION.fullmatch(text):
        raise ConfigError(option, f"{text!r} is not a duration; try 90s, 15m or 1h30m")
    duration = duration_ms(text)
    if duration > DURATION_MS_MAX:
        raise ConfigError(
            option, f"{text!r} is too long; at most {DURATION_MS_MAX} ms are possible"
        )
    return duration


def duration_ms(text: str) -> int:
    """Return the milliseconds of a text that matches DURATION."""
    return sum(int(count) * UNIT_MS[unit] for count, unit in DURATION_PART.findall(text))
