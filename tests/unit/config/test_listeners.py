from __future__ import annotations

import pytest

from barnabas.config import BrokerConfig
from barnabas.config.load import load_broker_config
from barnabas.errors import ConfigError
from barnabas.model import Endpoint

INSIDE_OUTSIDE = "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT"


def load(properties: dict[str, str]) -> BrokerConfig:
    config, _ = load_broker_config(properties)
    return config


def error_of(properties: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as refused:
        load_broker_config(properties)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://:9092", "", 9092),
        ("plaintext://localhost:0", "localhost", 0),
        ("PLAINTEXT://[::1]:9092", "::1", 9092),
        ("PLAINTEXT://[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        (" PLAINTEXT://127.0.0.1:9092 ", "127.0.0.1", 9092),
    ],
)
def test_listener_is_parsed_into_name_host_and_port(text: str, host: str, port: int) -> None:
    endpoint = Endpoint(listener="PLAINTEXT", host=host, port=port)
    assert load({"listeners": text}).listeners == (endpoint,)


def test_listeners_keep_their_order() -> None:
    config = load(
        {
            "listeners": "OUTSIDE://:9094 , inside://:9092",
            "advertised.listeners": "INSIDE://10.0.0.1:9092,OUTSIDE://example.com:9092",
            "listener.security.protocol.map": INSIDE_OUTSIDE,
            "inter.broker.listener.name": "inside",
        }
    )
    assert [endpoint.listener for endpoint in config.listeners] == ["OUTSIDE", "INSIDE"]
    assert [endpoint.host for endpoint in config.advertised_listeners] == [
        "10.0.0.1",
        "example.com",
    ]
    assert config.inter_broker_listener == "INSIDE"


def test_advertised_listeners_are_empty_by_default() -> None:
    assert load({"listeners": "PLAINTEXT://:0"}).advertised_listeners == ()


def test_one_port_may_serve_ipv4_and_ipv6() -> None:
    config = load(
        {
            "listeners": "PLAINTEXT://127.0.0.1:9092,INSIDE://[::1]:9092",
            "listener.security.protocol.map": INSIDE_OUTSIDE,
        }
    )
    assert len(config.listeners) == 2


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        (
            {"listeners": "localhost:9092"},
            "listeners: 'localhost:9092' is not of the form NAME://host:port",
        ),
        (
            {"listeners": "PLAINTEXT://:65536"},
            "listeners: 'PLAINTEXT://:65536' is not of the form NAME://host:port",
        ),
        (
            {"listeners": f"PLAINTEXT://:{'1' * 5000}"},
            f"listeners: 'PLAINTEXT://:{'1' * 5000}' is not of the form NAME://host:port",
        ),
        ({"listeners": ""}, "listeners: '' names no listener"),
        (
            {"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"},
            "listeners: 'PLAINTEXT://:1,PLAINTEXT://:2' uses a listener name twice",
        ),
        (
            {"listeners": "NOWHERE://:9092"},
            "listeners: listener NOWHERE has no protocol in listener.security.protocol.map",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:QUIC"},
            "listener.security.protocol.map: 'QUIC' is not one of"
            " PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        (
            {
                "listeners": "PLAINTEXT://a:9092,INSIDE://b:9092",
                "listener.security.protocol.map": INSIDE_OUTSIDE,
            },
            "listeners: port 9092 is used twice; only one IPv4 and one IPv6 address may share a port",
        ),
        (
            {"advertised.listeners": "OUTSIDE://h:1"}
            | {"listener.security.protocol.map": INSIDE_OUTSIDE},
            "advertised.listeners: OUTSIDE is not one of listeners: PLAINTEXT",
        ),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092"},
            "advertised.listeners: 0.0.0.0 cannot be reached by a client: give a real address",
        ),
        (
            {"listeners": "INSIDE://:9092", "listener.security.protocol.map": INSIDE_OUTSIDE},
            "inter.broker.listener.name: PLAINTEXT is not advertised; it must be one of INSIDE",
        ),
        (
            {"security.inter.broker.protocol": "SSL"},
            "security.inter.broker.protocol: SSL is not advertised; it must be one of PLAINTEXT",
        ),
        (
            {
                "inter.broker.listener.name": "PLAINTEXT",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "inter.broker.listener.name: cannot be set together with"
            " security.inter.broker.protocol",
        ),
    ],
)
def test_invalid_listeners_are_rejected_in_one_line(properties: dict[str, str], error: str) -> None:
    assert error_of(properties) == error


def test_listener_has_protocol_of_map() -> None:
    config, _ = load_broker_config(
        {
            "listeners": "INSIDE://:9092,OUTSIDE://:9093",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    assert [each.protocol.name for each in config.listeners] == ["PLAINTEXT", "SASL_SSL"]
    assert config.protocol_of("outside").has_tls
