"""Options that name resources, principals and operations, and the ACLs and filters that they select."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import CompletionItem

from barnabas.cli.groups.lookup import complete_groups
from barnabas.cli.options import completions, is_encodable
from barnabas.cli.terminal.output import format_table
from barnabas.cli.topics.lookup import complete_topics
from barnabas.errors import ConfigError
from barnabas.security.acl.model import (
    CLUSTER,
    OPERATIONS,
    WILDCARD,
    AccessControlEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import Principal, parse_principal

RESOURCE_OPTIONS = {
    "topics": ("--topic", ResourceType.TOPIC),
    "groups": ("--group", ResourceType.GROUP),
    "transactional_ids": ("--transactional-id", ResourceType.TRANSACTIONAL_ID),
    "delegation_tokens": ("--delegation-token", ResourceType.DELEGATION_TOKEN),
    "user_principals": ("--user-principal", ResourceType.USER),
}
"""Parameter → its option, and the type of the resources that it names."""
CHOICES = [each for each in Operation if each > Operation.ANY]
"""The operations of ACLs."""

operation_option = click.option(
    "--operation",
    "operations",
    multiple=True,
    metavar="NAME,…",
    shell_complete=lambda _context, _parameter, incomplete: complete_operations(incomplete),
    help="Operations, such as read or describe-configs; repeatable.",
)
prefixed_option = click.option(
    "--prefixed", is_flag=True, help="The names are prefixes: all resources that start with one."
)
host_option = click.option(
    "--host", metavar="ADDRESS", help="IP address of the clients; default: all addresses."
)


def resource_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name resources."""
    completion = {"topics": complete_topics, "groups": complete_groups}
    command = click.option("--cluster", "on_cluster", is_flag=True, help="The cluster.")(command)
    for parameter, (option, kind) in reversed(RESOURCE_OPTIONS.items()):
        words = kind.name.lower().replace("_", " ")
        command = click.option(
            option,
            parameter,
            multiple=True,
            metavar="NAME",
            shell_complete=completion.get(parameter),
            help=f"A {words}; * is every one; repeatable.",
        )(command)
    return command


def complete_operations(incomplete: str) -> list[CompletionItem]:
    return completions([operation_word(each) for each in CHOICES], incomplete)


def operation_word(operation: Operation) -> str:
    """
    >>> operation_word(Operation.DESCRIBE_CONFIGS)
    'describe-configs'
    """
    return operation.name.lower().replace("_", "-")


def parse_who(text: str, option: str = "PRINCIPAL") -> Principal:
    """Parse the argument PRINCIPAL, or an option. `alice` is short for `User:alice`. Raises ConfigError.

    >>> str(parse_who("alice")), str(parse_who("User:CN=a,O=b"))
    ('User:alice', 'User:CN=a,O=b')
    """
    if not is_encodable(text):
        raise ConfigError(option, "is not UTF-8")
    try:
        return parse_principal(text) if ":" in text else parse_principal(f"User:{text}")
    except ValueError as error:
        raise ConfigError(option, str(error)) from None


def parse_operations(texts: Iterable[str]) -> list[Operation]:
    """Parse operations, several of which may be separated by commas. Raises ConfigError."""
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    return list(dict.fromkeys(map(parse_operation, names)))


def parse_operation(text: str) -> Operation:
    found = Operation.parse(text.replace("-", "").replace("_", ""))
    if found not in CHOICES:
        words = [operation_word(each) for each in CHOICES]
        near = get_close_matches(text.lower(), words, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(words)}"
        raise ConfigError("operation", f"{text!r} is not an operation; {hint}")
    return found


def named_patterns(resources: dict[str, Any], pattern: PatternType) -> list[ResourcePattern]:
    """Return the resources that the options name. `resources` are the values of `resource_options`."""
    found = []
    for parameter, (option, kind) in RESOURCE_OPTIONS.items():
        for name in resources[parameter]:
            if not name or not is_encodable(name):
                raise ConfigError(option, "a name has at least one character, in UTF-8")
            is_every = name == WILDCARD and pattern is PatternType.PREFIXED
            found.append(ResourcePattern(kind, name, PatternType.LITERAL if is_every else pattern))
    if resources["on_cluster"]:
        found.append(CLUSTER)
    return list(dict.fromkeys(found))


def build_acls(
    principal: Principal,
    patterns: Sequence[ResourcePattern],
    operations: Sequence[Operation],
    host: str,
    permission: Permission,
) -> list[Acl]:
    """Return one ACL for each resource and operation. Raises ConfigError if an operation does not exist for one."""
    for pattern in patterns:
        allowed = OPERATIONS[pattern.type]
        for operation in operations:
            if operation is not Operation.ALL and operation not in allowed:
                words = ", ".join(operation_word(each) for each in (*allowed, Operation.ALL))
                what = pattern.type.name.lower().replace("_", " ")
                why = f"{operation_word(operation)} does not exist for a {what}; use {words}"
                raise ConfigError("--operation", why)
    return [
        Acl(pattern, AccessControlEntry(str(principal), host, operation, permission))
        for pattern in patterns
        for operation in operations
    ]


# ---- output -------------------------------------------------------------------------------------


def acl_document(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.entry.principal,
        "permission": acl.entry.permission.name,
        "operation": acl.entry.operation.name,
        "host": acl.entry.host,
        "resource_type": acl.pattern.type.name,
        "pattern_type": acl.pattern.pattern.name,
        "resource_name": acl.pattern.name,
    }


def acl_table(acls: Sequence[dict[str, Any]]) -> str:
    heads = ["principal", "permission", "operation", "host", "resource", "pattern", "name"]
    return format_table(heads, [list(each.values()) for each in acls])
