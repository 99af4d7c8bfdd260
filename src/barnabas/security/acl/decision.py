"""The decision whether a request is allowed: a pure function of the ACLs and the rules of the authorizer.

    super user                          allowed, whatever the ACLs are
    no ACL of the resource at all       allow.everyone.if.no.acl.found
    a DENY entry matches                denied
    an ALLOW entry matches              allowed
    otherwise                           denied

The ACLs of a resource are those of its literal name, of every prefix of it, and of the wildcard `*`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from barnabas.security.acl.model import (
    IMPLIED_BY,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import parse_principal


class AuthorizerRules(NamedTuple):
    """Settings of the authorizer."""

    super_users: frozenset[str] = frozenset()
    allow_if_no_acl: bool = False


class Action(NamedTuple):
    """An operation on one resource, by a principal from a host."""

    principal: str
    host: str
    operation: Operation
    type: ResourceType
    name: str


class Reason(StrEnum):
    SUPER_USER = "the principal is in super.users"
    NO_ACL = "the resource has no ACL (allow.everyone.if.no.acl.found)"
    DENY_ACL = "an ACL denies it"
    ALLOW_ACL = "an ACL allows it"
    NO_ALLOW_ACL = "no ACL allows it"


class Decision(NamedTuple):
    is_allowed: bool
    reason: Reason
    acl: Acl | None = None
    """The ACL that decided."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.acl}" if self.acl else str(self.reason)


EntryKey = tuple[AccessControlEntry, ResourceType, PatternType]


class AclIndex:
    """ACLs, arranged so that those of a resource are found without a search."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self.entries: dict[ResourcePattern, tuple[AccessControlEntry, ...]] = {}
        self.prefixes: dict[ResourceType, dict[str, ResourcePattern]] = {}
        """The prefixed patterns of each type by name."""
        self.lengths: dict[ResourceType, tuple[int, ...]] = {}
        """Lengths of the prefixes of each type, the longest first. Computed again after a change."""
        self.names: dict[EntryKey, dict[str, None]] = {}
        """Names of the patterns of each entry, resource type and pattern type."""
        grouped: dict[ResourcePattern, list[AccessControlEntry]] = {}
        for acl in acls:
            grouped.setdefault(acl.pattern, []).append(acl.entry)
        for pattern, entries in grouped.items():
            self.replace(pattern, entries)

    def __iter__(self) -> Iterator[Acl]:
        return (Acl(pattern, entry) for pattern, found in self.entries.items() for entry in found)

    def replace(self, pattern: ResourcePattern, entries: Collection[AccessControlEntry]) -> None:
        """Replace the entries of a pattern. Without entries, the pattern is removed."""
        before, after = self.entries.pop(pattern, ()), tuple(dict.fromkeys(entries))
        for entry in before:
            self.remove_name(entry, pattern)
        for entry in after:
            key = entry, pattern.type, pattern.pattern
            self.names.setdefault(key, {})[pattern.name] = None
        if after:
            self.entries[pattern] = after
        if pattern.pattern is PatternType.PREFIXED:
            prefixes = self.prefixes.setdefault(pattern.type, {})
            self.lengths.pop(pattern.type, None)
            if after:
                prefixes[pattern.name] = pattern
            else:
                prefixes.pop(pattern.name, None)

    def remove_name(self, entry: AccessControlEntry, pattern: ResourcePattern) -> None:
        key = entry, pattern.type, pattern.pattern
        names = self.names[key]
        del names[pattern.name]
        if not names:
            del self.names[key]

    def lengths_of(self, resource_type: ResourceType) -> tuple[int, ...]:
        """Return the lengths of the prefixes of a type, the longest first."""
        found = self.lengths.get(resource_type)
        if found is None:
            lengths = {len(name) for name in self.prefixes.get(resource_type, ())} - {0}
            found = self.lengths[resource_type] = tuple(sorted(lengths, reverse=True))
        return found

    def patterns_of(self, resource_type: ResourceType, name: str) -> list[ResourcePattern]:
        """Return the patterns with ACLs that cover a resource, the most specific first."""
        literal = ResourcePattern(resource_type, name)
        found = [literal] if literal in self.entries else []
        prefixes = self.prefixes.get(resource_type)
        if prefixes:
            starts = (name[:size] for size in self.lengths_of(resource_type) if size <= len(name))
            found += (prefixes[start] for start in starts if start in prefixes)
        wildcard = ResourcePattern(resource_type, WILDCARD)
        if name != WILDCARD and wildcard in self.entries:
            found.append(wildcard)
        return found

    def acls_of(self, resource_type: ResourceType, name: str) -> list[Acl]:
        """Return the ACLs of all patterns that cover a resource."""
        return [
            Acl(pattern, entry)
            for pattern in self.patterns_of(resource_type, name)
            for entry in self.entries[pattern]
        ]


def decide(index: AclIndex, rules: AuthorizerRules, action: Action) -> Decision:
    """Decide on an operation on one resource."""
    if action.principal in rules.super_users:
        return Decision(True, Reason.SUPER_USER)
    acls = index.acls_of(action.type, action.name)
    if not acls and rules.allow_if_no_acl:
        return Decision(True, Reason.NO_ACL)
    denied = find_acl(acls, action, Permission.DENY, (action.operation,))
    if denied is not None:
        return Decision(False, Reason.DENY_ACL, denied)
    operations = (action.operation, *IMPLIED_BY.get(action.operation, ()))
    allowed = find_acl(acls, action, Permission.ALLOW, operations)
    if allowed is not None:
        return Decision(True, Reason.ALLOW_ACL, allowed)
    return Decision(False, Reason.NO_ALLOW_ACL)


def find_acl(
    acls: Iterable[Acl], action: Action, permission: Permission, operations: Sequence[Operation]
) -> Acl | None:
    for acl in acls:
        entry = acl.entry
        if (
            entry.permission is permission
            and entry.principal in (action.principal, WILDCARD_PRINCIPAL)
            and (entry.operation in operations or entry.operation is Operation.ALL)
            and entry.host in (action.host, WILDCARD)
        ):
            return acl
    return None


# ---- any resource of a type ---------------------------------------------------------------------


def allows_any(
    index: AclIndex,
    rules: AuthorizerRules,
    principal: str,
    host: str,
    operation: Operation,
    resource_type: ResourceType,
) -> bool:
    """Decide whether an operation is allowed on at least one resource of a type, which need not exist.

    As in Kafka, a permission that only implies the operation does not count.
    """
    if principal in rules.super_users:
        return True

    def names(permission: Permission, pattern: PatternType) -> list[Mapping[str, None]]:
        keys = (
            (AccessControlEntry(who, where, what, permission), resource_type, pattern)
            for who in dict.fromkeys((principal, WILDCARD_PRINCIPAL))
            for where in dict.fromkeys((host, WILDCARD))
            for what in dict.fromkeys((operation, Operation.ALL))
        )
        return [index.names[key] for key in keys if key in index.names]

    denied = names(Permission.DENY, PatternType.LITERAL)
    if any(WILDCARD in each for each in denied):
        return False
    if rules.allow_if_no_acl:
        return True
    denied_prefixes = names(Permission.DENY, PatternType.PREFIXED)
    for prefixes in names(Permission.ALLOW, PatternType.PREFIXED):
        if any(not has_prefix_in(prefix, denied_prefixes) for prefix in prefixes):
            return True
    for literals in names(Permission.ALLOW, PatternType.LITERAL):
        for name in literals:
            if name == WILDCARD:
                return True
            if not any(name in each for each in denied) and not has_prefix_in(
                name, denied_prefixes
            ):
                return True
    return False


def has_prefix_in(name: str, prefixes: Sequence[Mapping[str, None]]) -> bool:
    if not prefixes:
        return False
    return any(name[:length] in each for length in range(len(name) + 1) for each in prefixes)


# ---- settings -----------------------------------------------------------------------------------


def parse_super_users(text: str) -> frozenset[str]:
    """Parse super.users: principals separated by semicolons, since a distinguished name contains commas.

    Raises ValueError.

    >>> sorted(parse_super_users("User:admin; User:CN=broker,O=x"))
    ['User:CN=broker,O=x', 'User:admin']
    """
    found = (each.strip() for each in text.split(";"))
    return frozenset(str(parse_principal(each)) for each in found if each)
