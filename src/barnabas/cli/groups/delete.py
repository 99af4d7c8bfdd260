"""`barnabas groups delete`: delete groups with all their committed offsets."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.groups.lookup import complete_groups, find_group, reject_if_active
from barnabas.cli.options import (
    bootstrap_option,
    dry_run_option,
    output_option,
    servers_option,
    timeout_option,
    yes_option,
)
from barnabas.cli.terminal.output import OutputFormat, show
from barnabas.cli.terminal.prompts import confirm_deletion
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin


@click.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_groups)
@yes_option
@dry_run_option
@bootstrap_option
@timeout_option
@output_option
def delete_groups(
    names: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    bootstrap_servers: str,
    timeout_s: float,
    output: OutputFormat,
) -> None:
    """Delete groups with all their offsets. The groups must have no members."""
    doomed = list(dict.fromkeys(names))
    servers = servers_option(bootstrap_servers)
    with Cluster(bootstrap_servers, timeout_s=timeout_s) as cluster:
        admin = GroupAdmin(cluster)
        for name in doomed:
            reject_if_active(find_group(admin, name), ONLY_EMPTY_GROUPS, servers)
        if not dry_run:
            confirm_deletion(f"Delete {', '.join(doomed)} with all offsets?", yes=yes)
            for name, error in admin.delete_groups(doomed).items():
                if error is not None:
                    # A member may have joined while the prompt was open.
                    reject_if_active(admin.describe_group(name), ONLY_EMPTY_GROUPS, servers)
                    raise error
    document = {"groups": doomed, "deleted": not dry_run, "dry_run": dry_run}
    show(output, document, deleted_groups_text)


ONLY_EMPTY_GROUPS = "only a group without members can be deleted"


def deleted_groups_text(document: dict[str, Any]) -> str:
    verb = "would delete" if document["dry_run"] else "deleted"
    return "\n".join(f"{verb} group {name}" for name in document["groups"])
