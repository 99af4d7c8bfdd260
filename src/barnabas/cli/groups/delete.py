"""`barnabas groups delete`: delete groups with all their committed offsets."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.groups.lookup import complete_groups, find_group, reject_if_active
from barnabas.cli.options import dry_run_option, yes_option
from barnabas.cli.terminal.output import OutputFormat, confirm_deletion, show
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin

ONLY_EMPTY_GROUPS = "only a group without members can be deleted"


@click.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_groups)
@yes_option
@dry_run_option
@cluster_command
def delete_groups(
    cluster: Cluster, names: tuple[str, ...], yes: bool, dry_run: bool, output: OutputFormat
) -> None:
    """Delete groups with all their offsets. The groups must have no members."""
    groups = list(dict.fromkeys(names))
    admin = GroupAdmin(cluster)
    for name in groups:
        reject_if_active(find_group(admin, name), ONLY_EMPTY_GROUPS)
    if not dry_run:
        confirm_deletion(f"Delete {', '.join(groups)} with all offsets?", yes=yes)
        for name, error in admin.delete_groups(groups).items():
            if error is not None:
                # A member may have joined while the prompt was open.
                reject_if_active(admin.describe_group(name), ONLY_EMPTY_GROUPS)
                raise error
    document = {"groups": groups, "deleted": not dry_run, "dry_run": dry_run}
    show(output, document, deleted_groups_text)


def deleted_groups_text(document: dict[str, Any]) -> str:
    verb = "would delete" if document["dry_run"] else "deleted"
    return "\n".join(f"{verb} group {name}" for name in document["groups"])
