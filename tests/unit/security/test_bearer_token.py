from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from barnabas.security.bearer_token import (
    InvalidToken,
    TokenRules,
    UnknownKey,
    parse_keys,
    verify,
)
from tests.security.logins import AUDIENCE, ISSUER, USER, TokenIssuer

RULES = TokenRules((AUDIENCE, "other"), ISSUER, skew_s=5)


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    return TokenIssuer(tmp_path_factory.mktemp("keys") / "jwks.json")


def check(issuer: TokenIssuer, token: str, rules: TokenRules = RULES) -> str:
    return verify(token, parse_keys(issuer.path.read_bytes()), rules).subject


def test_valid_token_has_subject_and_expiry(issuer: TokenIssuer) -> None:
    now = int(time.time())
    keys = parse_keys(issuer.path.read_bytes())
    assert verify(issuer.token(exp=now + 60), keys, RULES) == (USER, 1000 * (now + 60))
    assert check(issuer, issuer.token(exp=now - 3)) == USER  # within the clock skew
    assert check(issuer, issuer.token(scope=["a", "b"])) == USER


def test_subject_is_read_from_the_configured_claim(issuer: TokenIssuer) -> None:
    rules = RULES._replace(subject_claim="email")
    assert check(issuer, issuer.token(email="a@b", sub=None), rules) == "a@b"


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1},
        {"exp": "never"},
        {"exp": 1e400},
        {"iss": "https://other.example"},
        {"iss": None},
        {"aud": "somebody"},
        {"aud": None},
        {"sub": ""},
        {"sub": "x" * 300},
        {"scope": [1]},
        {"nbf": 4_000_000_000},
    ],
)
def test_invalid_claim_is_refused(issuer: TokenIssuer, claims: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        check(issuer, issuer.token(**claims))


def test_token_of_another_issuer_is_refused(issuer: TokenIssuer, tmp_path: Path) -> None:
    other = TokenIssuer(tmp_path / "jwks.json")
    with pytest.raises(InvalidToken):
        check(issuer, other.token())  # the same key id, another key
    renamed = TokenIssuer(tmp_path / "jwks.json", "unknown")
    with pytest.raises(UnknownKey):
        check(issuer, renamed.token())


@pytest.mark.parametrize("token", ["", "a.b.c", "a" * 40_000, "....", "eyJhbGciOiJub25lIn0.e30."])
def test_text_that_is_no_signed_token_is_refused(issuer: TokenIssuer, token: str) -> None:
    with pytest.raises(InvalidToken):
        check(issuer, token)


def test_symmetric_signature_is_refused(issuer: TokenIssuer) -> None:
    secret = issuer.public_key()["n"].encode()
    token = jwt.encode({"sub": USER}, secret, algorithm="HS256", headers={"kid": issuer.key_id})
    with pytest.raises(InvalidToken, match="algorithm"):
        check(issuer, token)


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b"{}", b'{"keys":[]}', b'{"keys":[{"kty":"oct","k":"AA"}]}', b"[" * 100_000],
)
def test_key_set_without_usable_key_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match="JSON Web Key Set"):
        parse_keys(document)


def test_unknown_key_types_are_ignored(issuer: TokenIssuer) -> None:
    keys = parse_keys(json.dumps({"keys": [{"kty": "new"}, issuer.public_key(), 7]}).encode())
    assert list(keys) == [issuer.key_id]
