"""`barnabas groups list`."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.options import bootstrap_option, output_option, timeout_option, watch_option
from barnabas.cli.terminal.output import Output, show_or_watch, table
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin


@click.command("list")
@watch_option
@bootstrap_option
@timeout_option
@output_option
def list_groups(watch: bool, bootstrap_servers: str, timeout_s: float, output: Output) -> None:
    """List all groups and their states."""
    with Cluster(bootstrap_servers, timeout_s=timeout_s) as cluster:
        admin = GroupAdmin(cluster)
        show_or_watch(watch, output, lambda: list_document(admin), list_text)


def list_document(admin: GroupAdmin) -> dict[str, Any]:
    return {
        "groups": [
            {
                "group": group.group_id,
                "state": group.group_state,
                "protocol_type": group.protocol_type,
            }
            for group in admin.list_groups()
        ]
    }


def list_text(document: dict[str, Any]) -> str:
    if not document["groups"]:
        return "no groups yet; `barnabas consume TOPIC --group NAME` makes one"
    rows = [
        [group["group"], group["state"], group["protocol_type"] or "none"]
        for group in document["groups"]
    ]
    return table(["group", "state", "protocol"], rows)
