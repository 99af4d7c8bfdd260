from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from barnabas.cli.records.start_position import parse_start, parse_time
from barnabas.client.consumer import Beginning, End, FromEnd, FromOffset, FromTime, Start
from barnabas.errors import ConfigError

NOW = 1_700_000_000_000
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Beginning()),
        ("earliest", Beginning()),
        ("end", End()),
        ("latest", End()),
        ("0", FromOffset(0)),
        ("1234", FromOffset(1234)),
        ("-10", FromEnd(10)),
        ("@1699999999999", FromTime(1_699_999_999_999)),
        ("@-1h", FromTime(NOW - HOUR)),
        ("@-1d12h", FromTime(NOW - 36 * HOUR)),
        ("@-90s", FromTime(NOW - 90_000)),
        ("@-250ms", FromTime(NOW - 250)),
        ("@-2m", FromTime(NOW - 120_000)),
        ("@-1w", FromTime(NOW - 7 * 24 * HOUR)),
        ("@-9999w", FromTime(0)),
        ("@1969-12-31T23:59:59.999+00:00", FromTime(0)),
        ("@2023-11-14T22:13:20Z", FromTime(NOW)),
        ("@2023-11-14T23:13:20+01:00", FromTime(NOW)),
    ],
)
def test_every_start_notation_is_parsed(text: str, start: Start) -> None:
    assert parse_start(text, NOW) == start


def test_time_without_zone_is_local() -> None:
    local = datetime.fromtimestamp(NOW / 1000, UTC).astimezone().replace(tzinfo=None)
    assert parse_start("@" + local.isoformat(), NOW) == FromTime(NOW)


@pytest.mark.parametrize(
    "text",
    ["", "begining", "+5", "--5", "1.5", "@", "@yesterday", "@-h", "@-1y", "@1h", "-", "9" * 40],
)
def test_invalid_start_is_rejected_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape("@-1h")):
        parse_start(text, NOW)


def test_invalid_time_names_the_option() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_time("yesterday", NOW, "--since")
    assert str(raised.value) == (
        "--since: 'yesterday' is not a time; try -1h, 2024-05-01T08:00 or 1700000000000 (in ms)"
    )
