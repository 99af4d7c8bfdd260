"""Limits on new connections per second: which one applies, and how long a connection or a listener waits."""

from __future__ import annotations

import pytest

from barnabas.broker import connection_rates
from barnabas.broker.connection_rates import ConnectionRates, normalize_address
from barnabas.config import BrokerConfig
from barnabas.model import Endpoint, SecurityProtocol

TWO_WINDOWS = {"quota_window_num": 2}
RATE = "max.connection.creation.rate"


def listener(name: str) -> Endpoint:
    return Endpoint(listener=name, host="", port=0, protocol=SecurityProtocol.PLAINTEXT)


def rates_with(**security: int) -> ConnectionRates:
    config = BrokerConfig(
        quota_window_num=2,
        security={name.replace("_", "."): value for name, value in security.items()},
        listeners=(listener("INTERNAL"), listener("EXTERNAL")),
        inter_broker_listener_name="INTERNAL",
    )
    return ConnectionRates(config, lambda: 0.0)


def test_address_above_its_rate_is_held_and_does_not_count() -> None:
    now_ms = 0.0
    rates = ConnectionRates(BrokerConfig(quota_window_num=2), lambda: now_ms)
    assert rates.hold_seconds("10.0.0.1") == 0
    rates.update("/config/ips/10.0.0.1", {"connection_creation_rate": "3"})
    assert [rates.hold_seconds("10.0.0.1") for _ in range(3)] == [0, 0, 0]
    assert 0 < rates.hold_seconds("10.0.0.1") < 1
    assert rates.hold_seconds("10.0.0.1") == rates.hold_seconds("10.0.0.1")
    assert rates.hold_seconds("10.0.0.2") == 0, "another address"
    now_ms = 1000.0
    assert rates.hold_seconds("10.0.0.1") > 0, "the first window still counts"
    now_ms = 2000.0
    assert rates.hold_seconds("10.0.0.1") == 0


def test_most_specific_address_applies_and_changes_take_effect() -> None:
    rates = ConnectionRates(BrokerConfig(), lambda: 0.0)
    rates.update("/config/ips/<default>", {"connection_creation_rate": "0"})
    rates.update("/config/ips/0%3A0%3A0%3A0%3A0%3A0%3A0%3A1", {"connection_creation_rate": "5"})
    assert rates.hold_seconds("10.0.0.1") == 1.0, "at most one window"
    assert rates.hold_seconds("::1") == 0
    rates.update("/config/ips/<default>", {})
    assert rates.hold_seconds("10.0.0.1") == 0


@pytest.mark.parametrize("text", ["-1", "much", "inf", "nan"])
def test_invalid_rate_is_ignored_with_a_warning(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    rates = ConnectionRates(BrokerConfig(), lambda: 0.0)
    rates.update("/config/ips/10.0.0.1", {"connection_creation_rate": text})
    assert not rates.limits
    assert "ignoring quota path=/config/ips/10.0.0.1" in caplog.text


def test_number_of_known_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_rates, "ADDRESSES_MAX", 3)
    rates = ConnectionRates(BrokerConfig(), lambda: 0.0)
    rates.update("/config/ips/<default>", {"connection_creation_rate": "100"})
    for number in range(20):
        rates.hold_seconds(f"10.0.0.{number}")
        assert len(rates.of_addresses) <= 3


@pytest.mark.parametrize("host", ["::ffff:10.0.0.1", "10.0.0.1"])
def test_ipv4_address_in_ipv6_is_the_same_address(host: str) -> None:
    assert normalize_address(host) == "10.0.0.1"


def test_listener_pauses_above_the_rate_of_the_broker_or_its_own() -> None:
    rates = rates_with(**{RATE.replace(".", "_"): 2})
    assert [rates.pause_seconds("EXTERNAL") for _ in range(2)] == [0, 0]
    assert 0 < rates.pause_seconds("EXTERNAL") <= 1
    own = rates_with(**{f"listener.name.external.{RATE}".replace(".", "_"): 1})
    assert own.pause_seconds("EXTERNAL") == 0
    assert own.pause_seconds("EXTERNAL") > 0
    assert [own.pause_seconds("INTERNAL") for _ in range(50)] == [0] * 50


def test_rate_of_the_broker_does_not_keep_brokers_from_connecting() -> None:
    rates = rates_with(
        **{RATE.replace(".", "_"): 1, f"listener.name.internal.{RATE}".replace(".", "_"): 100}
    )
    for _ in range(10):
        rates.pause_seconds("EXTERNAL")
    assert rates.pause_seconds("INTERNAL") == 0


def test_unlimited_rate_counts_nothing() -> None:
    rates = rates_with()
    assert rates.pause_seconds("EXTERNAL") == 0
    assert not rates.of_listeners
