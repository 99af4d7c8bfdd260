"""Filters that select ACLs, for DescribeAcls and DeleteAcls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.security.acl.model import (
    AccessControlEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)


class PatternFilter(NamedTuple):
    """`name` is None for any name.

    The pattern type MATCH selects the patterns that cover the resource `name`; ANY those of that name.
    """

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY

    def matches(self, pattern: ResourcePattern) -> bool:
        if self.type not in (ResourceType.ANY, pattern.type):
            return False
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, pattern.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern is PatternType.MATCH:
            return pattern.matches(self.name)
        return self.name == pattern.name

    def named_patterns(self) -> Iterator[ResourcePattern]:
        """Yield the patterns that the filter names. Without a type, a name or a pattern type it names none."""
        if self.name is None or self.type in (ResourceType.ANY, ResourceType.UNKNOWN):
            return
        for each in (PatternType.LITERAL, PatternType.PREFIXED):
            if self.pattern in (PatternType.ANY, each):
                yield ResourcePattern(self.type, self.name, each)


class EntryFilter(NamedTuple):
    """`principal` and `host` are None for any."""

    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, entry: AccessControlEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


class AclFilter(NamedTuple):
    pattern: PatternFilter = PatternFilter()
    entry: EntryFilter = EntryFilter()

    def matches(self, acl: Acl) -> bool:
        return self.pattern.matches(acl.pattern) and self.entry.matches(acl.entry)
