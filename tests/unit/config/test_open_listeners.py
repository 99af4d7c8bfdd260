"""The warning about listeners that other machines can reach without authentication."""

from __future__ import annotations

import pytest

from barnabas.config.load import load_broker_config

TLS = {
    "ssl.keystore.location": "broker.pem",
    "ssl.keystore.type": "PEM",
    "security.inter.broker.protocol": "SSL",
}


def warnings_of(**settings: str) -> list[str]:
    properties = {name.replace("_", "."): value for name, value in settings.items()}
    return load_broker_config({"broker.id": "1", "log.dirs": "data", **properties})[1]


@pytest.mark.parametrize(
    "listeners", ["PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://localhost:0", "PLAINTEXT://[::1]:9092"]
)
def test_loopback_listener_has_no_warning(listeners: str) -> None:
    assert warnings_of(listeners=listeners) == []


@pytest.mark.parametrize("address", [":9092", "[::]:9092", "10.0.0.1:9092", "broker.example:9092"])
def test_plaintext_on_other_address_is_reported(address: str) -> None:
    (warning,) = warnings_of(listeners=f"PLAINTEXT://{address}")
    assert f"without authentication: PLAINTEXT://{address}; " in warning
    assert "in listeners, write SASL_SSL:// instead of PLAINTEXT://" in warning


def test_named_listener_is_reported_with_its_map() -> None:
    names = {"listener.security.protocol.map": "OUTSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT"}
    listeners = "PLAINTEXT://127.0.0.1:9092,OUTSIDE://10.0.0.1:9093"
    (warning,) = warnings_of(listeners=listeners, **names)
    assert "set OUTSIDE:SASL_SSL in listener.security.protocol.map" in warning


def test_tls_without_client_certificates_is_reported() -> None:
    (warning,) = warnings_of(listeners="SSL://:9092", **TLS)
    assert "set listener.name.ssl.ssl.client.auth=required" in warning


def test_tls_with_client_certificates_has_no_warning() -> None:
    trust = {"ssl.truststore.location": "ca.pem", "ssl.truststore.type": "PEM"}
    assert warnings_of(listeners="SSL://:9092", **TLS, **trust, ssl_client_auth="required") == []
