"""Access checks of the config APIs: a topic's settings belong to the topic, those of brokers to the cluster."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.security.access import Access
from barnabas.errors import ApiError, ErrorCode
from barnabas.security.acl.model import Operation
from barnabas.wire.messages.describe_configs import ResourceType


def find_config_denial(
    access: Access, connection: Connection, operation: Operation, resource_type: int, name: str
) -> ApiError | None:
    """Return the error if the principal may not describe or change the settings of a resource, or None."""
    if resource_type == ResourceType.TOPIC:
        if not access.allows_topic(connection, operation, name):
            return ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif not access.allows_cluster(connection, operation):
        return ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return None
