"""`barnabas users delete`: delete the SCRAM credentials of a user."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import dry_run_option, yes_option
from barnabas.cli.terminal.output import OutputFormat, confirm_deletion, show
from barnabas.cli.users.lookup import complete_users, find_credentials, unknown_user_error
from barnabas.client.cluster import Cluster
from barnabas.client.user_admin import UserAdmin
from barnabas.errors import ConfigError
from barnabas.security.sasl.mechanism import SCRAM_MECHANISMS


@click.command("delete")
@click.argument("name", shell_complete=complete_users)
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(SCRAM_MECHANISMS, case_sensitive=False),
    multiple=True,
    help="Delete only the password of this mechanism; repeatable. Default: all.",
)
@yes_option
@dry_run_option
@cluster_command
def delete_user(
    cluster: Cluster,
    name: str,
    mechanisms: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Delete the password of user NAME. Open connections stay; ACLs and quotas of the user stay too."""
    admin = UserAdmin(cluster)
    found = find_credentials(admin, name)
    if found is None:
        raise unknown_user_error(admin, name)
    present = sorted(info.mechanism for info in found)
    wanted = sorted(set(mechanisms)) or present
    if missing := [each for each in wanted if each not in present]:
        why = f"user {name} has no password for {missing[0]}, only for {', '.join(present)}"
        raise ConfigError("--mechanism", why)
    if not dry_run:
        confirm_deletion(f"Delete the password of {name} for {', '.join(wanted)}?", yes=yes)
        errors = admin.alter_credentials(deletions=[(name, each) for each in wanted])
        for error in errors.values():
            if error is not None:
                raise error
    show(output, {"user": name, "mechanisms": wanted, "dry_run": dry_run}, deleted_text)


def deleted_text(document: dict[str, Any]) -> str:
    verb = "would delete" if document["dry_run"] else "deleted"
    return f"{verb} user {document['user']} ({', '.join(document['mechanisms'])})"
