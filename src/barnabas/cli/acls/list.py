"""`barnabas acls list`."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.acls.selection import (
    acl_document,
    acl_table,
    named_patterns,
    parse_who,
    resource_options,
)
from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import watch_option
from barnabas.cli.terminal.output import OutputFormat, show_or_watch
from barnabas.client.acl_admin import AclAdmin
from barnabas.client.cluster import Cluster
from barnabas.security.acl.filters import AclFilter, EntryFilter, PatternFilter
from barnabas.security.acl.model import Acl, PatternType

NO_ACLS = "no ACLs; `barnabas acls add` adds one"


@click.command("list")
@click.argument("principal", required=False)
@resource_options
@watch_option
@cluster_command
def list_acls(
    cluster: Cluster, principal: str | None, watch: bool, output: OutputFormat, **resources: Any
) -> None:
    """List ACLs: all, those of PRINCIPAL, or those that apply to resources, also by a prefix or by *."""
    who = None if principal is None else str(parse_who(principal))
    entry = EntryFilter(principal=who)
    patterns = [
        PatternFilter(each.type, each.name, PatternType.MATCH)
        for each in named_patterns(resources, PatternType.LITERAL)
    ] or [PatternFilter()]
    filters = [AclFilter(pattern, entry) for pattern in patterns]
    show_or_watch(watch, output, lambda: acls_document(AclAdmin(cluster), filters), acls_text)


def acls_document(admin: AclAdmin, filters: list[AclFilter]) -> dict[str, Any]:
    found: dict[Acl, None] = {}
    for wanted in filters:
        found.update(dict.fromkeys(admin.describe_acls(wanted)))
    return {"acls": [acl_document(each) for each in found]}


def acls_text(document: dict[str, Any]) -> str:
    return acl_table(document["acls"]) if document["acls"] else NO_ACLS
