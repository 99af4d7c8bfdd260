"""OAuth tokens whose keys come from an HTTP or HTTPS server: new keys, and servers that do not answer as they should.

One broker has a listener for each server.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Producer

from barnabas import LocalCluster
from barnabas.broker.security import bearer_tokens
from barnabas.broker.security.bearer_tokens import BearerVerifier
from barnabas.errors import ErrorCode
from barnabas.security.sasl.mechanism import OAUTHBEARER, PLAIN
from barnabas.security.sasl.oauthbearer import BearerClient
from support.certificates import CertificateFiles
from support.ports import free_port
from support.waiting import eventually
from tests.security.logins import (
    PLAIN_USERS,
    SaslConnection,
    TokenIssuer,
    client_of,
    sasl_cluster,
    sasl_servers,
)

HTTP, HTTPS, UNTRUSTED, ROTATING, LATE, FAILING, SLOW = LISTENERS = (
    *("HTTP", "HTTPS", "UNTRUSTED", "ROTATING", "LATE", "FAILING", "SLOW"),
)
HOLD_S = 60.0
"""Maximum time for which a server delays its response."""
CANNOT_READ = "cannot read the keys of OAuth tokens"


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Print nothing if a client closes the connection early."""


class KeyServer:
    """Publishes keys at `url`. With `key_store`, a PEM file, it has TLS."""

    def __init__(self, issuer: TokenIssuer, key_store: Path | None = None, port: int = 0) -> None:
        self.document = issuer.path.read_bytes()
        self.status = 200
        self.headers: dict[str, str] = {}
        self.requests = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.server = QuietServer(("127.0.0.1", port), self.create_handler())
        if key_store is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(key_store)
            self.server.socket = context.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if key_store is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_port}/keys"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def create_handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests += 1
                outer.may_answer.wait(HOLD_S)
                self.send_response(outer.status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(outer.document)

            def log_message(self, *args: Any) -> None:
                """Print nothing."""

        return Handler

    def publish(self, *issuers: TokenIssuer) -> None:
        self.document = json.dumps({"keys": [each.public_key() for each in issuers]}).encode()

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.may_answer.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("keys") / "jwks.json")


@pytest.fixture(scope="module")
def other_issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    """Signs with another key."""
    return TokenIssuer(tmp_path_factory.mktemp("other-keys") / "jwks.json", "second")


@pytest.fixture(scope="module")
def late_port() -> int:
    """The port of a server that starts after the broker."""
    return free_port()


@pytest.fixture(scope="module")
def servers(
    issuer: TokenIssuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, KeyServer]]:
    """The servers by listener."""
    files = CertificateFiles(tmp_path_factory.mktemp("certificates"))
    unknown = CertificateFiles(tmp_path_factory.mktemp("unknown"))
    stores = {HTTPS: files.server, UNTRUSTED: unknown.server}
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("SSL_CERT_FILE", str(files.ca))
        patch.setenv("no_proxy", "127.0.0.1")
        yield {
            name: stack.enter_context(KeyServer(issuer, stores.get(name)))
            for name in LISTENERS
            if name != LATE
        }


@pytest.fixture(scope="module")
def cluster(servers: dict[str, KeyServer], late_port: int) -> Iterator[LocalCluster]:
    urls = {name: each.url for name, each in servers.items()}
    urls[LATE] = f"http://127.0.0.1:{late_port}/keys"
    # The keys of these listeners are read again for each login.
    refreshed = {
        f"listener.name.{name.lower()}.oauthbearer.sasl.oauthbearer.jwks.endpoint.refresh.ms": "1"
        for name in (FAILING, SLOW)
    }
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", *LISTENERS)),
        "listener.security.protocol.map": ",".join(
            ("PLAINTEXT:PLAINTEXT", *(f"{name}:SASL_PLAINTEXT" for name in LISTENERS))
        ),
        "sasl.enabled.mechanisms": f"{OAUTHBEARER},{PLAIN}",
        "sasl.jaas.config": PLAIN_USERS,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "10",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "10",
        **refreshed,
        **{
            f"listener.name.{name.lower()}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": url
            for name, url in urls.items()
        },
    }
    with sasl_cluster(settings) as running:
        yield running


@pytest.fixture(autouse=True)
def asks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bearer_tokens, "UNKNOWN_KEY_SECONDS", 0.0)


def log_in(cluster: LocalCluster, listener: str, token: str) -> int:
    """Return the error code of a login with the token."""
    with SaslConnection(sasl_servers(cluster, listener)) as connection:
        return connection.log_in(BearerClient(lambda: token)).error_code


def verifier_of(cluster: LocalCluster, listener: str) -> BearerVerifier:
    instance = cluster.brokers[1].instance
    assert instance is not None
    assert instance.broker.security is not None
    return instance.broker.security.logins.verifiers[listener]


REFUSED = ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("listener", [HTTP, HTTPS])
def test_keys_are_read_from_the_server(
    cluster: LocalCluster, issuer: TokenIssuer, other_issuer: TokenIssuer, listener: str
) -> None:
    topic = cluster.create_topic(f"keys-{listener}")
    producer = Producer(
        {
            "bootstrap.servers": sasl_servers(cluster, listener),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": OAUTHBEARER,
            "oauth_cb": lambda _: (issuer.token(), 2_000_000_000),
        }
    )
    producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    assert log_in(cluster, listener, other_issuer.token()) == REFUSED


def test_token_with_unknown_key_id_leads_to_a_new_download(
    cluster: LocalCluster,
    servers: dict[str, KeyServer],
    issuer: TokenIssuer,
    other_issuer: TokenIssuer,
) -> None:
    server = servers[ROTATING]
    assert log_in(cluster, ROTATING, issuer.token()) == 0
    requests = server.requests
    assert log_in(cluster, ROTATING, issuer.token()) == 0
    assert server.requests == requests, "the key is known"
    server.publish(issuer, other_issuer)
    assert log_in(cluster, ROTATING, other_issuer.token()) == 0
    assert server.requests == requests + 1
    assert log_in(cluster, ROTATING, issuer.token()) == 0
    server.publish(other_issuer)
    forged = TokenIssuer(issuer.path.with_name("forged.json"), "third")
    assert log_in(cluster, ROTATING, forged.token()) == REFUSED
    assert server.requests == requests + 2
    assert log_in(cluster, ROTATING, issuer.token()) == REFUSED, "the former key was removed"


def test_unknown_key_ids_do_not_lead_to_many_downloads(
    cluster: LocalCluster,
    servers: dict[str, KeyServer],
    other_issuer: TokenIssuer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bearer_tokens, "UNKNOWN_KEY_SECONDS", 3600.0)
    verifier = verifier_of(cluster, HTTP)
    eventually(lambda: verifier.refreshed_at is not None, "the first download")
    requests = servers[HTTP].requests
    for _ in range(5):
        assert log_in(cluster, HTTP, other_issuer.token()) == REFUSED
    assert servers[HTTP].requests == requests


def test_logins_work_after_an_unreachable_server_is_reachable(
    cluster: LocalCluster, issuer: TokenIssuer, late_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    def is_logged() -> bool:
        """Log in again: attempts to reach the server back off."""
        assert log_in(cluster, LATE, issuer.token()) == REFUSED
        return CANNOT_READ in caplog.text and "Connection refused" in caplog.text

    eventually(is_logged, "the reason is logged")
    with KeyServer(issuer, port=late_port):
        eventually(lambda: log_in(cluster, LATE, issuer.token()) == 0, "the keys are read")


@pytest.mark.parametrize(
    ("status", "headers", "document"),
    [
        (500, {}, b"an error"),
        (302, {"Location": "http://127.0.0.1:1/keys"}, b""),
        (200, {}, b"not JSON"),
        (200, {}, b'{"keys": []}'),
        (200, {}, b" " * (bearer_tokens.DOCUMENT_BYTES_MAX + 1)),
        (200, {"Content-Length": "1000"}, b"too short"),
    ],
    ids=["error", "redirect", "no JSON", "no key", "too large", "incomplete"],
)
def test_former_keys_stay_in_use_if_the_response_is_unusable(
    cluster: LocalCluster,
    servers: dict[str, KeyServer],
    issuer: TokenIssuer,
    caplog: pytest.LogCaptureFixture,
    status: int,
    headers: dict[str, str],
    document: bytes,
) -> None:
    server = servers[FAILING]
    eventually(lambda: log_in(cluster, FAILING, issuer.token()) == 0, "the keys are read")
    former = server.document
    server.status, server.headers, server.document = status, headers, document

    def is_logged() -> bool:
        assert log_in(cluster, FAILING, issuer.token()) == 0
        return CANNOT_READ in caplog.text

    try:
        eventually(is_logged, "the error is logged")
    finally:
        server.status, server.headers, server.document = 200, {}, former


def test_server_with_untrusted_certificate_is_not_used(
    cluster: LocalCluster,
    servers: dict[str, KeyServer],
    issuer: TokenIssuer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def is_logged() -> bool:
        assert log_in(cluster, UNTRUSTED, issuer.token()) == REFUSED
        return "CERTIFICATE_VERIFY_FAILED" in caplog.text

    eventually(is_logged, "the reason is logged")
    assert servers[UNTRUSTED].requests == 0


def test_slow_server_delays_only_logins_that_need_its_keys(
    cluster: LocalCluster,
    servers: dict[str, KeyServer],
    issuer: TokenIssuer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bearer_tokens, "DOWNLOAD_SECONDS", HOLD_S)
    server = servers[SLOW]
    eventually(lambda: log_in(cluster, SLOW, issuer.token()) == 0, "the keys are read")
    server.may_answer.clear()
    requests = server.requests
    codes: list[int] = []
    waiting = threading.Thread(
        target=lambda: codes.append(log_in(cluster, SLOW, issuer.token())), daemon=True
    )
    waiting.start()
    eventually(lambda: server.requests > requests, "the keys are requested")
    with SaslConnection(sasl_servers(cluster, SLOW)) as connection:
        assert connection.log_in(client_of(PLAIN)).error_code == 0
    assert log_in(cluster, HTTP, issuer.token()) == 0
    assert codes == []
    server.may_answer.set()
    waiting.join(HOLD_S)
    assert codes == [0]
