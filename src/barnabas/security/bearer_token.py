"""Verification of OAuth tokens: JSON Web Tokens with an asymmetric signature, by PyJWT.

    keys = parse_keys(document)                       a JSON Web Key Set (RFC 7517)
    claims = verify(token, keys, rules)

PyJWT and cryptography are optional packages. They are imported at the first use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.errors import ConfigError

if TYPE_CHECKING:
    from jwt import PyJWK

TOKEN_CHARS_MAX = 32 * 1024
NAME_CHARS_MAX = 256
SECONDS_MAX = 1 << 40
ALGORITHMS = frozenset(
    (
        *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
        *("ES256", "ES384", "ES512", "EdDSA"),
    )
)
"""Asymmetric ones only. With a symmetric one, everybody who can verify a token could also create one."""

Keys = Mapping[str | None, "PyJWK"]
"""The keys by id."""


class UnknownKey(Exception):
    """The token was signed with a key that is not in the set."""


class InvalidToken(Exception):
    """The token is not valid. The text does not contain it."""


class TokenRules(NamedTuple):
    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class Verified(NamedTuple):
    subject: str
    expires_ms: int


def require_packages(key: str) -> None:
    """Raise ConfigError unless the packages are installed. `key` is the setting that needs them."""
    try:
        import cryptography  # noqa: F401
        import jwt  # noqa: F401
    except ImportError:
        why = "OAUTHBEARER needs more packages; run: pip install 'barnabas[security]'"
        raise ConfigError(key, why) from None


def parse_keys(document: bytes) -> dict[str | None, PyJWK]:
    """Return the keys of a JSON Web Key Set. Raises ValueError if it has no usable one."""
    from jwt import PyJWK, PyJWTError

    try:
        entries = json.loads(document)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("the document is not a JSON Web Key Set") from None
    keys: dict[str | None, PyJWK] = {}
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or entry.get("kty") == "oct" or entry.get("use") == "enc":
            continue
        try:
            keys[entry.get("kid")] = PyJWK(entry)
        except (PyJWTError, ValueError, TypeError, KeyError):
            continue  # of a type that this version of PyJWT does not know
    if not keys:
        raise ValueError("the JSON Web Key Set has no key with an asymmetric algorithm")
    return keys


def verify(token: str, keys: Keys, rules: TokenRules) -> Verified:
    """Verify the signature and the claims of a token. Raises InvalidToken, and UnknownKey. Takes a millisecond."""
    import jwt

    if len(token) > TOKEN_CHARS_MAX:
        raise InvalidToken(f"the token has {len(token)} characters")
    try:
        header = jwt.get_unverified_header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise InvalidToken("the algorithm of the signature is not allowed")
        if not isinstance(key_id, str | None):
            raise InvalidToken("the key id is not a string")
        key = keys.get(key_id)
        if key is None:
            raise UnknownKey
        claims = jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            audience=list(rules.audiences) or None,
            issuer=rules.issuer,
            leeway=rules.skew_s,
            options={
                "require": ["exp", "iat", rules.subject_claim],
                "verify_aud": bool(rules.audiences),
            },
        )
        return read_claims(claims, rules)
    except (
        jwt.PyJWTError,
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
        RecursionError,
    ) as error:
        raise InvalidToken(type(error).__name__) from error


def read_claims(claims: Mapping[str, Any], rules: TokenRules) -> Verified:
    subject = claims[rules.subject_claim]
    if not isinstance(subject, str) or not 0 < len(subject.strip()) <= NAME_CHARS_MAX:
        raise InvalidToken(f"the claim {rules.subject_claim} is not a name")
    scope = claims.get(rules.scope_claim, "")
    if not isinstance(scope, str) and not (
        isinstance(scope, list) and all(isinstance(each, str) for each in scope)
    ):
        raise InvalidToken(f"the claim {rules.scope_claim} is not a list of names")
    return Verified(subject.strip(), 1000 * min(int(claims["exp"]), SECONDS_MAX))
