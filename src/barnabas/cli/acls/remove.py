"""`barnabas acls remove`: remove the ACLs that match."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.acls.selection import (
    acl_document,
    acl_table,
    host_option,
    named_patterns,
    operation_option,
    parse_operations,
    parse_who,
    prefixed_option,
    resource_options,
)
from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import dry_run_option, yes_option
from barnabas.cli.terminal.failure import CommandError
from barnabas.cli.terminal.output import OutputFormat, confirm_deletion, plural, print_note, show
from barnabas.client.acl_admin import AclAdmin
from barnabas.client.cluster import Cluster
from barnabas.errors import ConfigError
from barnabas.security.acl.filters import AclFilter, EntryFilter, PatternFilter
from barnabas.security.acl.model import Acl, Operation, PatternType


@click.command("remove")
@click.argument("principal", required=False)
@operation_option
@resource_options
@prefixed_option
@host_option
@yes_option
@dry_run_option
@cluster_command
def remove_acls(
    cluster: Cluster,
    principal: str | None,
    operations: tuple[str, ...],
    prefixed: bool,
    host: str | None,
    yes: bool,
    dry_run: bool,
    output: OutputFormat,
    **resources: Any,
) -> None:
    """Remove the ACLs of PRINCIPAL, of resources, or of both. The names are those of the ACLs, as in `acls add`.

    \b
    barnabas acls remove alice --topic orders
    barnabas acls remove --topic orders- --prefixed
    """
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    patterns = [PatternFilter(*each) for each in named_patterns(resources, pattern)]
    if principal is None and not patterns:
        raise ConfigError("PRINCIPAL", "name a principal, or a resource such as --topic")
    who = None if principal is None else str(parse_who(principal))
    filters = [
        AclFilter(each, EntryFilter(who, host, operation))
        for each in patterns or [PatternFilter()]
        for operation in parse_operations(operations) or [Operation.ANY]
    ]
    admin = AclAdmin(cluster)
    found: dict[Acl, None] = {}
    for wanted in filters:
        found.update(dict.fromkeys(admin.describe_acls(wanted)))
    if not found:
        raise CommandError("no ACL matches", "`barnabas acls list` shows all")
    documents = [acl_document(each) for each in found]
    if not dry_run:
        if not yes:
            print_note(*acl_table(documents).split("\n"))
        confirm_deletion(f"Remove {plural(len(found), 'ACL')}?", yes=yes)
        # Filters would also remove ACLs that were added meanwhile.
        exact = [AclFilter(PatternFilter(*acl.pattern), EntryFilter(*acl.entry)) for acl in found]
        for deleted in admin.delete_acls(exact):
            for each in deleted:
                if each.error is not None:
                    raise each.error
    show(output, {"acls": documents, "dry_run": dry_run}, removed_text)


def removed_text(document: dict[str, Any]) -> str:
    verb = "would remove" if document["dry_run"] else "removed"
    count = plural(len(document["acls"]), "ACL")
    return f"{verb} {count}\n{acl_table(document['acls'])}"
