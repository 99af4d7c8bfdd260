"""Resources, operations and ACLs, with Kafka's numbers and names."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Self

WILDCARD = "*"
"""A literal resource name or a host that matches all."""
WILDCARD_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""Name of the only resource of the type CLUSTER."""


class AclEnum(IntEnum):
    """Base of the enums. Kafka writes their names in Pascal case to znodes and shows them so to users."""

    __hash__ = int.__hash__  # that of Enum is slow, and each decision needs several

    @property
    def label(self) -> str:
        """The name in Pascal case.

        >>> Operation.DESCRIBE_CONFIGS.label
        'DescribeConfigs'
        """
        return "".join(word.capitalize() for word in self.name.split("_"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a name in Pascal case, or in any case without underscores. UNKNOWN if there is none.

        >>> Operation.parse("describeconfigs")
        <Operation.DESCRIBE_CONFIGS: 10>
        """
        wanted = text.upper()
        return next((each for each in cls if each.label.upper() == wanted), cls(0))

    @classmethod
    def from_code(cls, code: int) -> Self:
        """Return the member with this number, UNKNOWN if there is none."""
        try:
            return cls(code)
        except ValueError:
            return cls(0)


class ResourceType(AclEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(AclEnum):
    """LITERAL and PREFIXED are those of ACLs. ANY and MATCH are only for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(AclEnum):
    """ALL is in ACLs only, and ANY in filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(AclEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        *(Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER),
        *(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        *(Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION),
        *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE),
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that are checked on each type of resource."""

IMPLIED_BY: dict[Operation, tuple[Operation, ...]] = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""Operations whose permission also allows another one. A denial has no such effect."""


class ResourcePattern(NamedTuple):
    """One resource, all resources with a prefix, or all of a type (the literal name `*`)."""

    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{self.type.label}:{self.pattern.name}:{self.name}"

    def matches(self, name: str) -> bool:
        """Whether the pattern covers a resource of its type."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


CLUSTER = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)


class AccessControlEntry(NamedTuple):
    """A permission of a principal. `host` is an IP address or `*`."""

    principal: str
    """Such as `User:alice`, or `User:*` for all."""
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        verb = "may" if self.permission is Permission.ALLOW else "may not"
        return f"{self.principal} {verb} {self.operation.label} from host {self.host}"


class Acl(NamedTuple):
    """An access control entry of a resource pattern. Kafka calls it an AclBinding."""

    pattern: ResourcePattern
    entry: AccessControlEntry

    def __str__(self) -> str:
        return f"{self.entry} on {self.pattern}"
