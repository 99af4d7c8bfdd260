"""Token bucket of the controller mutation quota: burst, refill, strict and permissive requests."""

from __future__ import annotations

import pytest

from barnabas.controller.mutation_quota import (
    UNLIMITED_MUTATIONS,
    WAIT_MAX_MS,
    MutationQuota,
    TokenBucket,
)
from barnabas.errors import ErrorCode


class ManualTime:
    def __init__(self) -> None:
        self.now_ms = 5000.0

    def __call__(self) -> float:
        return self.now_ms


@pytest.fixture
def time() -> ManualTime:
    return ManualTime()


@pytest.fixture
def bucket(time: ManualTime) -> TokenBucket:
    """Two partitions per second, at most ten at once."""
    return TokenBucket(2.0, 10.0, time())


def test_burst_may_overdraw_the_bucket_once(time: ManualTime, bucket: TokenBucket) -> None:
    quota = MutationQuota(bucket, time, is_strict=True)
    assert quota.charge(30) is None
    error = quota.charge(1)
    assert error is not None
    assert error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert "10000 ms" in error.message
    assert bucket.tokens == -20


def test_strict_request_without_rejected_item_is_not_throttled(
    time: ManualTime, bucket: TokenBucket
) -> None:
    quota = MutationQuota(bucket, time, is_strict=True)
    assert quota.charge(30) is None
    assert quota.throttle_ms() == 0


def test_permissive_request_is_accepted_and_throttled(
    time: ManualTime, bucket: TokenBucket
) -> None:
    quota = MutationQuota(bucket, time, is_strict=False)
    assert quota.charge(12) is None
    assert quota.throttle_ms() == 1000
    assert quota.charge(2) is None
    assert quota.throttle_ms() == 2000


def test_throttle_time_shrinks_while_the_request_waits(
    time: ManualTime, bucket: TokenBucket
) -> None:
    quota = MutationQuota(bucket, time, is_strict=False)
    quota.charge(12)
    time.now_ms += 400
    assert quota.throttle_ms() == 600
    time.now_ms += 4000
    assert quota.throttle_ms() == 0


def test_bucket_is_refilled_up_to_its_burst(time: ManualTime, bucket: TokenBucket) -> None:
    quota = MutationQuota(bucket, time, is_strict=True)
    quota.charge(14)
    time.now_ms += 1900
    assert quota.charge(1) is not None, "0.2 tokens are missing"
    time.now_ms += 200
    assert quota.charge(1) is None
    time.now_ms += 3_600_000
    assert bucket.is_full(time())
    assert bucket.tokens == 10


def test_empty_bucket_is_not_overdrawn(time: ManualTime, bucket: TokenBucket) -> None:
    quota = MutationQuota(bucket, time, is_strict=True)
    assert quota.charge(10) is None
    assert quota.charge(1) is None
    assert quota.charge(0) is not None, "an item without partitions is rejected too, as in Kafka"


def test_quota_without_bucket_limits_nothing() -> None:
    assert UNLIMITED_MUTATIONS.charge(1_000_000) is None
    assert UNLIMITED_MUTATIONS.throttle_ms() == 0


@pytest.mark.parametrize("rate", [5e-324, 1e-300, 1e-9])
@pytest.mark.parametrize("is_strict", [True, False])
def test_throttle_time_of_a_tiny_rate_fits_a_response(
    time: ManualTime, rate: float, is_strict: bool
) -> None:
    quota = MutationQuota(TokenBucket(rate, rate, time()), time, is_strict=is_strict)
    assert quota.charge(1) is None
    quota.charge(1)
    assert quota.throttle_ms() == WAIT_MAX_MS == 0x7FFF_FFFF
