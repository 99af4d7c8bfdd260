"""Access checks of request handlers: what the principal of a connection may do.

    if not access.allows_topic(connection, Operation.WRITE, name):
        ...                                                             TOPIC_AUTHORIZATION_FAILED
    access.require_cluster(connection, Operation.ALTER)                 raises ApiError

Without an authorizer everything is allowed. A denial is written to the audit log, unless the client did not ask for
the resource: when a list is filtered, or when one of two permissions is enough.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.broker.connection import Connection
from barnabas.broker.security.audit import Audit
from barnabas.errors import ApiError, ErrorCode
from barnabas.security.acl.decision import Action
from barnabas.security.acl.hosts import format_host
from barnabas.security.acl.model import CLUSTER_NAME, OPERATIONS, Operation, ResourceType

ALL_OPERATIONS = {
    resource_type: sum(1 << operation for operation in operations)
    for resource_type, operations in OPERATIONS.items()
}
"""Bit fields of all operations."""


class Decider(Protocol):
    """Decides what is allowed: by ACLs, or by the operator's own authorizer."""

    def allows(self, action: Action) -> bool: ...

    def allows_any(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool: ...


class Access:
    """The access checks of one broker."""

    def __init__(self, audit: Audit, decider: Decider | None = None) -> None:
        self.audit = audit
        self.decider = decider

    @property
    def is_enabled(self) -> bool:
        """Whether there is an authorizer. Without one, every check returns True."""
        return self.decider is not None

    def allows(
        self,
        connection: Connection,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        is_audited: bool = True,
    ) -> bool:
        """Whether the principal of the connection may do this operation on this resource."""
        if self.decider is None:
            return True
        host = format_host(connection.stream.peer[0])
        action = Action(str(connection.principal), host, operation, resource_type, name)
        if self.decider.allows(action):
            return True
        if is_audited:
            self.audit.log_denied(action, connection.api)
        return False

    def allows_topic(
        self,
        connection: Connection,
        operation: Operation,
        topic: str,
        *,
        is_audited: bool = True,
    ) -> bool:
        return self.decider is None or self.allows(
            connection, operation, ResourceType.TOPIC, topic, is_audited=is_audited
        )

    def allows_group(
        self,
        connection: Connection,
        operation: Operation,
        group: str,
        *,
        is_audited: bool = True,
    ) -> bool:
        return self.decider is None or self.allows(
            connection, operation, ResourceType.GROUP, group, is_audited=is_audited
        )

    def allows_transactional_id(
        self,
        connection: Connection,
        operation: Operation,
        transactional_id: str,
        *,
        is_audited: bool = True,
    ) -> bool:
        return self.decider is None or self.allows(
            connection,
            operation,
            ResourceType.TRANSACTIONAL_ID,
            transactional_id,
            is_audited=is_audited,
        )

    def allows_cluster(
        self, connection: Connection, operation: Operation, *, is_audited: bool = True
    ) -> bool:
        return self.decider is None or self.allows(
            connection, operation, ResourceType.CLUSTER, CLUSTER_NAME, is_audited=is_audited
        )

    def is_broker(self, connection: Connection) -> bool:
        """Whether the peer may send inter-broker requests: ClusterAction on the cluster.

        These are BROKER_REQUESTS, Fetch with a replica id, verifications of transactions, and transaction markers.
        """
        return self.allows_cluster(connection, Operation.CLUSTER_ACTION)

    def require_cluster(self, connection: Connection, operation: Operation) -> None:
        """Raise ApiError with CLUSTER_AUTHORIZATION_FAILED unless the operation on the cluster is allowed."""
        if not self.allows_cluster(connection, operation):
            raise ApiError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, describe_denial(connection, operation)
            )

    def allows_any(
        self, connection: Connection, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether the operation is allowed on at least one resource of the type."""
        if self.decider is None:
            return True
        host = format_host(connection.stream.peer[0])
        principal = str(connection.principal)
        if self.decider.allows_any(principal, host, operation, resource_type):
            return True
        self.audit.log_denied(
            Action(principal, host, operation, resource_type, "any"), connection.api
        )
        return False

    def authorized_operations(
        self, connection: Connection, resource_type: ResourceType, name: str
    ) -> int:
        """Return the allowed operations on a resource as a bit field, for responses that list them."""
        if self.decider is None:
            return ALL_OPERATIONS[resource_type]
        bits = 0
        for operation in OPERATIONS[resource_type]:
            if self.allows(connection, operation, resource_type, name, is_audited=False):
                bits |= 1 << operation
        return bits

    def cluster_operations(self, connection: Connection) -> int:
        """Return the allowed operations on the cluster as a bit field; 0 without permission to describe it."""
        if not self.allows_cluster(connection, Operation.DESCRIBE):
            return 0
        return self.authorized_operations(connection, ResourceType.CLUSTER, CLUSTER_NAME)


def describe_denial(connection: Connection, operation: Operation) -> str:
    """Return the error message of a denied operation on the cluster."""
    return f"{connection.principal} may not {operation.label} on the cluster; an ACL must allow it"
