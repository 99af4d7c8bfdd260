"""Quotas on bytes and request time: which one applies to a client, and how long its connection waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker import client_quotas
from barnabas.broker.client_quotas import (
    FETCH_RATE,
    PRODUCE_RATE,
    REQUEST_TIME,
    ClientQuotas,
    StoredQuotas,
)
from barnabas.broker.work_meter import WorkMeter
from barnabas.config import BrokerConfig
from barnabas.security.principal import ANONYMOUS, Principal

APP = "/config/clients/app"
DEFAULT = "/config/clients/<default>"
SETTINGS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


def rate_of(
    stored: StoredQuotas, client_id: str, setting: str = PRODUCE_RATE, user: str = "ANONYMOUS"
) -> float | None:
    found = stored.find(user, client_id).get(setting)
    return None if found is None else found.rate


def connect(principal: Principal = ANONYMOUS) -> Any:
    return SimpleNamespace(throttle_seconds=0.0, principal=principal, meter=None)


def test_most_specific_quota_applies_and_changes_take_effect() -> None:
    stored = StoredQuotas()
    assert rate_of(stored, "app") is None
    stored.update(DEFAULT, {PRODUCE_RATE: "100", "controller_mutation_rate": "5"})
    stored.update(APP, {PRODUCE_RATE: "200"})
    assert [rate_of(stored, each) for each in ("app", "other", "")] == [200, 100, None]
    assert rate_of(stored, "app", FETCH_RATE) is None
    stored.update("/config/users/<default>", {PRODUCE_RATE: "300"})
    assert [rate_of(stored, each) for each in ("app", "other", "")] == [300, 300, 300]
    stored.clear()
    stored.update(APP, {PRODUCE_RATE: "200"})
    assert [rate_of(stored, each) for each in ("app", "other")] == [200, None]
    stored.update(APP, {})
    assert rate_of(stored, "app") is None
    assert not stored.by_path


@pytest.mark.parametrize("setting", SETTINGS)
def test_quotas_of_users_and_client_ids_have_kafkas_precedence(setting: str) -> None:
    """Each stored quota overrides all quotas before it."""
    stored = StoredQuotas()
    for rate, path in enumerate(
        [
            "/config/clients/<default>",
            "/config/clients/app%201",
            "/config/users/<default>",
            "/config/users/<default>/clients/<default>",
            "/config/users/<default>/clients/app%201",
            "/config/users/CN%3Dalice",
            "/config/users/CN%3Dalice/clients/<default>",
            "/config/users/CN%3Dalice/clients/app%201",
        ]
    ):
        stored.update(path, {setting: str(rate)})
        assert rate_of(stored, "app 1", setting, "CN=alice") == rate
    assert rate_of(stored, "app 1", setting, "bob") == 4
    assert rate_of(stored, "app 2", setting, "CN=alice") == 6
    assert rate_of(stored, "", setting, "CN=alice") == 5


def test_quotas_of_different_settings_come_from_different_entities() -> None:
    stored = StoredQuotas()
    stored.update("/config/users/alice", {PRODUCE_RATE: "1"})
    stored.update(APP, {PRODUCE_RATE: "2", FETCH_RATE: "3", REQUEST_TIME: "4"})
    found = stored.find("alice", "app")
    assert {name: tuple(limit) for name, limit in found.items()} == {
        PRODUCE_RATE: (1, ("alice", "")),
        FETCH_RATE: (3, ("", "app")),
        REQUEST_TIME: (4, ("", "app")),
    }


@pytest.mark.parametrize("rate", ["-1", "nan", "inf", "much", ""])
def test_invalid_rate_is_ignored_with_a_warning(
    rate: str, caplog: pytest.LogCaptureFixture
) -> None:
    stored = StoredQuotas()
    stored.update(APP, {PRODUCE_RATE: rate, FETCH_RATE: "7"})
    assert stored.by_path == {APP: {FETCH_RATE: 7.0}}
    assert f"ignoring quota path={APP}" in caplog.text


def test_version_changes_with_the_quotas_only() -> None:
    stored = StoredQuotas()
    stored.update("/config/users/alice", {"SCRAM-SHA-256": "salt=…"})
    assert stored.version == 0
    stored.update("/config/users/alice", {PRODUCE_RATE: "1"})
    assert stored.version == 1
    stored.update("/config/users/alice", {PRODUCE_RATE: "1", "SCRAM-SHA-256": "salt=…"})
    assert stored.version == 1
    stored.clear()
    assert stored.version == 2


def test_replaced_quotas_are_forgotten() -> None:
    quotas = ClientQuotas(BrokerConfig(), lambda: 0.0)
    quotas.replace_all(
        {APP: {PRODUCE_RATE: "1"}, "/config/ips/10.0.0.1": {"connection_creation_rate": "2"}}
    )
    assert quotas.has_quota(connect(), "app")
    assert quotas.connections.limits == {"10.0.0.1": 2}
    quotas.replace_all({})
    assert not quotas.has_quota(connect(), "app")
    assert not quotas.connections.limits


def test_number_of_known_clients_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "CLIENTS_MAX", 3)
    stored = StoredQuotas()
    stored.update(DEFAULT, {PRODUCE_RATE: "100"})
    for number in range(10):
        assert rate_of(stored, f"app-{number}") == 100
    assert len(stored.found) <= 3


def test_connection_waits_until_the_rate_is_met() -> None:
    now_ms = 0.0
    quotas = ClientQuotas(BrokerConfig(quota_window_num=2), lambda: now_ms)
    quotas.stored.update(APP, {PRODUCE_RATE: "1000"})
    connection = connect()
    assert quotas.charge(connection, FETCH_RATE, "app", 10_000) == 0
    assert quotas.charge(connection, PRODUCE_RATE, "other", 10_000) == 0
    assert quotas.charge(connection, PRODUCE_RATE, None, 10_000) == 0
    assert quotas.charge(connection, PRODUCE_RATE, "app", 1000) == 0
    assert connection.throttle_seconds == 0
    assert quotas.charge(connection, PRODUCE_RATE, "app", 500) == 500
    assert connection.throttle_seconds == 0.5
    now_ms = 1500.0
    assert quotas.charge(connection, PRODUCE_RATE, "app", 0) == 0


def test_connections_of_one_user_share_its_quota() -> None:
    quotas = ClientQuotas(BrokerConfig(quota_window_num=2), lambda: 0.0)
    quotas.stored.update("/config/users/<default>", {PRODUCE_RATE: "1000"})
    alice, bob = Principal("alice"), Principal("bob")
    assert quotas.charge(connect(alice), PRODUCE_RATE, "app", 1000) == 0
    assert quotas.charge(connect(alice), PRODUCE_RATE, "other", 1000) == 1000
    assert quotas.charge(connect(bob), PRODUCE_RATE, "app", 1000) == 0


def test_rate_of_zero_lets_one_request_through_per_windows() -> None:
    quotas = ClientQuotas(BrokerConfig(quota_window_num=2), lambda: 0.0)
    quotas.stored.update(APP, {PRODUCE_RATE: "0"})
    assert quotas.charge(connect(), PRODUCE_RATE, "app", 1) == 2000


def test_produce_counts_the_bytes_of_the_request_and_its_time_unless_acks_are_0() -> None:
    quotas = ClientQuotas(BrokerConfig(quota_window_num=2), lambda: 0.0)
    quotas.stored.update(APP, {PRODUCE_RATE: "1000", REQUEST_TIME: "1"})
    connection = connect()
    connection.frame_bytes_last = 1504
    connection.meter = WorkMeter(lambda: 0.0)
    connection.meter.seconds = 0.1
    assert quotas.charge_produce(connection, "app", acks=0) == 500
    assert connection.meter.seconds == 0.0
    connection.meter.seconds = 0.1
    connection.frame_bytes_last = 4
    assert quotas.charge_produce(connection, "app", acks=1) == 1000, "10 %, and at most one window"


def test_meter_exists_only_for_a_client_with_a_request_quota() -> None:
    quotas = ClientQuotas(BrokerConfig(), lambda: 0.0)
    quotas.stored.update(APP, {REQUEST_TIME: "1"})
    connection = connect()
    connection.loop = SimpleNamespace(time=lambda: 0.0)
    assert quotas.select_meter(connection, "other") is None
    meter = quotas.select_meter(connection, "app")
    assert meter is not None
    assert quotas.select_meter(connection, "app") is meter
    quotas.stored.update(APP, {PRODUCE_RATE: "1"})
    assert quotas.select_meter(connection, "app") is None
    assert connection.meter is None


def test_records_above_the_rate_are_withheld_and_do_not_count() -> None:
    now_ms = 0.0
    quotas = ClientQuotas(BrokerConfig(quota_window_num=2), lambda: now_ms)
    quotas.stored.update(APP, {FETCH_RATE: "1000"})
    connection = connect()
    assert quotas.charge_fetch(connection, "app", 3000) == (2000, False), "the first is sent"
    assert connection.throttle_seconds == 2.0
    assert quotas.charge_fetch(connection, "app", 1000) == (3000, True)
    assert quotas.charge_fetch(connection, "app", 1000) == (3000, True)
    assert quotas.charge_fetch(connection, "app", 0) == (2000, False)
    now_ms = 2000.0
    assert quotas.charge_fetch(connection, "app", 1000) == (0, False)


def test_fetch_returns_at_most_the_bytes_of_the_windows() -> None:
    quotas = ClientQuotas(BrokerConfig(), lambda: 0.0)
    quotas.stored.update(APP, {FETCH_RATE: "1000"})
    assert quotas.fetch_bytes_max(connect(), "app") == 10_000
    assert quotas.fetch_bytes_max(connect(), "other") == float("inf")
    single = ClientQuotas(BrokerConfig(quota_window_num=1), lambda: 0.0)
    single.stored.update(APP, {FETCH_RATE: "1000"})
    assert single.fetch_bytes_max(connect(), "app") == 1000


def test_rates_of_idle_clients_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "CLIENTS_MAX", 3)
    quotas = ClientQuotas(BrokerConfig(), lambda: 0.0)
    quotas.stored.update(DEFAULT, {PRODUCE_RATE: "1"})
    assert quotas.charge(connect(), PRODUCE_RATE, "busy", 1000) > 0
    for number in range(10):
        quotas.charge(connect(), PRODUCE_RATE, f"app-{number}", 0)
    assert len(quotas.rates) <= 4
    assert quotas.charge(connect(), PRODUCE_RATE, "busy", 0) > 0


def test_new_client_id_for_each_request_takes_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_quotas, "CLIENTS_MAX", 3)
    quotas = ClientQuotas(BrokerConfig(), lambda: 0.0)
    quotas.stored.update(DEFAULT, {PRODUCE_RATE: "1"})
    for number in range(20):
        assert quotas.charge(connect(), PRODUCE_RATE, f"app-{number}", 1000) > 0
        assert len(quotas.rates) <= 4
