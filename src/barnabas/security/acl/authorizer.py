"""The authorizer that decides by ACLs: Kafka's AclAuthorizer."""

from __future__ import annotations

from collections.abc import Collection

from barnabas.security.acl.decision import (
    AclIndex,
    Action,
    AuthorizerRules,
    Decision,
    allows_any,
    decide,
)
from barnabas.security.acl.model import (
    AccessControlEntry,
    Operation,
    ResourcePattern,
    ResourceType,
)

CACHED_DECISIONS_MAX = 20_000


class AclAuthorizer:
    """Holds the ACLs, and remembers decisions until an ACL changes."""

    def __init__(self, rules: AuthorizerRules) -> None:
        self.rules = rules
        self.index = AclIndex()
        self.decisions: dict[Action, bool] = {}
        self.decisions_for_any: dict[tuple[str, str, Operation, ResourceType], bool] = {}

    def allows(self, action: Action) -> bool:
        found = self.decisions.get(action)
        if found is None:
            found = self.decide(action).is_allowed
            if len(self.decisions) >= CACHED_DECISIONS_MAX:
                self.decisions.clear()
            self.decisions[action] = found
        return found

    def allows_any(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether the operation is allowed on at least one resource of the type."""
        key = principal, host, operation, resource_type
        found = self.decisions_for_any.get(key)
        if found is None:
            found = allows_any(self.index, self.rules, *key)
            if len(self.decisions_for_any) >= CACHED_DECISIONS_MAX:
                self.decisions_for_any.clear()
            self.decisions_for_any[key] = found
        return found

    def decide(self, action: Action) -> Decision:
        return decide(self.index, self.rules, action)

    def replace(self, pattern: ResourcePattern, entries: Collection[AccessControlEntry]) -> None:
        """Replace the entries of a pattern. Decisions use them from now on."""
        self.index.replace(pattern, entries)
        self.forget_decisions()

    def use_index(self, index: AclIndex) -> None:
        """Replace all ACLs."""
        self.index = index
        self.forget_decisions()

    def forget_decisions(self) -> None:
        self.decisions.clear()
        self.decisions_for_any.clear()
