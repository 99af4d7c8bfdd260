"""DIGEST-MD5 logins, with the example of RFC 2831."""

from __future__ import annotations

import pytest

from barnabas.security.digest_md5 import CHALLENGE_BYTES_MAX, DigestMd5Client, DigestMd5Error

CHALLENGE = (
    b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",'
    b"algorithm=md5-sess,charset=utf-8"
)
PROOF = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


def make_client(user: str = "chris") -> DigestMd5Client:
    return DigestMd5Client(
        user,
        "secret",
        service="imap",
        host="elwood.innosoft.com",
        client_nonce="OA6MHXh6VqTrRk",
    )


def test_response_is_that_of_the_rfc() -> None:
    client = make_client()
    answer = client.respond(CHALLENGE)
    assert answer is not None
    assert b"response=d388dad90d4bbd760a152321f2143af7" in answer
    assert answer.startswith(b'charset=utf-8,username="chris",realm="elwood.innosoft.com"')
    assert client.respond(PROOF) is None


@pytest.mark.parametrize("proof", [b"rspauth=ea40f60335c427b5527b84dbabcdfffe", b"", b"a=b"])
def test_server_without_the_password_is_rejected(proof: bytes) -> None:
    client = make_client()
    client.respond(CHALLENGE)
    with pytest.raises(DigestMd5Error, match="did not prove"):
        client.respond(proof)


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (CHALLENGE.replace(b"nonce", b"nuns"), "no nonce"),
        (CHALLENGE.replace(b"md5-sess", b"md5"), "md5-sess"),
        (CHALLENGE.replace(b'"auth"', b'"auth-conf"'), "qop=auth"),
        (b'realm="open', "invalid at byte 0"),
        (b"\x00\xff", "invalid at byte 0"),
        (b"a=b," * CHALLENGE_BYTES_MAX, "more than 2048"),
    ],
)
def test_invalid_challenge_is_rejected(challenge: bytes, why: str) -> None:
    with pytest.raises(DigestMd5Error, match=why):
        make_client().respond(challenge)


def test_user_name_is_quoted() -> None:
    answer = make_client('a"b\\c').respond(CHALLENGE)
    assert answer is not None
    assert rb'username="a\"b\\c"' in answer


def test_password_is_not_shown() -> None:
    client = make_client()
    assert "secret" not in repr(client) + str(client)
