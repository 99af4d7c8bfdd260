"""Byte quotas: which one applies to a client, and how long its connection waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker import byte_quotas
from barnabas.broker.byte_quotas import FETCH_RATE, PRODUCE_RATE, ByteQuotas, StoredQuotas
from barnabas.config import BrokerConfig

APP = "/config/clients/app"
DEFAULT = "/config/clients/<default>"


def rate_of(stored: StoredQuotas, client_id: str, setting: str = PRODUCE_RATE) -> float | None:
    found = stored.find(setting, client_id)
    return None if found is None else found.rate


def test_most_specific_quota_applies_and_changes_take_effect() -> None:
    stored = StoredQuotas()
    assert rate_of(stored, "app") is None
    stored.update(DEFAULT, {PRODUCE_RATE: "100", "request_percentage": "5"})
    stored.update(APP, {PRODUCE_RATE: "200"})
    assert [rate_of(stored, each) for each in ("app", "other", "")] == [200, 100, None]
    assert rate_of(stored, "app", FETCH_RATE) is None
    stored.update("/config/users/<default>", {PRODUCE_RATE: "300"})
    assert [rate_of(stored, each) for each in ("app", "other", "")] == [300, 300, 300]
    stored.replace_all({APP: {PRODUCE_RATE: "200"}})
    assert [rate_of(stored, each) for each in ("app", "other")] == [200, None]
    stored.update(APP, {})
    assert rate_of(stored, "app") is None
    assert not stored.by_path


@pytest.mark.parametrize("rate", ["-1", "nan", "inf", "much", ""])
def test_invalid_rate_is_ignored_with_a_warning(
    rate: str, caplog: pytest.LogCaptureFixture
) -> None:
    stored = StoredQuotas()
    stored.update(APP, {PRODUCE_RATE: rate, FETCH_RATE: "7"})
    assert stored.by_path == {APP: {FETCH_RATE: 7.0}}
    assert f"ignoring quota path={APP}" in caplog.text


def test_number_of_known_clients_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_quotas, "CLIENTS_MAX", 3)
    stored = StoredQuotas()
    stored.update(DEFAULT, {PRODUCE_RATE: "100"})
    for number in range(10):
        assert rate_of(stored, f"app-{number}") == 100
    assert len(stored.found) <= 3


def test_connection_waits_until_the_rate_is_met() -> None:
    now_ms = 0.0
    quotas = ByteQuotas(BrokerConfig(quota_window_num=2), lambda: now_ms)
    quotas.stored.update(APP, {PRODUCE_RATE: "1000"})
    connection: Any = SimpleNamespace(throttle_seconds=0.0)
    assert quotas.charge(connection, FETCH_RATE, "app", 10_000) == 0
    assert quotas.charge(connection, PRODUCE_RATE, "other", 10_000) == 0
    assert quotas.charge(connection, PRODUCE_RATE, None, 10_000) == 0
    assert quotas.charge(connection, PRODUCE_RATE, "app", 1000) == 0
    assert connection.throttle_seconds == 0
    assert quotas.charge(connection, PRODUCE_RATE, "app", 500) == 500
    assert connection.throttle_seconds == 0.5
    now_ms = 1500.0
    assert quotas.charge(connection, PRODUCE_RATE, "app", 0) == 0


def test_rate_of_zero_lets_one_request_through_per_windows() -> None:
    quotas = ByteQuotas(BrokerConfig(quota_window_num=2), lambda: 0.0)
    quotas.stored.update(APP, {PRODUCE_RATE: "0"})
    connection: Any = SimpleNamespace(throttle_seconds=0.0)
    assert quotas.charge(connection, PRODUCE_RATE, "app", 1) == 2000


def test_rates_of_idle_clients_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_quotas, "CLIENTS_MAX", 3)
    quotas = ByteQuotas(BrokerConfig(), lambda: 0.0)
    quotas.stored.update(DEFAULT, {PRODUCE_RATE: "1"})
    connection: Any = SimpleNamespace(throttle_seconds=0.0)
    assert quotas.charge(connection, PRODUCE_RATE, "busy", 1000) > 0
    for number in range(10):
        quotas.charge(connection, PRODUCE_RATE, f"app-{number}", 0)
    assert len(quotas.rates) <= 4
    assert quotas.charge(connection, PRODUCE_RATE, "busy", 0) > 0
