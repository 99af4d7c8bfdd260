"""Back-off: delays, jitter, and yielding to the event loop."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from barnabas.retry import DELAY_S_MIN, JITTER, Backoff


def delay_after(failures: int, first_s: float, max_s: float, factor: float) -> float:
    backoff = Backoff(first_s, max_s, factor=factor, random=Random(1))
    backoff.failures = failures
    return backoff.delay_s


def test_delay_grows_to_its_maximum() -> None:
    delays = [delay_after(failures, 0.02, 1.0, 4.0) for failures in range(6)]
    assert delays == pytest.approx([0.02, 0.08, 0.32, 1.0, 1.0, 1.0])


def test_many_failures_do_not_overflow() -> None:
    assert delay_after(1_000_000, 0.02, 1.0, 4.0) == 1.0


def test_maximum_below_first_delay_applies() -> None:
    assert delay_after(0, 0.25, 0.1, 2.0) == 0.1


def test_first_delay_of_zero_stays_zero() -> None:
    assert delay_after(1000, 0.0, 1.0, 2.0) == 0.0


def test_jitter_shortens_by_at_most_a_fifth() -> None:
    backoff = Backoff(1.0, 1.0, random=Random(1))
    delays = [backoff.next_s() for _ in range(1000)]
    assert 1 - JITTER < min(delays) < 0.81
    assert 0.99 < max(delays) <= 1.0


def test_delays_are_repeatable_with_the_same_seed() -> None:
    one, same, other = (Backoff(0.02, 1.0, random=Random(seed)) for seed in ("a", "a", "b"))
    delays = [one.next_s() for _ in range(10)]
    assert delays == [same.next_s() for _ in range(10)]
    assert delays != [other.next_s() for _ in range(10)]


def test_reset_starts_with_the_first_delay_again() -> None:
    backoff = Backoff(0.02, 1.0, random=Random(1))
    for _ in range(10):
        backoff.next_s()
    assert backoff.failures == 10
    backoff.reset()
    assert backoff.failures == 0
    assert backoff.next_s() <= 0.02


def test_delay_is_never_zero() -> None:
    backoff = Backoff(0.0, 0.0, random=Random(1))
    assert [backoff.next_s() for _ in range(3)] == [DELAY_S_MIN] * 3


async def test_wait_yields_even_without_a_delay() -> None:
    backoff = Backoff(0.0, 0.0, random=Random(1))
    yielded = asyncio.Event()
    asyncio.get_running_loop().call_soon(yielded.set)
    await backoff.wait()
    assert yielded.is_set()
