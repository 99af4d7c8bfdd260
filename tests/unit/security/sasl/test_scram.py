from __future__ import annotations

import base64
import hmac
from random import Random

import pytest

from barnabas.security.sasl import scram
from barnabas.security.sasl.mechanism import SCRAM_MECHANISMS, SCRAM_SHA_256, SaslFailed
from barnabas.security.sasl.scram import (
    ScramClient,
    ScramServer,
    create_credential,
    create_fake_credential,
    parse_first,
)


def log_in(
    mechanism: str, user: str, password: str, *, actual: str = "", token: bool = False
) -> str:
    """Log in. Returns the user that the server sees. Raises SaslFailed."""
    credential = create_credential(mechanism, actual or password, Random(1))
    client = ScramClient(mechanism, user, password, Random(2), is_token=token)
    first = parse_first(client.start())
    assert first.is_token == token
    server = ScramServer(mechanism, first, credential, Random(3))
    proof = client.respond(server.challenge())
    assert proof is not None
    assert client.respond(server.finish(proof)) is None
    return first.user


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "a=b,c", "=2C", "größe"])
@pytest.mark.parametrize("token", [False, True])
def test_right_password_logs_in(mechanism: str, user: str, token: bool) -> None:
    assert log_in(mechanism, user, "p,w=\u00e4", token=token) == user


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_wrong_password_is_refused(mechanism: str) -> None:
    with pytest.raises(SaslFailed, match="wrong password or unknown user"):
        log_in(mechanism, "alice", "right", actual="wrong")


def test_messages_are_those_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    nonces = iter(["rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"])
    monkeypatch.setattr(scram, "create_nonce", lambda _: next(nonces))
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", Random(0))
    assert client.start() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = scram.salt_password(SCRAM_SHA_256, "pencil", salt, 4096)
    credential = scram.credential_of(SCRAM_SHA_256, salted, salt, 4096)
    server = ScramServer(SCRAM_SHA_256, parse_first(client.start()), credential, Random(0))
    proof = client.respond(server.challenge())
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert proof == b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    final = server.finish(proof)
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert client.respond(final) is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=a=b,r=abc",
        b"n,,n=alice,r=",
        b"n,,r=abc,n=alice",
        b"n,a=bob,n=alice,r=abc",
        b"n,,m=x,n=alice,r=abc",
        b"n,,n=alice,r=abc,x",
        b"n,,n=al\0ice,r=abc",
        b"n,,n=" + b"a" * 20_000 + b",r=abc",
    ],
)
def test_invalid_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(SaslFailed):
        parse_first(message)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("c=biws", "c=eSws"),
        lambda text: text.replace("r=", "r=x"),
        lambda text: text[:-8],
        lambda text: text.partition(",p=")[0] + ",p=AAAA",
        lambda text: text.partition(",p=")[0],
        lambda _: "",
    ],
)
def test_changed_last_message_is_refused(change: object) -> None:
    assert callable(change)
    credential = create_credential(SCRAM_SHA_256, "secret", Random(1))
    client = ScramClient(SCRAM_SHA_256, "alice", "secret", Random(2))
    server = ScramServer(SCRAM_SHA_256, parse_first(client.start()), credential, Random(3))
    proof = client.respond(server.challenge())
    assert proof is not None
    with pytest.raises(SaslFailed):
        server.finish(change(proof.decode()).encode())


def test_repeated_nonce_of_the_client_is_accepted() -> None:
    """librdkafka before 2.6.1 sends it."""
    salt, name = b"salt", "sha256"
    salted = scram.salt_password(SCRAM_SHA_256, "secret", salt, 4096)
    credential = scram.credential_of(SCRAM_SHA_256, salted, salt, 4096)
    server = ScramServer(SCRAM_SHA_256, parse_first(b"n,,n=alice,r=abc"), credential, Random(3))

    def prove(nonce: str) -> bytes:
        """Return a last message with this nonce and a valid proof."""
        unproved = f"c=biws,r={nonce}"
        signed = f"n=alice,r=abc,{server.challenge().decode()},{unproved}".encode()
        key = hmac.digest(salted, b"Client Key", name)
        signature = hmac.digest(credential.stored_key, signed, name)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{unproved},p={base64.b64encode(proof).decode()}".encode()

    assert server.nonce.startswith("abc")
    for nonce in (server.nonce, "abc" + server.nonce):
        assert server.finish(prove(nonce)).startswith(b"v=")
    for nonce in ("x" + server.nonce, "abcabc" + server.nonce, "abc", server.nonce[:-1]):
        with pytest.raises(SaslFailed, match="wrong SCRAM nonce"):
            server.finish(prove(nonce))


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=other,s=c2FsdA==,i=4096",
        b"r={nonce},s=c2FsdA==,i=4096",
        b"r={nonce}x,s=c2FsdA==,i=4095",
        b"r={nonce}x,s=c2FsdA==,i=100000000",
        b"r={nonce}x,s=c2FsdA,i=4096",
    ],
)
def test_client_refuses_invalid_challenge(challenge: bytes) -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", "secret", Random(2))
    with pytest.raises(SaslFailed):
        client.respond(challenge.replace(b"{nonce}", client.nonce.encode()))


def test_client_refuses_server_that_does_not_know_the_password() -> None:
    credential = create_credential(SCRAM_SHA_256, "other", Random(1))
    client = ScramClient(SCRAM_SHA_256, "alice", "secret", Random(2))
    server = ScramServer(SCRAM_SHA_256, parse_first(client.start()), credential, Random(3))
    assert client.respond(server.challenge()) is not None
    with pytest.raises(SaslFailed, match="could not prove"):
        client.respond(b"v=" + base64.b64encode(b"x" * 32))


def test_unknown_user_gets_the_same_salt_in_each_login() -> None:
    credentials = [create_fake_credential(SCRAM_SHA_256, "bob", b"key", 4096) for _ in range(2)]
    assert credentials[0] == credentials[1]
    other = create_fake_credential(SCRAM_SHA_256, "bob", b"other key", 4096)
    assert other.salt != credentials[0].salt
    client = ScramClient(SCRAM_SHA_256, "bob", "secret", Random(2))
    server = ScramServer(SCRAM_SHA_256, parse_first(client.start()), credentials[0], Random(3))
    proof = client.respond(server.challenge())
    assert proof is not None
    with pytest.raises(SaslFailed, match="wrong password or unknown user"):
        server.finish(proof)


@pytest.mark.parametrize("password", ["", "a\tb", "I\u00adX", "\u2168", "a\u00a0b", "\u0627b"])
def test_password_that_clients_encode_differently_is_refused(password: str) -> None:
    with pytest.raises(ValueError, match="password"):
        create_credential(SCRAM_SHA_256, password, Random(0))


@pytest.mark.parametrize("iterations", [4095, 16385])
def test_iterations_out_of_range_are_refused(iterations: int) -> None:
    with pytest.raises(ValueError, match="iterations"):
        create_credential(SCRAM_SHA_256, "secret", Random(0), iterations)


def test_repr_shows_no_keys() -> None:
    assert (
        repr(create_credential(SCRAM_SHA_256, "secret", Random(0)))
        == "ScramCredential(iterations=4096)"
    )
