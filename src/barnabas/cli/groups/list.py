"""`barnabas groups list`."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import watch_option
from barnabas.cli.terminal.colour import Style, paint
from barnabas.cli.terminal.output import OutputFormat, format_table, show_or_watch
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin

NO_GROUPS = "no groups yet; `barnabas consume TOPIC --group NAME` creates one"


@click.command("list")
@watch_option
@cluster_command
def list_groups(cluster: Cluster, watch: bool, output: OutputFormat) -> None:
    """List all groups and their states."""
    admin = GroupAdmin(cluster)
    show_or_watch(watch, output, lambda: groups_document(admin), group_table)


def groups_document(admin: GroupAdmin) -> dict[str, Any]:
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


GROUP_STYLES = {
    "Stable": Style.GOOD,
    "PreparingRebalance": Style.WARNING,
    "CompletingRebalance": Style.WARNING,
    "Dead": Style.BAD,
    "Empty": Style.FAINT,
}


def group_table(document: dict[str, Any]) -> str:
    if not document["groups"]:
        return NO_GROUPS
    rows = [
        [
            group["group"],
            paint(group["state"], GROUP_STYLES.get(group["state"])),
            group["protocol_type"] or "none",
        ]
        for group in document["groups"]
    ]
    return format_table(["group", "state", "protocol"], rows)
