"""`barnabas groups delete`: delete groups with all their committed offsets."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.groups.lookup import complete_groups, find_group, refuse_if_active
from barnabas.cli.options import (
    bootstrap_option,
    dry_run_option,
    output_option,
    servers_typed,
    timeout_option,
    yes_option,
)
from barnabas.cli.terminal.output import Output, show
from barnabas.cli.terminal.prompts import confirm_deletion
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_groups)
@yes_option
@dry_run_option
@bootstrap_option
@timeout_option
@output_option
def delete(
    names: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    bootstrap_servers: str,
    timeout_s: float,
    output: Output,
) -> None:
    """Delete the groups NAME with all their offsets. Nobody may be in them."""
    doomed = list(dict.fromkeys(names))
    servers = servers_typed(bootstrap_servers)
    with Cluster(bootstrap_servers, timeout_s=timeout_s) as cluster:
        admin = GroupAdmin(cluster)
        for name in doomed:
            refuse_if_active(find_group(admin, name), WITH_MEMBERS, servers)
        if not dry_run:
            confirm_deletion(f"Delete {', '.join(doomed)} with all offsets?", yes=yes)
            for name, error in admin.delete_groups(doomed).items():
                if error is not None:
                    # A member may have joined while the prompt was open.
                    refuse_if_active(admin.describe_group(name), WITH_MEMBERS, servers)
                    raise error
    document = {"groups": doomed, "deleted": not dry_run, "dry_run": dry_run}
    show(output, document, deleted_text)


WITH_MEMBERS = "only a group without members can be deleted"


def deleted_text(document: dict[str, Any]) -> str:
    verb = "would delete" if document["dry_run"] else "deleted"
    return "\n".join(f"{verb} group {name}" for name in document["groups"])
