"""Limit on the partitions that a client creates and deletes: controller_mutation_rate, in partitions per second.

    rate 10/s, 11 windows of 1 s      a full bucket has 110 tokens; a request may take more than there are
    tokens  -30                       the next request is rejected, or delayed, for 3 s

A request is never cut: it may overdraw the bucket, and then the next one waits. New versions of CreateTopics,
CreatePartitions and DeleteTopics are *strict*: their items get THROTTLING_QUOTA_EXCEEDED while the bucket is overdrawn.
Old versions have no such error. Their requests succeed, and the broker reads no more requests from the connection until
the bucket has recovered.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.errors import ApiError, ErrorCode

WAIT_MAX_MS = 2**31 - 1
"""Longest throttle time that a response can contain: 25 days."""


class TokenBucket:
    """Tokens of one client. They are refilled at `rate` per second, up to `burst`, and may be negative."""

    __slots__ = ("burst", "rate", "tokens", "updated_ms")

    def __init__(self, rate: float, burst: float, now_ms: float) -> None:
        self.rate = rate
        self.burst = burst
        self.tokens = burst
        self.updated_ms = now_ms

    def refill(self, now_ms: float) -> None:
        gained = self.rate * (now_ms - self.updated_ms) / 1000
        self.tokens = min(self.burst, self.tokens + gained)
        self.updated_ms = now_ms

    def is_full(self, now_ms: float) -> bool:
        self.refill(now_ms)
        return self.tokens >= self.burst

    def wait_ms(self) -> int:
        """Return the time until the bucket is no longer overdrawn, at most WAIT_MAX_MS."""
        return round(min(max(-self.tokens, 0.0) / self.rate * 1000, WAIT_MAX_MS))


class MutationQuota:
    """The quota of one request. Without a bucket, nothing is limited."""

    def __init__(
        self, bucket: TokenBucket | None, now_ms: Callable[[], float], *, is_strict: bool
    ) -> None:
        self.bucket = bucket
        self.now_ms = now_ms
        self.is_strict = is_strict
        self.throttled_until_ms = 0.0

    def charge(self, mutations: int) -> ApiError | None:
        """Take tokens for an item of the request. Return an error if the item must be rejected."""
        bucket = self.bucket
        if bucket is None:
            return None
        now = self.now_ms()
        bucket.refill(now)
        if self.is_strict and bucket.tokens < 0:
            self.throttled_until_ms = now + bucket.wait_ms()
            return ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"controller_mutation_rate of {bucket.rate:g} partitions per second is exceeded; "
                f"retry in {bucket.wait_ms()} ms",
            )
        bucket.tokens -= mutations
        if not self.is_strict and bucket.tokens < 0:
            self.throttled_until_ms = now + bucket.wait_ms()
        return None

    def throttle_ms(self) -> int:
        """Return the rest of the throttle time: the request may have waited since it was charged."""
        if not self.throttled_until_ms:
            return 0
        return max(0, round(self.throttled_until_ms - self.now_ms()))


UNLIMITED_MUTATIONS = MutationQuota(None, lambda: 0.0, is_strict=False)
