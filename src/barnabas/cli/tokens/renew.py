"""`barnabas tokens renew`."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import dry_run_option
from barnabas.cli.terminal.output import OutputFormat, show
from barnabas.cli.tokens.lookup import (
    complete_tokens,
    find_token,
    parse_period,
    time_text,
    token_document,
)
from barnabas.client.cluster import Cluster
from barnabas.client.token_admin import TokenAdmin


@click.command("renew")
@click.argument("token_id", metavar="ID", shell_complete=complete_tokens)
@click.option(
    "--period",
    metavar="TIME",
    help="Time until the new expiry, such as 12h; default: delegation.token.expiry.time.ms.",
)
@dry_run_option
@cluster_command
def renew_token(
    cluster: Cluster, token_id: str, period: str | None, dry_run: bool, output: OutputFormat
) -> None:
    """Renew token ID. It never lives longer than its maximum lifetime."""
    period_ms = parse_period("--period", period)
    admin = TokenAdmin(cluster)
    token = find_token(admin, token_id)
    if not dry_run:
        token = token._replace(expires_ms=admin.renew_token(token.hmac, period_ms))
    show(output, {**token_document(token), "dry_run": dry_run}, renewed_text)


def renewed_text(document: dict[str, Any]) -> str:
    token = f"token {document['token_id']} of {document['owner']}"
    expires = time_text(document["expires_ms"])
    if document["dry_run"]:
        return f"would renew {token}, which expires at {expires}"
    return f"renewed {token}; it expires at {expires}"
