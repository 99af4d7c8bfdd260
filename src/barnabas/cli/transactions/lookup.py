"""Lookup of transactional ids, name completion, and the option for durations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from barnabas.cli.cluster_command import complete_names
from barnabas.cli.records.start_position import parse_duration
from barnabas.cli.terminal.failure import ErrorWithHint, suggest_names
from barnabas.client.transaction_admin import TransactionAdmin, TransactionView
from barnabas.errors import ApiError, ErrorCode

complete_transactional_ids = complete_names(
    lambda cluster: transactional_ids(TransactionAdmin(cluster))
)


def transactional_ids(admin: TransactionAdmin) -> list[str]:
    return [each.transactional_id for each in admin.list_transactions()]


def find_transaction(admin: TransactionAdmin, transactional_id: str) -> TransactionView:
    """Return a transactional id. The error for an unknown one suggests similar names."""
    try:
        return admin.describe_transaction(transactional_id)
    except ApiError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        hint = suggest_names(
            transactional_id, transactional_ids(admin), "see `barnabas transactions list`"
        )
        message = f"there is no transactional id {transactional_id!r}"
        raise ErrorWithHint(error, message, hint) from None


def missing_coordinator(error: ApiError, next_step: str = "") -> ApiError:
    """Return the error, with an explanation if a coordinator is missing that may have the transaction."""
    if error.code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return error
    message = f"it is unknown which transactions hang: {error.message}"
    return ErrorWithHint(
        error, message, f"`barnabas topics explain __transaction_state` shows why{next_step}"
    )


def longer_than_option(default: str | None, about: str) -> Callable[..., Any]:
    """Add --longer-than, a duration such as 90s or 15m. The command gets milliseconds, or None."""
    return click.option(
        "--longer-than",
        "longer_than_ms",
        default=default,
        show_default=default is not None,
        metavar="TIME",
        callback=lambda _context, _parameter, value: parse_longer_than(value),
        help=about,
    )


def parse_longer_than(text: str | None) -> int | None:
    return None if text is None else parse_duration("--longer-than", text)
