"""Options of kafka-acls, their checks, and the ACLs and filters they select. Without I/O."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.cli.kafka.failures import RequestRejected, WrongUsage
from barnabas.cli.kafka.options import (
    COMMON_OPTIONS,
    CONVERSION_ERROR,
    Option,
    ParsedOptions,
    forbid_together,
)
from barnabas.security.acl.filters import PatternFilter
from barnabas.security.acl.model import (
    CLUSTER,
    OPERATIONS,
    WILDCARD,
    AccessControlEntry,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from barnabas.security.principal import parse_principal

ABOUT = "This tool helps to manage acls on kafka."
ACTIONS = ("add", "remove", "list")
RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user-principal": ResourceType.USER,
}
CLUSTER_FILTER = PatternFilter(*CLUSTER)
PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (Operation.IDEMPOTENT_WRITE,),
}
CONSUMER = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
"""Operations of --producer and --consumer on each type of resource."""

OPTIONS = (
    *(each for each in COMMON_OPTIONS if each.name != "force"),
    Option("bootstrap-controller", "For clusters without ZooKeeper; rejected here.", "controllers"),
    Option("authorizer", "Rejected: the ACLs are changed by a broker; use --bootstrap-server.", "class"),
    Option("authorizer-properties", "Rejected: use --bootstrap-server.", "name=value"),
    Option("force", "Do not ask before ACLs are removed."),
    Option("add", "Add ACLs."),
    Option("remove", "Remove ACLs."),
    Option("list", "List ACLs: of the given resources, or all."),
    Option("topic", "Topic; * is every topic. Repeatable.", "topic"),
    Option("group", "Consumer group; * is every group. Repeatable.", "group"),
    Option("cluster", "The cluster."),
    Option("transactional-id", "Transactional id; * is every id. Repeatable.", "id"),
    Option("delegation-token", "Delegation token; * is every token. Repeatable.", "id"),
    Option("user-principal", "User whose tokens may be created or described. Repeatable.", "principal"),
    Option(
        "resource-pattern-type",
        "literal or prefixed; to list or remove also any (both types) or match (all that apply to the name).",
        "type",
    ),
    Option("operation", "Operation; default: All. Repeatable.", "operation"),
    Option("allow-principal", "Principal to allow, such as User:alice or User:*. Repeatable.", "principal"),
    Option("deny-principal", "Principal to deny. A denial wins over permissions. Repeatable.", "principal"),
    Option("allow-host", "Address from which --allow-principal is allowed; default: *. Repeatable.", "host"),
    Option("deny-host", "Address from which --deny-principal is denied; default: *. Repeatable.", "host"),
    Option("principal", "List only the ACLs of this principal. Repeatable.", "principal"),
    Option("producer", "Write, Describe and Create on topics; Write and Describe on transactional ids."),
    Option("consumer", "Read and Describe on topics; Read on groups."),
    Option("idempotent", "With --producer: also IdempotentWrite on the cluster."),
)  # fmt: skip

Entries = dict[PatternFilter, list[AccessControlEntry]]


def check_options(options: ParsedOptions) -> None:
    """Run Kafka's checks in Kafka's order. Raises CommandFailed."""
    for name in ("authorizer", "authorizer-properties"):
        if options.has(name):
            raise WrongUsage(f"--{name} is not supported; use --bootstrap-server")
    if options.has("bootstrap-controller"):
        raise WrongUsage(
            "--bootstrap-controller is for clusters without ZooKeeper; use --bootstrap-server"
        )
    if not options.has("bootstrap-server"):
        raise WrongUsage("One of --bootstrap-server or --bootstrap-controller must be specified")
    if sum(map(options.has, ACTIONS)) != 1:
        raise WrongUsage("Command must include exactly one action: --list, --add, --remove. ")
    principals = ("allow-host", "allow-principal", "deny-host", "deny-principal")
    forbid_together(options, "list", ("producer", "consumer", *principals))
    for role in ("producer", "consumer"):
        forbid_together(options, role, ("operation", "deny-principal", "deny-host"))
    if options.has("principal") and not options.has("list"):
        raise WrongUsage("The --principal option is only available if --list is set")
    if options.has("producer") and not options.has("topic"):
        raise WrongUsage("With --producer you must specify a --topic")
    if options.has("idempotent") and not options.has("producer"):
        raise WrongUsage("The --idempotent option is only available if --producer is set")
    if options.has("consumer"):
        others = not options.has("producer") and any(
            map(options.has, ("cluster", "transactional-id"))
        )
        if not options.has("topic") or not options.has("group") or others:
            raise WrongUsage(
                "With --consumer you must specify a --topic and a --group and no --cluster or"
                " --transactional-id option should be specified."
            )


def parse_pattern_type(options: ParsedOptions) -> PatternType:
    text = options.value("resource-pattern-type")
    if text is None:
        return PatternType.LITERAL
    found = PatternType.parse(text)
    if found is PatternType.UNKNOWN:
        raise RequestRejected(
            f"Cannot parse argument '{text}' of option resource-pattern-type", CONVERSION_ERROR
        )
    return found


def list_filters(options: ParsedOptions) -> list[PatternFilter]:
    """Return the resources of the options, as filters."""
    pattern = parse_pattern_type(options)
    filters = [
        PatternFilter(kind, name.strip(), pattern)
        for option, kind in RESOURCES.items()
        for name in options.values(option)
    ]
    if pattern is PatternType.LITERAL and (options.has("cluster") or options.has("idempotent")):
        filters.append(CLUSTER_FILTER)
    return list(dict.fromkeys(filters))


def wanted_entries(options: ParsedOptions) -> Entries:
    """Return the ACLs that --add and --remove name: the entries of each resource. Raises CommandFailed."""
    resources = list_filters(options)
    if not resources:
        raise WrongUsage(
            "You must provide at least one resource: --topic <topic> or --cluster or"
            " --group <group> or --delegation-token <Delegation Token ID>"
        )
    roles = [
        role for name, role in (("producer", PRODUCER), ("consumer", CONSUMER)) if options.has(name)
    ]
    found: Entries = {}
    for resource in resources:
        if roles:
            operations = [each for role in roles for each in role.get(resource.type, ())]
            if not operations:
                continue
        else:
            operations = parse_operations(options)
        check_operations(resource.type, operations)
        found[resource] = build_entries(options, list(dict.fromkeys(operations)))
    return found


def parse_operations(options: ParsedOptions) -> list[Operation]:
    """An unknown operation is UNKNOWN, which no resource supports."""
    texts = options.values("operation") or [Operation.ALL.label]
    return [Operation.parse(text.strip()) for text in texts]


def check_operations(kind: ResourceType, operations: Sequence[Operation]) -> None:
    allowed = (*OPERATIONS[kind], Operation.ALL)
    if any(each not in allowed for each in operations):
        names = ", ".join(each.label for each in allowed)
        raise WrongUsage(f"ResourceType {kind.name} only supports operations {names}")


def build_entries(
    options: ParsedOptions, operations: Sequence[Operation]
) -> list[AccessControlEntry]:
    found = []
    for name, permission in (("allow", Permission.ALLOW), ("deny", Permission.DENY)):
        principals = parse_principals(options, f"{name}-principal")
        hosts = [each.strip() for each in options.values(f"{name}-host")] or [WILDCARD]
        found += [
            AccessControlEntry(principal, host, operation, permission)
            for principal in principals
            for operation in operations
            for host in hosts
        ]
    return list(dict.fromkeys(found))


def parse_principals(options: ParsedOptions, option: str) -> list[str]:
    found = []
    for text in options.values(option):
        try:
            found.append(str(parse_principal(text.strip())))
        except ValueError:
            why = "expected a string in format principalType:principalName"
            raise RequestRejected(f"{why} but got {text.strip()}") from None
    return list(dict.fromkeys(found))
