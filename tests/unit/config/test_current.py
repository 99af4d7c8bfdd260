"""The current configuration: levels, listeners, and invalid settings in the registry."""

from __future__ import annotations

import logging
import time

import pytest

from barnabas.config import BrokerConfig
from barnabas.config.current import CurrentConfig
from barnabas.config.dynamic import SETTINGS_MAX

STATIC = BrokerConfig(broker_id=1, max_connections=50)


def test_listeners_get_old_and_new_configuration() -> None:
    current = CurrentConfig(STATIC)
    seen: list[tuple[int, int]] = []
    current.on_change(lambda old, new: seen.append((old.max_connections, new.max_connections)))
    current.update_default({"max.connections": "5"})
    current.update_broker({"max.connections": "7"})
    current.update_broker({"max.connections": "7"})  # unchanged: not published
    current.update_broker({})
    current.update_default({})
    assert seen == [(50, 5), (5, 7), (7, 5), (5, 50)]
    assert current.value == STATIC


def test_invalid_settings_are_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    current = CurrentConfig(STATIC)
    with caplog.at_level(logging.ERROR):
        current.update_broker({"max.connections": "7", "broker.id": "9", "no.such.setting": "1"})
    assert current.value.max_connections == 7
    assert current.dynamic.broker == {"max.connections": "7"}
    assert "broker.id" in caplog.text
    assert "no.such.setting" in caplog.text


def test_contradicting_settings_keep_the_configuration(caplog: pytest.LogCaptureFixture) -> None:
    current = CurrentConfig(STATIC)
    current.update_broker({"log.retention.ms": "7"})
    with caplog.at_level(logging.ERROR):
        current.update_broker({"log.retention.ms": "0"})
    assert current.value.log_retention_ms == 7
    assert current.dynamic.broker == {"log.retention.ms": "7"}
    assert "cannot apply" in caplog.text
    current.update_default({"max.connections": "9"})
    assert current.value.max_connections == 50
    current.update_broker({})
    assert current.value.max_connections == 9
    assert current.dynamic.merged == {"max.connections": "9"}


def test_stored_map_does_not_change_the_protocol_of_a_listener(
    caplog: pytest.LogCaptureFixture,
) -> None:
    current = CurrentConfig(STATIC)
    with caplog.at_level(logging.ERROR):
        current.update_broker({"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT"})
    assert current.value == STATIC
    assert "listener PLAINTEXT cannot change from PLAINTEXT to SASL_PLAINTEXT" in caplog.text


def test_thousands_of_settings_are_ignored_quickly(caplog: pytest.LogCaptureFixture) -> None:
    current = CurrentConfig(STATIC)
    unknown = {f"unknown.setting.{number}": "1" for number in range(5000)}
    prefixed = {f"listener.name.x{number}.max.connections": "1" for number in range(5000)}
    began = time.process_time()
    current.update_broker(unknown | {"max.connections": "7"} | prefixed)
    assert time.process_time() - began < 1
    assert current.value.max_connections == 7
    assert len(current.dynamic.broker) == SETTINGS_MAX
    assert len(caplog.records) < 50


def test_failing_listener_does_not_stop_the_others() -> None:
    current = CurrentConfig(STATIC)
    seen: list[int] = []

    def fail(_: BrokerConfig, __: BrokerConfig) -> None:
        raise RuntimeError("broken")

    current.on_change(fail)
    current.on_change(lambda _, new: seen.append(new.max_connections))
    current.update_broker({"max.connections": "7"})
    assert seen == [7]
