from __future__ import annotations

import pytest

from barnabas.security.sasl.mechanism import SaslFailed
from barnabas.security.sasl.oauthbearer import ABORT, BearerClient, parse_bearer
from barnabas.security.sasl.plain import (
    PlainClient,
    check_password,
    parse_plain,
    read_plain_users,
)


def test_plain_client_and_server_agree() -> None:
    client = PlainClient("alice", "pässword")
    assert parse_plain(client.start()) == ("alice", "pässword")
    assert client.respond(b"") is None


@pytest.mark.parametrize(
    "message",
    [b"", b"alice\0pw", b"\0\0pw", b"\0alice\0", b"bob\0alice\0pw", b"\0a\0b\0c", b"\0\xff\0pw"],
)
def test_invalid_plain_message_is_refused(message: bytes) -> None:
    with pytest.raises(SaslFailed):
        parse_plain(message)


def test_long_messages_are_refused() -> None:
    with pytest.raises(SaslFailed, match="has 20008 bytes"):
        parse_plain(b"\0alice\0x" + bytes(20_000))
    parse_plain(b"\0alice\0" + b"x" * 16_000)
    message = b"n,,\x01auth=Bearer %s\x01\x01"
    with pytest.raises(SaslFailed, match="bytes"):
        parse_bearer(message % (b"x" * 40_000))
    parse_bearer(message % (b"x" * 32_000))


def test_plain_message_is_split_only_as_far_as_needed() -> None:
    with pytest.raises(SaslFailed, match="does not have 3 fields"):
        parse_plain(bytes(16_000))


def test_plain_users_are_options_with_the_prefix_user() -> None:
    options = {
        "username": "broker",
        "password": "x",
        "user_alice": "a",
        "user_": "y",
        "user_bob": "",
    }
    users = read_plain_users(options)
    assert users == {"alice": "a"}
    assert check_password(users, "alice", "a")
    assert not check_password(users, "alice", "b")
    assert not check_password(users, "bob", "")
    assert not check_password(users, "carol", "a")


def test_bearer_client_and_server_agree() -> None:
    client = BearerClient(lambda: "a.b-c_d", {"traceId": "123"})
    message = parse_bearer(client.start())
    assert message == ("a.b-c_d", "", {"traceId": "123"})
    assert "a.b-c_d" not in repr(message)
    assert client.respond(b"") is None
    assert client.respond(b'{"status":"invalid_token"}') == ABORT


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01other=abc\x01\x01",
        b"\xff",
        b"n,,\x01auth=Bearer " + b"a" * 70_000 + b"\x01\x01",
    ],
)
def test_invalid_bearer_message_is_refused(message: bytes) -> None:
    with pytest.raises(SaslFailed):
        parse_bearer(message)


def test_client_refuses_token_with_separators() -> None:
    with pytest.raises(SaslFailed):
        BearerClient(lambda: "a\x01b").start()
