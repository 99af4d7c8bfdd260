"""`barnabas users list`."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import watch_option
from barnabas.cli.terminal.output import OutputFormat, format_table, show_or_watch
from barnabas.client.cluster import Cluster
from barnabas.client.user_admin import UserAdmin
from barnabas.errors import ApiError

NO_USERS = "no users yet; `barnabas users create NAME` creates one"


@click.command("list")
@watch_option
@cluster_command
def list_users(cluster: Cluster, watch: bool, output: OutputFormat) -> None:
    """List the users with SCRAM credentials. Passwords are never shown: the cluster does not have them."""
    show_or_watch(watch, output, lambda: users_document(UserAdmin(cluster)), users_text)


def users_document(admin: UserAdmin) -> dict[str, Any]:
    users = []
    for name, found in sorted(admin.describe_users().items()):
        if isinstance(found, ApiError):
            raise found
        credentials = [info._asdict() for info in sorted(found)]
        users.append({"user": name, "credentials": credentials})
    return {"users": users}


def users_text(document: dict[str, Any]) -> str:
    if not document["users"]:
        return NO_USERS
    rows = [
        [user["user"], each["mechanism"], each["iterations"]]
        for user in document["users"]
        for each in user["credentials"]
    ]
    return format_table(["user", "mechanism", "iterations"], rows)
