"""`barnabas acls add`: allow or deny operations."""

from __future__ import annotations

from typing import Any

import click

from barnabas.cli.acls.selection import (
    acl_document,
    acl_table,
    build_acls,
    host_option,
    named_patterns,
    operation_option,
    parse_operations,
    parse_who,
    prefixed_option,
    resource_options,
)
from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import dry_run_option
from barnabas.cli.terminal.output import OutputFormat, plural, show
from barnabas.client.acl_admin import AclAdmin
from barnabas.client.cluster import Cluster
from barnabas.errors import ConfigError
from barnabas.security.acl.model import (
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import Principal

PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
CONSUMER = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
"""Operations of a role on each type of resource, as kafka-acls adds them."""


@click.command("add")
@click.argument("principal")
@operation_option
@click.option("--producer", is_flag=True, help="All operations that a producer needs.")
@click.option("--consumer", is_flag=True, help="All operations that a consumer needs.")
@resource_options
@prefixed_option
@host_option
@click.option("--deny", is_flag=True, help="Deny the operations. A denial wins over permissions.")
@dry_run_option
@cluster_command
def add_acls(
    cluster: Cluster,
    principal: str,
    operations: tuple[str, ...],
    producer: bool,
    consumer: bool,
    prefixed: bool,
    host: str | None,
    deny: bool,
    dry_run: bool,
    output: OutputFormat,
    **resources: Any,
) -> None:
    """Allow PRINCIPAL operations on resources. `alice` is short for `User:alice`, and User:* is everyone.

    \b
    barnabas acls add alice --operation read,describe --topic orders
    barnabas acls add alice --consumer --topic orders- --group orders- --prefixed
    """
    who = parse_who(principal)
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    patterns = named_patterns(resources, pattern)
    if not patterns:
        raise ConfigError("--topic", "name a resource: --topic, --group, --cluster, …")
    roles = [role for role, is_given in ((PRODUCER, producer), (CONSUMER, consumer)) if is_given]
    wanted = parse_operations(operations)
    if bool(roles) == bool(wanted):
        raise ConfigError("--operation", "give operations, or --producer or --consumer")
    permission = Permission.DENY if deny else Permission.ALLOW
    if roles:
        acls = role_acls(who, patterns, roles, host or WILDCARD, permission)
    else:
        acls = build_acls(who, patterns, wanted, host or WILDCARD, permission)
    if not dry_run:
        for error in AclAdmin(cluster).create_acls(acls):
            if error is not None:
                raise error
    document = {"acls": [acl_document(each) for each in acls], "dry_run": dry_run}
    show(output, document, added_text)


def role_acls(
    who: Principal,
    patterns: list[ResourcePattern],
    roles: list[dict[ResourceType, tuple[Operation, ...]]],
    host: str,
    permission: Permission,
) -> list[Acl]:
    """Return the ACLs of a producer or consumer. Raises ConfigError for a resource that the role does not use."""
    acls = []
    for pattern in patterns:
        operations = [each for role in roles for each in role.get(pattern.type, ())]
        if not operations:
            what = pattern.type.name.lower().replace("_", " ")
            raise ConfigError("--operation", f"the role has no operations on a {what}; name them")
        acls += build_acls(who, [pattern], list(dict.fromkeys(operations)), host, permission)
    return acls


def added_text(document: dict[str, Any]) -> str:
    verb = "would add" if document["dry_run"] else "added"
    count = plural(len(document["acls"]), "ACL")
    return f"{verb} {count}\n{acl_table(document['acls'])}"
