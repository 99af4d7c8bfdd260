"""`barnabas tokens expire`: delete a token, or let it expire earlier."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import dry_run_option, yes_option
from barnabas.cli.terminal.output import OutputFormat, confirm, show
from barnabas.cli.tokens.lookup import (
    complete_tokens,
    find_token,
    parse_period,
    time_text,
    token_document,
)
from barnabas.client.cluster import Cluster
from barnabas.client.token_admin import TokenAdmin


@click.command("expire")
@click.argument("token_id", metavar="ID", shell_complete=complete_tokens)
@click.option(
    "--period", metavar="TIME", help="Time until the token expires, such as 10m; default: at once."
)
@yes_option
@dry_run_option
@cluster_command
def expire_token(
    cluster: Cluster,
    token_id: str,
    period: str | None,
    yes: bool,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Delete token ID, or let it expire after a time. Open connections that have logged in with it stay."""
    period_ms = parse_period("--period", period)
    admin = TokenAdmin(cluster)
    token = find_token(admin, token_id)
    if not dry_run:
        question = f"Expire token {token.id} of {token.owner}?"
        confirm(question, yes=yes, purpose="to expire it", if_refused="nothing was expired")
        token = token._replace(expires_ms=admin.expire_token(token.hmac, period_ms))
    document = {**token_document(token), "deleted": period is None and not dry_run}
    show(output, {**document, "dry_run": dry_run}, expired_text)


def expired_text(document: dict[str, Any]) -> str:
    token = f"token {document['token_id']} of {document['owner']}"
    if document["dry_run"]:
        return f"would expire {token}"
    if document["deleted"]:
        return f"deleted {token}"
    return f"{token} expires at {time_text(document['expires_ms'])}"
