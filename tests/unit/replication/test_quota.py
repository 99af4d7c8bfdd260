"""Replication quotas, on a clock that only the test advances."""

from __future__ import annotations

import pytest

from barnabas.config import BrokerConfig
from barnabas.replication.quota import (
    UNLIMITED,
    ReplicationQuota,
    create_quota,
    is_throttled,
    parse_replicas,
    update_quota,
)


class FakeTime:
    def __init__(self) -> None:
        self.ms = 1_000_000.0

    def __call__(self) -> float:
        return self.ms


def test_unused_quota_is_not_exceeded() -> None:
    assert not ReplicationQuota(0, FakeTime()).is_exceeded()


def test_first_window_counts_as_a_whole_one() -> None:
    quota = ReplicationQuota(100, FakeTime())
    quota.record(100)
    assert not quota.is_exceeded()
    quota.record(1)
    assert quota.is_exceeded()


def test_burst_counts_until_it_is_within_the_rate() -> None:
    time = FakeTime()
    quota = ReplicationQuota(100, time)
    quota.record(300)
    assert quota.wait_ms() == 2000
    time.ms += 2999
    assert quota.is_exceeded()
    time.ms += 1
    assert not quota.is_exceeded()


def test_sender_that_waits_keeps_the_rate() -> None:
    time = FakeTime()
    quota = ReplicationQuota(1000, time)
    sent = 0
    began = time.ms
    while time.ms - began < 60_000:
        if not quota.is_exceeded():
            quota.record(700)
            sent += 700
        time.ms += 50
    assert 0.97 <= sent / 60_000 <= 1.03


def test_traffic_older_than_all_windows_is_forgotten() -> None:
    time = FakeTime()
    quota = ReplicationQuota(1, time, windows=11, window_ms=1000)
    quota.record(1_000_000)
    assert quota.wait_ms() == 11_000
    time.ms += 10_999
    assert quota.is_exceeded()
    time.ms += 1
    assert not quota.is_exceeded()


def test_rate_is_measured_over_remembered_windows() -> None:
    time = FakeTime()
    quota = ReplicationQuota(100, time, windows=3, window_ms=1000)
    for _ in range(20):
        quota.record(100)
        time.ms += 1000
    assert len(quota.windows) <= 4
    assert not quota.is_exceeded()
    quota.record(500)
    assert quota.is_exceeded()


def test_new_rate_counts_earlier_traffic() -> None:
    time = FakeTime()
    quota = update_quota(None, 100, BrokerConfig(), time)
    assert quota is not None
    quota.record(100)
    assert not quota.is_exceeded()
    assert update_quota(quota, 50, BrokerConfig(), time) is quota
    assert quota.is_exceeded()
    assert update_quota(quota, UNLIMITED, BrokerConfig(), time) is None


def test_unlimited_rate_has_no_quota() -> None:
    assert create_quota(UNLIMITED, BrokerConfig(), FakeTime()) is None
    assert create_quota(5, BrokerConfig(), FakeTime()) is not None


@pytest.mark.parametrize(
    ("listed", "partition", "broker", "expected"),
    [
        ((), 0, 1, False),
        (("*",), 7, 3, True),
        (("0:1", "2:3"), 2, 3, True),
        (("0:1", "2:3"), 2, 1, False),
        (("12:3",), 2, 3, False),
        (("02:3", ""), 2, 3, True),
    ],
)
def test_replica_is_throttled_if_listed(
    listed: tuple[str, ...], partition: int, broker: int, expected: bool
) -> None:
    assert is_throttled(listed, partition, broker) is expected


def test_list_of_throttled_replicas_is_parsed_once() -> None:
    listed = tuple(f"{partition}:{broker}" for partition in range(1000) for broker in (1, 2, 3))
    assert is_throttled(listed, 999, 3)
    assert parse_replicas(listed) is parse_replicas(listed)
