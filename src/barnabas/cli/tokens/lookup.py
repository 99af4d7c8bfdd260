"""Lookup of tokens by id, completion of ids, and their output."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from barnabas.cli.cluster_command import complete_names
from barnabas.cli.records.start_position import parse_duration
from barnabas.cli.terminal.failure import ErrorWithHint, suggest_names
from barnabas.client.token_admin import DEFAULT_MS, TokenAdmin, TokenView
from barnabas.errors import ApiError, ConfigError, ErrorCode

complete_tokens = complete_names(
    lambda cluster: [each.id for each in TokenAdmin(cluster).describe_tokens()]
)


def find_token(admin: TokenAdmin, token_id: str) -> TokenView:
    """Return a token with its HMAC. The error for an unknown one suggests similar ids."""
    tokens = {each.id: each for each in admin.describe_tokens()}
    if token_id in tokens:
        return tokens[token_id]
    why = f"there is no token {token_id!r} that your user may describe"
    hint = suggest_names(token_id, tokens, "see `barnabas tokens list`")
    raise ErrorWithHint(ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND), why, hint)


def parse_period(option: str, text: str | None) -> int:
    """Return the milliseconds of a duration such as 12h, or DEFAULT_MS without one. Raises ConfigError."""
    if text is None:
        return DEFAULT_MS
    period_ms = parse_duration(option, text)
    if not period_ms:
        raise ConfigError(option, "must be more than 0")
    return period_ms


def token_document(token: TokenView) -> dict[str, Any]:
    """The HMAC is left out: it is a secret."""
    return {
        "token_id": token.id,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(each) for each in token.renewers],
        "issued_ms": token.issued_ms,
        "expires_ms": token.expires_ms,
        "max_ms": token.max_ms,
    }


def time_text(time_ms: int) -> str:
    """
    >>> time_text(0), time_text(1 << 62)
    ('1970-01-01 00:00:00Z', '4611686018427387904')
    """
    try:
        return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
