from __future__ import annotations

from barnabas.log_rate_limiter import LogRateLimiter


def test_it_is_said_at_once_and_then_not_before_the_interval_has_passed() -> None:
    said = LogRateLimiter(60.0)
    assert [said.due(now) for now in (5.0, 5.1, 64.9, 65.0, 66.0)] == [
        True,
        False,
        False,
        True,
        False,
    ]
