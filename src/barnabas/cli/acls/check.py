"""`barnabas acls check`: whether an operation is allowed, and which ACL decides.

The command reads the ACLs and decides as a broker does. A broker does not show the values of super.users and
allow.everyone.if.no.acl.found, so a note says if they may change the result.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import click

from barnabas.cli.acls.selection import (
    acl_document,
    complete_operations,
    host_option,
    named_patterns,
    parse_operation,
    parse_who,
    resource_options,
)
from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.terminal.output import OutputFormat, show
from barnabas.client.acl_admin import AclAdmin
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.errors import ApiError, ConfigError
from barnabas.security.acl.decision import (
    AclIndex,
    Action,
    AuthorizerRules,
    Decision,
    Reason,
    decide,
)
from barnabas.security.acl.hosts import format_host
from barnabas.security.acl.model import OPERATIONS, WILDCARD, Operation, PatternType

SUPER_USERS = "super.users"
ALLOW_WITHOUT_ACL = "allow.everyone.if.no.acl.found"


@click.command("check")
@click.argument("principal")
@click.argument(
    "operation",
    shell_complete=lambda _context, _parameter, incomplete: complete_operations(incomplete),
)
@resource_options
@host_option
@cluster_command
def check_access(
    cluster: Cluster,
    principal: str,
    operation: str,
    host: str | None,
    output: OutputFormat,
    **resources: Any,
) -> None:
    """Check whether PRINCIPAL may do OPERATION on one resource, and show the ACL that decides. Exits with 1 if not.

    Example: barnabas acls check alice read --topic orders
    """
    wanted = parse_operation(operation)
    named = named_patterns(resources, PatternType.LITERAL)
    if len(named) != 1:
        raise ConfigError("--topic", "name exactly one resource: --topic, --group, --cluster, …")
    resource = named[0]
    if wanted is Operation.ALL or wanted not in OPERATIONS[resource.type]:
        names = ", ".join(each.name.lower() for each in OPERATIONS[resource.type])
        what = resource.type.name.lower().replace("_", " ")
        raise ConfigError("OPERATION", f"a broker does not check it on a {what}; use {names}")
    acls = AclAdmin(cluster).describe_acls()
    address = WILDCARD if host is None else format_host(host)
    action = Action(str(parse_who(principal)), address, wanted, resource.type, resource.name)
    index = AclIndex(acls)
    decision = decide(index, AuthorizerRules(), action)
    applying = index.acls_of(resource.type, resource.name)
    document = {
        "principal": action.principal,
        "operation": wanted.name,
        "host": address,
        "resource_type": resource.type.name,
        "resource_name": resource.name,
        "allowed": decision.is_allowed,
        "reason": str(decision.reason),
        "acl": None if decision.acl is None else acl_document(decision.acl),
        "acls_of_resource": len(applying),
        "notes": notes_on(decision, has_acls=bool(applying), host=host, set_names=rules(cluster)),
    }
    show(output, document, lambda shown: check_text(shown, decision))
    if not decision.is_allowed:
        raise click.exceptions.Exit(1)


def rules(cluster: Cluster) -> set[str] | None:
    """Return which settings of the authorizer are set on a broker. None if the broker does not describe itself."""
    try:
        entries = Admin(cluster).describe_broker_configs(min(cluster.refresh([]).brokers))
    except ApiError:
        return None
    return {each.name for each in entries if each.name in (SUPER_USERS, ALLOW_WITHOUT_ACL)}


def notes_on(
    decision: Decision, *, has_acls: bool, host: str | None, set_names: Collection[str] | None
) -> list[str]:
    """Return what the command cannot know, and that may change the result."""
    notes = []
    known = (SUPER_USERS, ALLOW_WITHOUT_ACL) if set_names is None else set_names
    if not decision.is_allowed and SUPER_USERS in known:
        notes.append(f"a principal in {SUPER_USERS} of the brokers is always allowed")
    if decision.reason is Reason.NO_ALLOW_ACL and not has_acls and ALLOW_WITHOUT_ACL in known:
        notes.append(f"the resource has no ACL: {ALLOW_WITHOUT_ACL}=true would allow it")
    if host is None:
        notes.append("ACLs for single addresses were not considered; add --host ADDRESS")
    return notes


def check_text(document: dict[str, Any], decision: Decision) -> str:
    verdict = "allowed" if document["allowed"] else "denied"
    what = f"{document['resource_type'].lower().replace('_', ' ')} {document['resource_name']}"
    operation = document["operation"].lower().replace("_", " ")
    lines = [f"{verdict}: {document['principal']} {operation} on {what}", f"rule: {decision}"]
    return "\n".join([*lines, *(f"note: {note}" for note in document["notes"])])
