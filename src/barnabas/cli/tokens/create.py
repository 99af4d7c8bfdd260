"""`barnabas tokens create`."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.acls.selection import parse_who
from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import dry_run_option
from barnabas.cli.terminal.output import OutputFormat, show
from barnabas.cli.tokens.lookup import parse_period, time_text, token_document
from barnabas.client.cluster import Cluster
from barnabas.client.token_admin import TokenAdmin
from barnabas.cluster.client_settings import jaas_line
from barnabas.security.delegation_token import token_password
from barnabas.security.sasl.mechanism import SCRAM_SHA_512


@click.command("create")
@click.option("--owner", metavar="PRINCIPAL", help="Owner of the token; default: your user.")
@click.option(
    "--renewer",
    "renewers",
    metavar="PRINCIPAL",
    multiple=True,
    help="User that may also renew and expire the token; repeatable.",
)
@click.option(
    "--max-lifetime",
    metavar="TIME",
    help="Maximum lifetime, such as 12h or 7d; default: delegation.token.max.lifetime.ms.",
)
@dry_run_option
@cluster_command
def create_token(
    cluster: Cluster,
    owner: str | None,
    renewers: tuple[str, ...],
    max_lifetime: str | None,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Create a delegation token, and print it once. A client with the token logs in as its owner.

    \b
    barnabas tokens create --renewer scheduler --max-lifetime 2d
    """
    who = None if owner is None else parse_who(owner, "--owner")
    others = tuple(parse_who(each, "--renewer") for each in renewers)
    lifetime_ms = parse_period("--max-lifetime", max_lifetime)
    admin = TokenAdmin(cluster)
    if dry_run:
        # Fails if delegation tokens are disabled, or if this user may not use them.
        admin.describe_tokens([])
        document: dict[str, Any] = {
            "owner": None if who is None else str(who),
            "renewers": [str(each) for each in others],
        }
    else:
        created = admin.create_token(who, others, lifetime_ms)
        document = {**token_document(created), "hmac": token_password(created.hmac)}
    show(output, {**document, "dry_run": dry_run}, created_text)


def created_text(document: dict[str, Any]) -> str:
    if document["dry_run"]:
        return f"would create a token of {document['owner'] or 'your user'}"
    token_id, owner = document["token_id"], document["owner"]
    line = jaas_line(SCRAM_SHA_512, username=token_id, password=document["hmac"], tokenauth="true")
    expires, latest = time_text(document["expires_ms"]), time_text(document["max_ms"])
    return "\n".join(
        (
            f"created token {token_id} of {owner}",
            f"It expires at {expires}. It can be renewed until {latest}.",
            f"sasl.jaas.config={line}",
            f"Keep this line secret: everyone who has it can log in as {owner}.",
        )
    )
