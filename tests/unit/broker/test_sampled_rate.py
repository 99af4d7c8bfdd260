"""Rates as Kafka measures them: over at least all windows but one."""

from __future__ import annotations

import pytest

from barnabas.broker.sampled_rate import WAIT_MS_MAX, SampledRate


class Clock:
    def __init__(self) -> None:
        self.ms = 0.0

    def now(self) -> float:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rate(clock: Clock) -> SampledRate:
    return SampledRate(10, clock.now, windows=11, window_ms=1000)


def test_first_amount_counts_over_all_windows_but_one(rate: SampledRate) -> None:
    rate.record(100)
    assert rate.wait_ms() == 0
    rate.record(1)
    assert rate.wait_ms() == 100


def test_wait_ends_when_the_rate_is_met(rate: SampledRate, clock: Clock) -> None:
    rate.record(150)
    assert rate.wait_ms() == 5000
    # Within a window, the time measured grows with its fraction: 10.5 s at 0.5 s.
    clock.ms = 500
    assert rate.wait_ms() == 4500
    clock.ms = 10_500
    assert rate.wait_ms() == 4500
    clock.ms = 11_000
    assert rate.wait_ms() == 0, "the window is over"


def test_steady_rate_below_the_limit_never_waits(rate: SampledRate, clock: Clock) -> None:
    for second in range(60):
        clock.ms = second * 1000
        rate.record(9)
        assert rate.wait_ms() == 0


def test_steady_rate_above_the_limit_is_slowed_down_to_it(rate: SampledRate, clock: Clock) -> None:
    total = 0
    while clock.ms < 600_000:
        rate.record(37)
        total += 37
        clock.ms += max(rate.wait_ms(), 100)
    assert total / (clock.ms / 1000) == pytest.approx(10, rel=0.15)


def test_amount_can_be_taken_back(rate: SampledRate) -> None:
    rate.record(101)
    rate.record(-1)
    assert rate.wait_ms() == 0


def test_wait_is_bounded(rate: SampledRate) -> None:
    rate.record(1e18)
    assert rate.wait_ms() == WAIT_MS_MAX


def test_idle_rate_is_forgotten(rate: SampledRate, clock: Clock) -> None:
    rate.record(1)
    assert not rate.is_idle()
    clock.ms = 11_000
    assert rate.is_idle()
