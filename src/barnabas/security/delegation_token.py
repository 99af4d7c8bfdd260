"""Delegation tokens: the model, decisions about them, and their znodes in Kafka's format.

    /delegation_token/tokens/<id>                        {"version":3,"owner":"User%3Aalice",…}
    /delegation_token/token_changes/token_change_…       <id>

The HMAC of a token is the password of its logins. It is derived from the id and `delegation.token.secret.key`, and
never stored. Decoders raise RegistryError, with the path of the znode, for invalid data.
"""

from __future__ import annotations

import base64
import json
from hmac import digest
from random import Random
from typing import Any
from urllib.parse import quote, unquote_plus
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from barnabas.errors import ApiError, ErrorCode, RegistryError
from barnabas.security.principal import Principal, parse_principal

TOKENS_ROOT = "/delegation_token"
TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"
TOKEN_CHANGE_PREFIX = "token_change_"
VERSION = 3
RENEWERS_MAX = 100
USER_TYPE = "User"


class DelegationToken(Struct, frozen=True, kw_only=True):
    """Times are in milliseconds since 1970. The token can be renewed up to `max_ms`."""

    id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return now_ms > min(self.expires_ms, self.max_ms)

    def may_renew(self, principal: Principal) -> bool:
        """Whether the principal is the owner or a renewer."""
        return principal == self.owner or principal in self.renewers


class TokenLifetimes(Struct, frozen=True, kw_only=True):
    max_ms: int
    renewal_ms: int
    """Time from one renewal to the expiry."""


# ---- decisions --------------------------------------------------------------------------------------------------


def create_token(
    owner: Principal,
    requester: Principal,
    renewers: tuple[Principal, ...],
    lifetime_ms: int,
    lifetimes: TokenLifetimes,
    *,
    now_ms: int,
    random: Random,
) -> DelegationToken:
    """Create a token. A lifetime of 0 or less is the largest one. `random` must be secure."""
    max_ms = now_ms + (min(lifetime_ms, lifetimes.max_ms) if lifetime_ms > 0 else lifetimes.max_ms)
    return DelegationToken(
        id=create_id(random),
        owner=owner,
        requester=requester,
        renewers=renewers,
        issued_ms=now_ms,
        expires_ms=min(max_ms, now_ms + lifetimes.renewal_ms),
        max_ms=max_ms,
    )


def create_id(random: Random) -> str:
    """Return a random UUID in base64. It does not start with a dash: in commands it would look like an option."""
    token_id = "-"
    while token_id.startswith("-"):
        raw = UUID(int=random.getrandbits(128), version=4).bytes
        token_id = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    return token_id


def check_renewer_count(count: int) -> None:
    if count > RENEWERS_MAX:
        why = f"{count} renewers; at most {RENEWERS_MAX} are allowed"
        raise ApiError(ErrorCode.INVALID_REQUEST, why)


def check_renewers(renewers: tuple[Principal, ...]) -> None:
    """Raise ApiError unless all renewers are named users."""
    if any(each.type != USER_TYPE or not each.name for each in renewers):
        raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE, "a renewer must be of the form User:name")


def renew_token(
    token: DelegationToken,
    principal: Principal,
    period_ms: int,
    lifetimes: TokenLifetimes,
    now_ms: int,
) -> DelegationToken:
    """Return the renewed token. A negative period is the default one. Raises ApiError."""
    require_renewer(token, principal)
    require_valid(token, now_ms)
    expires_ms = now_ms + (lifetimes.renewal_ms if period_ms < 0 else period_ms)
    return replace(token, expires_ms=min(token.max_ms, expires_ms))


def expire_token(
    token: DelegationToken, principal: Principal, period_ms: int, now_ms: int
) -> DelegationToken | None:
    """Return the token that expires after a period, or None to delete it: with a negative period. Raises ApiError."""
    require_renewer(token, principal)
    if period_ms < 0:
        return None
    require_valid(token, now_ms)
    return replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))


def require_renewer(token: DelegationToken, principal: Principal) -> None:
    if not token.may_renew(principal):
        why = f"{principal} is not the owner and not a renewer of the token"
        raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, why)


def require_valid(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "create a new token")


def token_hmac(token_id: str, secret_key: str) -> bytes:
    return digest(secret_key.encode(), token_id.encode(), "sha512")


def token_password(hmac: bytes) -> str:
    """Return the password of the logins with a token."""
    return base64.b64encode(hmac).decode()


# ---- znodes -----------------------------------------------------------------------------------------------------


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    return json.dumps(
        {
            "version": VERSION,
            "owner": sanitise(token.owner),
            "tokenRequester": sanitise(token.requester),
            "renewers": [sanitise(each) for each in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.id,
        },
        separators=(",", ":"),
    ).encode()


def decode_token(path: str, data: bytes) -> DelegationToken:
    try:
        content: dict[str, Any] = json.loads(data)
        if not 1 <= int(content["version"]) <= VERSION:
            raise ValueError("unknown version")
        owner = desanitise(content["owner"])
        return DelegationToken(
            id=str(content["tokenId"]),
            owner=owner,
            requester=desanitise(content["tokenRequester"]) if content["version"] >= 3 else owner,
            renewers=tuple(desanitise(each) for each in content["renewers"]),
            issued_ms=int(content["issueTimestamp"]),
            expires_ms=int(content["expiryTimestamp"]),
            max_ms=int(content["maxTimestamp"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RegistryError(path, f"invalid delegation token: {type(error).__name__}") from error


def decode_token_change(path: str, data: bytes) -> tuple[str, str]:
    """Return ("token", id) of a notification."""
    try:
        token_id = data.decode()
    except UnicodeDecodeError:
        raise RegistryError(path, "the token id is not UTF-8") from None
    if not token_id or "/" in token_id:
        raise RegistryError(path, "invalid token id")
    return "token", token_id


def sanitise(principal: Principal) -> str:
    return quote(str(principal), safe="").replace("~", "%7E")


def desanitise(text: str) -> Principal:
    return parse_principal(unquote_plus(text))
