"""The protocol of logins, by hand: states, limits, errors, and hostile clients."""

from __future__ import annotations

import gc
import logging
import socket
import struct
from collections.abc import Iterator
from random import Random

import psutil
import pytest

from barnabas import LocalCluster
from barnabas.broker.metrics_page import login_lines
from barnabas.broker.security import login
from barnabas.broker.security.login import FRAMES_MAX
from barnabas.broker.security.logins import LoginCounts
from barnabas.errors import ErrorCode
from barnabas.security.sasl.mechanism import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
)
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.waiting import eventually
from tests.raw_connection import frame, with_size
from tests.security.logins import (
    PASSWORD,
    USER,
    SaslConnection,
    client_of,
    sasl_cluster,
    sasl_servers,
)

METADATA = MetadataRequest(topics=())
ENABLED = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512)
HOSTILE_FRAMES = 100_000
GROWTH_BYTES_MAX = 64 << 20
"""Growth of this process, which also runs the clients, after the first tenth of the frames."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with sasl_cluster() as running:
        yield running


@pytest.fixture
def connection(cluster: LocalCluster) -> Iterator[SaslConnection]:
    with SaslConnection(sasl_servers(cluster)) as connection:
        yield connection


def counts_of(cluster: LocalCluster) -> LoginCounts:
    instance = cluster.brokers[1].instance
    assert instance is not None
    assert instance.broker.security is not None
    return instance.broker.security.logins.counts["CLIENTS"]


@pytest.mark.parametrize("mechanism", ENABLED)
def test_client_can_send_requests_after_its_login(
    cluster: LocalCluster, connection: SaslConnection, mechanism: str
) -> None:
    succeeded = counts_of(cluster).succeeded
    versions = connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
    assert {17, 36, 38, 39, 40, 41, 50, 51} <= {each.api_key for each in versions.api_keys}
    response = connection.log_in(client_of(mechanism))
    assert (response.error_code, response.session_lifetime_ms) == (0, 0)
    assert connection.ask(METADATA, MetadataResponse).brokers
    assert counts_of(cluster).succeeded == succeeded + 1


@pytest.mark.parametrize("mechanism", ENABLED)
def test_handshake_v0_is_followed_by_messages_without_header(
    connection: SaslConnection, mechanism: str
) -> None:
    assert connection.shake_hands(mechanism, 0).mechanisms == ENABLED
    client = client_of(mechanism)
    message: bytes | None = client.start()
    while message is not None:
        connection.send(with_size(message))
        message = client.respond(connection.receive())
    assert connection.ask(METADATA, MetadataResponse).brokers


@pytest.mark.parametrize("mechanism", ENABLED)
@pytest.mark.parametrize("user", [USER, "unknown"])
def test_wrong_password_and_unknown_user_get_the_same_error(
    cluster: LocalCluster, connection: SaslConnection, mechanism: str, user: str
) -> None:
    failed = counts_of(cluster).failed
    response = connection.log_in(client_of(mechanism, user, "wrong"))
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == (
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
    assert connection.is_hung_up()
    assert counts_of(cluster).failed == failed + 1


def test_unknown_user_gets_the_same_salt_in_each_login(cluster: LocalCluster) -> None:
    salts = set()
    for _ in range(2):
        with SaslConnection(sasl_servers(cluster)) as connection:
            connection.shake_hands(SCRAM_SHA_256)
            first = connection.send_token(client_of(SCRAM_SHA_256, "nobody").start())
            salts.add(bytes(first.auth_bytes).split(b",")[1])
    assert len(salts) == 1


def test_unsupported_mechanism_gets_the_list_of_enabled_ones(connection: SaslConnection) -> None:
    response = connection.shake_hands("GSSAPI")
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ENABLED
    assert connection.is_hung_up()


@pytest.mark.parametrize("shakes_hands", [False, True])
def test_other_request_before_login_closes_the_connection(
    connection: SaslConnection, shakes_hands: bool
) -> None:
    if shakes_hands:
        connection.shake_hands(PLAIN)
    connection.begin(METADATA)
    assert connection.is_hung_up()


def test_authenticate_before_handshake_closes_the_connection(connection: SaslConnection) -> None:
    connection.begin(SaslAuthenticateRequest(auth_bytes=client_of(PLAIN).start()))
    assert connection.is_hung_up()


def test_login_after_login_is_illegal(connection: SaslConnection) -> None:
    connection.log_in(client_of(PLAIN))
    assert connection.shake_hands(PLAIN).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert connection.send_token(b"x").error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_login_on_plaintext_listener_is_illegal(cluster: LocalCluster) -> None:
    with SaslConnection(cluster.brokers[1].address) as connection:
        assert connection.shake_hands(PLAIN).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_large_frame_before_login_closes_the_connection(connection: SaslConnection) -> None:
    connection.send(struct.pack(">i", 524_289))
    assert connection.is_hung_up()


def test_too_many_requests_before_login_close_the_connection(connection: SaslConnection) -> None:
    connection.send(frame(ApiVersionsRequest(), 0) * (FRAMES_MAX + 1))
    for _ in range(FRAMES_MAX):
        connection.answer(ApiVersionsResponse, 0)
    assert connection.is_hung_up()


def test_client_that_does_not_log_in_is_disconnected(
    connection: SaslConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "LOGIN_SECONDS_MAX", 0.1)
    connection.send(b"\0")
    assert connection.is_hung_up()


def test_failed_login_is_audited_without_the_password(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def is_logged() -> bool:
        """Fail to log in. The number of lines per second is limited, and other tests also fail to log in."""
        with SaslConnection(sasl_servers(cluster)) as connection:
            connection.log_in(client_of(PLAIN, "mallory\n", "a wrong secret"))
            assert connection.is_hung_up()
        return "failed login peer=127.0.0.1 mechanism=PLAIN user=mallory\\n" in caplog.text

    with caplog.at_level(logging.DEBUG, "barnabas.audit"):
        eventually(is_logged, "a line in the audit log")
    assert "a wrong secret" not in caplog.text


def test_metrics_count_logins_by_listener(
    cluster: LocalCluster, connection: SaslConnection
) -> None:
    connection.log_in(client_of(PLAIN))
    counts = counts_of(cluster)
    page = "".join(login_lines({"CLIENTS": counts}))
    prefix = "kafka_server_socket_server_metrics"
    labels = '{listener="CLIENTS"}'
    assert f"{prefix}_successful_authentication_total{labels} {counts.succeeded}\n" in page
    assert f"{prefix}_failed_authentication_total{labels} {counts.failed}\n" in page


def test_logs_and_errors_contain_no_passwords(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for mechanism in ENABLED:
            with SaslConnection(sasl_servers(cluster)) as connection:
                connection.log_in(client_of(mechanism))
    assert PASSWORD not in caplog.text
    instance = cluster.brokers[1].instance
    assert instance is not None
    assert instance.broker.security is not None
    assert PASSWORD not in repr(vars(instance.broker.security.logins))


def hostile_frames(random: Random) -> Iterator[bytes]:
    """Yield frames that no client sends before its login: random, truncated and repeated ones."""
    valid = [
        frame(ApiVersionsRequest(), 3),
        frame(SaslHandshakeRequest(mechanism="PLAIN"), 1),
        frame(SaslHandshakeRequest(mechanism="x" * 200), 1),
        frame(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), 2),
        frame(METADATA, 12),
    ]
    while True:
        chosen = bytearray(random.choice(valid))
        for _ in range(random.randint(0, 3)):
            chosen[random.randrange(4, len(chosen))] = random.randrange(256)
        if random.random() < 0.1:
            chosen[:4] = struct.pack(">i", random.choice((-1, 0, 3, 400_000, 2**31 - 1)))
        yield bytes(chosen)


def test_hostile_frames_before_login_take_no_memory(
    cluster: LocalCluster, connection: SaslConnection
) -> None:
    """100,000 frames on thousands of connections. Logged-in clients keep working meanwhile."""
    connection.log_in(client_of(SCRAM_SHA_256))
    host, _, port = sasl_servers(cluster).rpartition(":")
    address = (host, int(port))
    frames = hostile_frames(Random(7))
    instance = cluster.brokers[1].instance
    assert instance is not None
    assert instance.broker.listeners is not None
    connections = instance.broker.listeners.connections
    process = psutil.Process()
    sent = 0
    before = 0
    open_sockets: list[socket.socket] = []
    while sent < HOSTILE_FRAMES:
        hostile = socket.create_connection(address)
        open_sockets.append(hostile)
        hostile.sendall(b"".join(next(frames) for _ in range(50)))
        sent += 50
        if len(open_sockets) == 50:
            for each in open_sockets:
                each.close()
            open_sockets.clear()
            assert connection.ask(METADATA, MetadataResponse).brokers
        if sent == HOSTILE_FRAMES // 10:
            gc.collect()
            before = process.memory_info().rss
    gc.collect()
    assert process.memory_info().rss - before < GROWTH_BYTES_MAX

    def count_clients() -> int:
        return sum(each.listener_name == "CLIENTS" for each in list(connections))

    eventually(lambda: count_clients() == 1, "all hostile connections are closed")
    assert instance.broker.security is not None
    assert not instance.broker.security.logins.pending
    assert not instance.broker.security.logins.memory.used_bytes
