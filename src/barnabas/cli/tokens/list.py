"""`barnabas tokens list`."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.acls.selection import parse_who
from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import watch_option
from barnabas.cli.terminal.output import OutputFormat, format_table, show_or_watch
from barnabas.cli.tokens.lookup import time_text, token_document
from barnabas.client.cluster import Cluster
from barnabas.client.token_admin import TokenAdmin

NO_TOKENS = "no tokens that your user may describe; `barnabas tokens create` creates one"
HEADS = ["token", "owner", "renewers", "issued", "expires", "renewable until"]


@click.command("list")
@click.option(
    "--owner",
    "owners",
    metavar="PRINCIPAL",
    multiple=True,
    help="Only tokens that this user owns or may renew; repeatable.",
)
@watch_option
@cluster_command
def list_tokens(
    cluster: Cluster, owners: tuple[str, ...], watch: bool, output: OutputFormat
) -> None:
    """List the delegation tokens that your user owns, may renew, or may describe by an ACL. HMACs are not shown."""
    wanted = [parse_who(each, "--owner") for each in owners] or None
    admin = TokenAdmin(cluster)

    def load() -> dict[str, Any]:
        return {"tokens": [token_document(each) for each in admin.describe_tokens(wanted)]}

    show_or_watch(watch, output, load, tokens_text)


def tokens_text(document: dict[str, Any]) -> str:
    rows = [
        [
            each["token_id"],
            each["owner"],
            ",".join(each["renewers"]) or "-",
            *(time_text(each[name]) for name in ("issued_ms", "expires_ms", "max_ms")),
        ]
        for each in document["tokens"]
    ]
    return format_table(HEADS, rows) if rows else NO_TOKENS
