"""Listeners with SASL whose login settings cannot be used: no connection is served without a login."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest

from barnabas import LocalCluster
from barnabas.broker.broker import BrokerServer
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigChange, ConfigResource
from barnabas.errors import ApiError, ErrorCode
from barnabas.log_rate_limiter import LogRateLimiter
from barnabas.metadata import znodes
from barnabas.security.sasl.mechanism import PLAIN, SCRAM_SHA_256
from barnabas.security.sasl.scram import credential_of, format_credential
from barnabas.wire.messages.describe_configs import ResourceType
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.waiting import eventually
from tests.security.logins import SETTINGS, SaslConnection, client_of, sasl_cluster, sasl_servers

BROKER = ConfigResource(ResourceType.BROKER, "1")
MECHANISMS = "listener.name.extra.sasl.enabled.mechanisms"
EXTRA = {
    "listeners": f"{SETTINGS['listeners']},EXTRA://127.0.0.1:0",
    "listener.security.protocol.map": f"{SETTINGS['listener.security.protocol.map']},EXTRA:SASL_PLAINTEXT",
}
"""A listener without users of PLAIN, which all listeners have."""


@pytest.fixture(scope="module")
def running() -> Iterator[LocalCluster]:
    with sasl_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running: LocalCluster) -> Iterator[LocalCluster]:
    yield running
    write_settings(running, {})
    eventually(lambda: names_of(running) == ["PLAINTEXT", "CLIENTS"], "the listeners of the file")


@pytest.fixture
def configs(cluster: LocalCluster) -> Iterator[ConfigAdmin]:
    with Cluster(cluster.brokers[1].address) as client:
        yield ConfigAdmin(client)


def server_of(cluster: LocalCluster) -> BrokerServer:
    instance = cluster.brokers[1].instance
    assert instance is not None
    return instance.broker


def names_of(cluster: LocalCluster) -> list[str]:
    return [each.listener for each in server_of(cluster).endpoints]


def write_settings(cluster: LocalCluster, settings: Mapping[str, str]) -> None:
    """Write dynamic settings of the broker and their notification without a broker."""
    registry, keeper = cluster.cluster.open_registry()

    async def write() -> None:
        session = await registry.connect(10_000)
        path = znodes.config_path("brokers", "1")
        if await session.exists(path) is None:
            await session.create(path)
        await session.set(path, znodes.encode_config(settings))
        data = znodes.encode_config_change("brokers/1")
        await session.create(znodes.CONFIG_CHANGE_PREFIX, data, sequential=True)
        await session.close()

    keeper.run(write())


def expect_refused(address: str) -> None:
    """Send a request without a login."""
    with SaslConnection(address) as connection:
        connection.begin(MetadataRequest(topics=()))
        assert connection.is_hung_up()


def require_rejected(error: ApiError | None) -> None:
    assert error is not None
    assert error.code is ErrorCode.INVALID_REQUEST


def test_change_that_leaves_a_listener_without_logins_is_rejected(
    cluster: LocalCluster, configs: ConfigAdmin
) -> None:
    changes = [ConfigChange(*each) for each in {**EXTRA, MECHANISMS: "SCRAM-SHA-256"}.items()]
    assert configs.incremental_alter_configs({BROKER: changes}) == {BROKER: None}
    eventually(lambda: "EXTRA" in names_of(cluster), "the listener is open")
    # Without its own mechanisms, the listener has those of all listeners.
    require_rejected(configs.alter_configs({BROKER: EXTRA})[BROKER])
    subtract = ConfigChange(MECHANISMS, "SCRAM-SHA-256", ConfigOperation.SUBTRACT)
    require_rejected(configs.incremental_alter_configs({BROKER: [subtract]})[BROKER])
    append = ConfigChange(MECHANISMS, "SCRAM-SHA-512", ConfigOperation.APPEND)
    assert configs.incremental_alter_configs({BROKER: [append]}) == {BROKER: None}


def test_listener_without_usable_settings_refuses_every_connection(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {name: value.replace("EXTRA", "OTHER") for name, value in EXTRA.items()}
    write_settings(cluster, settings)
    eventually(lambda: "OTHER" in names_of(cluster), "the listener is open")

    def is_logged() -> bool:
        """Connect again: there is one line per second."""
        expect_refused(sasl_servers(cluster, "OTHER"))
        return "listener OTHER has no usable settings of logins" in caplog.text

    eventually(is_logged, "the reason is logged")
    assert "sasl.enabled.mechanisms" in caplog.text
    with SaslConnection(sasl_servers(cluster)) as connection:
        assert not connection.log_in(client_of(PLAIN)).error_code


def test_listeners_of_the_file_need_a_login_if_the_dynamic_ones_cannot_be_opened(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as busy:
        port = busy.getsockname()[1]
        write_settings(cluster, {"listeners": f"PLAINTEXT://127.0.0.1:{port}"})
        eventually(lambda: "cannot change listeners" in caplog.text, "the change has failed")
        cluster.brokers[1].stop()
        cluster.brokers[1].start()
    assert "cannot open dynamic listeners" in caplog.text
    expect_refused(sasl_servers(cluster))
    with SaslConnection(sasl_servers(cluster)) as connection:
        assert not connection.log_in(client_of(PLAIN)).error_code
        assert connection.ask(MetadataRequest(topics=()), MetadataResponse).brokers


def test_credentials_are_read_again_before_clients_are_served(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change during a long start is applied although its notification is purged already."""
    wait_until_ready = BrokerServer.wait_until_ready

    async def change_user(self: BrokerServer, *args: object) -> None:
        await wait_until_ready(self, *args)  # type: ignore[arg-type]
        assert self.registry is not None
        text = format_credential(credential_of(SCRAM_SHA_256, b"x" * 32, b"y" * 16, 4096))
        data = znodes.encode_config({SCRAM_SHA_256: text})
        await self.registry.create(znodes.config_path("users", "late"), data)

    monkeypatch.setattr(BrokerServer, "wait_until_ready", change_user)
    cluster.brokers[1].stop()
    cluster.brokers[1].start()
    security = server_of(cluster).security
    assert security is not None
    assert security.logins.credentials.find(SCRAM_SHA_256, "late") is not None


def test_failures_before_a_login_are_logged_at_a_limited_rate(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    security = server_of(cluster).security
    assert security is not None
    monkeypatch.setattr(security.logins, "create_exchange", fail)
    monkeypatch.setattr(security.logins, "close_limiter", LogRateLimiter(1000))
    for _ in range(3):
        with SaslConnection(sasl_servers(cluster)) as connection:
            connection.begin(SaslHandshakeRequest(mechanism=PLAIN), 1)
            assert connection.is_hung_up()
    assert caplog.text.count("request failed") == 1
