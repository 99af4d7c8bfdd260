"""Backoff between retries.

    backoff = Backoff(0.02, 1.0, random=Random(seed))
    while True:
        try:
            response = await send_request()
            backoff.reset()
            ...
        except ConnectionError:
            await backoff.wait()

Every loop that retries goes through `Backoff`; tests/architecture/test_retry_loops.py checks that. `wait` always yields
to the event loop, so a loop that fails without awaiting anything else cannot block the broker. Blocking code passes
`next_s()` to its own sleep.
"""

from __future__ import annotations

from random import Random

JITTER = 0.2
DELAY_S_MIN = 0.001
"""The shortest delay, even if a setting is 0: a retry loop must not use a whole CPU."""
STEPS_MAX = 64
"""Maximum exponent of the factor, so that the delay stays within the range of a float."""

CONFLICT_S = (0.002, 0.1)
"""First and longest delay after a conditional write to the registry failed because another client wrote first."""


class Backoff:
    """Delays between the attempts of one operation.

    The delay starts at `first_s` and is multiplied by `factor` after each failure, up to `max_s`. Jitter shortens each
    delay by up to a fifth, so that many brokers do not retry in step. `random` is the source of the jitter. If
    it is seeded, the delays are repeatable.
    """

    __slots__ = ("factor", "failures", "first_s", "max_s", "random")

    def __init__(
        self, first_s: float, max_s: float, *, random: Random, factor: float = 2.0
    ) -> None:
        self.first_s = first_s
        self.max_s = max_s
        self.factor = factor
        self.random = random
        self.failures = 0
        """Failures in a row."""

    def reset(self) -> None:
        """Start again with the first delay. Call it after a success."""
        self.failures = 0

    @property
    def delay_s(self) -> float:
        """The next delay, without jitter."""
        return min(self.first_s * self.factor ** min(self.failures, STEPS_MAX), self.max_s)

    def next_s(self) -> float:
        """Count one failure and return the seconds to wait before the next attempt."""
        delay_s = self.delay_s
        self.failures += 1
        return max(delay_s * (1 - JITTER * self.random.random()), DELAY_S_MIN)

    async def wait(self) -> None:
        """Count one failure and wait. Always yields to the event loop."""
        # Blocking clients use this module too, and importing asyncio takes them tens of milliseconds.
        import asyncio

        await asyncio.sleep(self.next_s())
