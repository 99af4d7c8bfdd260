"""Authorizers: the interface for your own decision who may do what, instead of ACLs.

    authorizer.class.name=my_package.access:TeamAuthorizer          module:Class
    authorizer.class.name=teams                                     entry point in the group barnabas.authorizers

    class TeamAuthorizer:
        def authorize(self, request: AuthorizationRequest) -> bool:
            return request.resource_name.startswith(request.principal.removeprefix("User:") + "-")

An authorizer is created once, without arguments, when the broker starts. `configure(settings)` is called next, and
`close()` when the broker stops, if the class has them.

`authorize` is called on the broker's event loop, for each resource of each request. It must answer from memory within
microseconds: while it runs, the broker serves no other client. An authorizer that needs other services reads them in a
thread of its own. An exception denies the request. Principals in super.users are allowed without a call.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class AuthorizationRequest(NamedTuple):
    """An operation on one resource."""

    principal: str
    """Such as `User:alice`."""
    host: str
    """IP address of the client."""
    operation: str
    """Kafka's name: Read, Write, Create, Delete, Alter, Describe, ClusterAction, DescribeConfigs and so on."""
    resource_type: str
    """Topic, Group, Cluster, TransactionalId, DelegationToken or User."""
    resource_name: str
    """For the type Cluster: `kafka-cluster`."""


class Authorizer(Protocol):
    """A class for authorizer.class.name. It may also have `authorize_any`, `configure` and `close`.

    `authorize_any(principal, host, operation, resource_type)` decides whether the operation is allowed on at least one
    resource of the type. It is called for idempotent producers, with Write and Topic. Without it they need
    IdempotentWrite on the cluster.
    """

    def authorize(self, request: AuthorizationRequest) -> bool:
        """Return True to allow the operation."""
