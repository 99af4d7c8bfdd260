"""A broker with a SASL listener, its users, and logins by hand."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import SystemRandom
from typing import Any
from uuid import uuid4

import jwt
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

from barnabas import LocalCluster
from barnabas.security.jaas import PLAIN_MODULE
from barnabas.security.sasl.mechanism import (
    PLAIN,
    SCRAM_MECHANISMS,
    SaslClient,
)
from barnabas.security.sasl.plain import PlainClient
from barnabas.security.sasl.scram import (
    ITERATIONS_MIN,
    ScramClient,
    create_salt,
    salt_password,
)
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.compatibility.raw import Raw

USER, PASSWORD = "alice", "alice's secret: 1,2=3"
TYPES = {mechanism: number for number, mechanism in enumerate(SCRAM_MECHANISMS, 1)}
ISSUER, AUDIENCE = "https://issuer.example", "barnabas"
PLAIN_USERS = f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}" user_bob="bob-secret";'
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.name.clients.plain.sasl.jaas.config": PLAIN_USERS,
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "connection.failed.authentication.delay.ms": "1",
}


WAIT_S = 120.0
"""Time that a client of another project gets on a busy machine."""


class TokenIssuer:
    """Signs OAuth tokens, and publishes its key in a file."""

    def __init__(self, path: Path, key_id: str = "first") -> None:
        self.path = path
        self.key_id = key_id
        self.key: RSAPrivateKey = generate_private_key(65537, 2048)
        self.publish()

    @property
    def url(self) -> str:
        return self.path.as_uri()

    def public_key(self) -> dict[str, Any]:
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {**public, "kid": self.key_id, "use": "sig"}

    def publish(self) -> None:
        self.path.write_text(json.dumps({"keys": [self.public_key()]}))

    def token(self, **claims: Any) -> str:
        """Return a token. Claims with the value None are left out."""
        now = int(time.time())
        standard = {"sub": USER, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600}
        wanted = {
            name: value for name, value in {**standard, **claims}.items() if value is not None
        }
        return jwt.encode(wanted, self.key, algorithm="RS256", headers={"kid": self.key_id})


def confluent_error(settings: Mapping[str, Any], codes: Collection[int], text: str) -> KafkaError:
    """Return the error of a producer with one of these codes and this text. It must be reported within WAIT_S.

    Other errors may be reported before it, for example if the machine stalls during a connection.
    """
    errors: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": errors.append, "log_level": 0})
    producer.produce("any", b"x")

    def find() -> KafkaError | None:
        return next((each for each in errors if each.code() in codes and text in each.str()), None)

    deadline = time.monotonic() + WAIT_S
    while find() is None and time.monotonic() < deadline:
        producer.poll(0.1)
    producer.purge()
    producer.flush(5)
    found = find()
    assert found is not None, errors
    return found


def first_message(settings: Mapping[str, Any], topic: str) -> Message:
    """Return the first record of a topic. Errors of the consumer are in the message of a failure."""
    group = {"group.id": uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **group})
    consumer.subscribe([topic])
    errors: list[KafkaError] = []
    deadline = time.monotonic() + WAIT_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            error = None if message is None else message.error()
            if message is not None and error is None:
                return message
            if error is not None:
                errors.append(error)
    finally:
        consumer.close()
    raise AssertionError(f"no record within {WAIT_S} s; errors: {errors}")


KAFKA_PYTHON = """
import kafka, logging
from kafka.net.sasl.oauth import AbstractTokenProvider
class Token(AbstractTokenProvider):
    def token(self):
        return {token!r}
logging.basicConfig(level=logging.ERROR)
more = {{"sasl_oauth_token_provider": Token()}} if {token!r} else {{}}
kafka.KafkaProducer(**{arguments!r}, **more, bootstrap_timeout_ms={timeout_ms})
"""


def kafka_python_failure(arguments: Mapping[str, Any], expected: str, token: str = "") -> str:
    """Return the log of a KafkaProducer that cannot connect. `expected` is a part of its reason.

    It runs in a process of its own: a client whose constructor fails leaves sockets open. It tries until its timeout.
    A busy machine may need more than the first timeout.
    """
    log = ""
    for timeout_ms in (1000, 10_000, 60_000):
        program = KAFKA_PYTHON.format(arguments=dict(arguments), token=token, timeout_ms=timeout_ms)
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
        )
        log = ended.stderr
        assert ended.returncode, "the client has connected"
        if expected in log:
            break
    return log


@contextmanager
def sasl_cluster(settings: Mapping[str, str] | None = None) -> Iterator[LocalCluster]:
    """Run one broker with a plaintext listener and one with SASL, and with the user alice for all mechanisms."""
    with LocalCluster(settings={**SETTINGS, **(settings or {})}) as cluster:
        for mechanism in SCRAM_MECHANISMS:
            set_password(cluster, USER, mechanism, PASSWORD)
        yield cluster


def alter_broker(settings: Mapping[str, Any], name: str, value: str | None) -> None:
    """Change a dynamic setting of broker 1. None removes it. `settings` are those of the client."""
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient(dict(settings))
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(60)


def sasl_servers(cluster: LocalCluster, listener: str = "CLIENTS") -> str:
    instance = cluster.brokers[1].instance
    assert instance is not None
    (found,) = (each for each in instance.broker.endpoints if each.listener == listener)
    return found.address


def alter_users(cluster: LocalCluster, request: AlterUserScramCredentialsRequest) -> dict[str, int]:
    """Send the request to the first broker. Returns the error code of each user."""
    with Raw(cluster.brokers[1].address) as raw:
        response = raw.ask(request, AlterUserScramCredentialsResponse)
    return {each.user: each.error_code for each in response.results}


def set_password(
    cluster: LocalCluster,
    user: str,
    mechanism: str,
    password: str,
    iterations: int = ITERATIONS_MIN,
) -> int:
    """Set the password of a user. Returns the error code."""
    salt = create_salt(SystemRandom())
    upsertion = ScramCredentialUpsertion(
        name=user,
        mechanism=TYPES[mechanism],
        iterations=iterations,
        salt=salt,
        salted_password=salt_password(mechanism, password, salt, iterations),
    )
    return alter_users(cluster, AlterUserScramCredentialsRequest(upsertions=(upsertion,)))[user]


def remove_password(cluster: LocalCluster, user: str, mechanism: str) -> int:
    deletion = ScramCredentialDeletion(user, TYPES[mechanism])
    return alter_users(cluster, AlterUserScramCredentialsRequest(deletions=(deletion,)))[user]


def client_of(mechanism: str, user: str = USER, password: str = PASSWORD) -> SaslClient:
    if mechanism == PLAIN:
        return PlainClient(user, password)
    return ScramClient(mechanism, user, password, SystemRandom())


class SaslConnection(Raw):
    """A connection to a SASL listener."""

    def shake_hands(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
        return self.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version)

    def send_token(self, message: bytes, version: int = 2) -> SaslAuthenticateResponse:
        request = SaslAuthenticateRequest(auth_bytes=message)
        return self.ask(request, SaslAuthenticateResponse, version)

    def log_in(self, client: SaslClient, version: int = 2) -> SaslAuthenticateResponse:
        """Log in. Returns the last response, which has the error if there is one."""
        assert not self.shake_hands(client.mechanism).error_code
        message: bytes | None = client.start()
        response = SaslAuthenticateResponse()
        while message is not None:
            response = self.send_token(message, version)
            if response.error_code:
                return response
            message = client.respond(bytes(response.auth_bytes))
        return response
