from __future__ import annotations

from barnabas.log_rate_limiter import LogRateLimiter


def test_limiter_is_due_at_first_and_once_per_interval() -> None:
    limiter = LogRateLimiter(60.0)
    assert [limiter.is_due(now) for now in (5.0, 5.1, 64.9, 65.0, 66.0)] == [
        True,
        False,
        False,
        True,
        False,
    ]
