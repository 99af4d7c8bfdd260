"""FindCoordinator: the broker that coordinates a consumer group or a transactional id.

The coordinator of a group is the leader of one partition of `__consumer_offsets`, chosen by the hash of the group id.
For a transactional id it is the leader of a partition of `__transaction_state`. If the topic does not exist, it is
created. The client retries until the partition has a leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.auto_creation import create_automatically, define_topic
from barnabas.broker.topic_events import INTERNAL_COUNT_SETTINGS, find_requester
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.store import partition_of
from barnabas.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.security.acl.model import Operation
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.find_coordinator import (
    CoordinatorResult,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

logger = logging.getLogger("barnabas.groups")
MANY_KEYS_SINCE = 4
SHARE_GROUPS_SINCE = 6
NO_ERROR_MESSAGE = "NONE"  # as in Kafka, for request versions up to 3
TOPICS: dict[int, str] = {
    CoordinatorType.GROUP: CONSUMER_OFFSETS,
    CoordinatorType.TRANSACTION: TRANSACTION_STATE,
}
"""The topic of each coordinator type. The coordinator of a key is the leader of one of its partitions."""
BEING_CREATED = (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def handle(
    context: BrokerContext,
    request: FindCoordinatorRequest,
    header: RequestHeader,
    connection: Connection,
) -> Work[FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]]:
    version, key_type = header.api_version, request.key_type
    keys = request.coordinator_keys if version >= MANY_KEYS_SINCE else (request.key,)
    topic = TOPICS.get(key_type)
    denials: dict[str, ApiError] = {}
    for key in keys:
        denial = find_denial(context, key_type, key, version, connection)
        if denial is not ErrorCode.NONE:
            denials[key] = ApiError(denial)
        yield None
    is_allowed = not keys or len(denials) < len(set(keys))
    if topic is not None and topic not in context.metadata.topics and is_allowed:
        return create_internal_topic(context, topic, keys, header, connection, denials)
    error = ApiError(ErrorCode.INVALID_REQUEST, f"unknown coordinator type {key_type}")
    if key_type == CoordinatorType.SHARE and version >= SHARE_GROUPS_SINCE:
        error = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "share groups are not supported")
    found = []
    for key in keys:
        if key in denials:
            found.append(without_coordinator(key, denials[key]))
        elif topic is None:
            found.append(without_coordinator(key, error))
        else:
            found.append(locate_coordinator(context, topic, key, connection.listener_name))
        yield None
    return build_find_coordinator_response(version, found)


def find_denial(
    context: BrokerContext, key_type: int, key: str, version: int, connection: Connection
) -> ErrorCode:
    """Return the error if the principal may not describe this group or transactional id, NONE otherwise."""
    access = context.security.access
    if key_type == CoordinatorType.GROUP:
        if not access.allows_group(connection, Operation.DESCRIBE, key):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif key_type == CoordinatorType.TRANSACTION:
        if not access.allows_transactional_id(connection, Operation.DESCRIBE, key):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif version >= SHARE_GROUPS_SINCE and key_type == CoordinatorType.SHARE:
        is_allowed = access.is_broker(connection)
        return ErrorCode.NONE if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def locate_coordinator(
    context: BrokerContext, topic: str, key: str, listener: str
) -> CoordinatorResult:
    known = context.metadata.topics.get(topic)
    if known is None:
        why = f"there is no topic '{topic}'"
        return without_coordinator(key, ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why))
    partitions = known.partitions
    index = partition_of(key, len(partitions))
    state = partitions.get(index)
    endpoint = context.metadata.endpoint_of(state.leader, listener) if state is not None else None
    if state is None or endpoint is None:
        why = f"{topic}-{index} has no leader now; retry"
        return without_coordinator(key, ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why))
    return CoordinatorResult(key, state.leader, endpoint.host, endpoint.port, error_message="")


async def create_internal_topic(
    context: BrokerContext,
    topic: str,
    keys: Sequence[str],
    header: RequestHeader,
    connection: Connection,
    denials: Mapping[str, ApiError],
) -> FindCoordinatorResponse:
    """Create an internal topic, regardless of auto.create.topics.enable. The client gets an error and retries."""
    requester = find_requester(header, connection)
    codes = await create_automatically(context, (topic,), requester, request="FindCoordinator")
    code = codes[topic]
    why = f"{topic} is being created; retry"
    if code not in BEING_CREATED:
        _, setting = INTERNAL_COUNT_SETTINGS[topic]
        factor = define_topic(topic, context.config).replication_factor
        brokers = len(context.metadata.brokers)
        why = f"{topic} cannot be created: {code.name}; {brokers=} {setting}={factor}"
        if context.lazy_groups.error_log_limiter.is_due(asyncio.get_running_loop().time()):
            kind = "transaction" if topic == TRANSACTION_STATE else "consumer group"
            logger.error("no %s can be used: %s", kind, why)
    error = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
    return build_find_coordinator_response(
        header.api_version, [without_coordinator(key, denials.get(key, error)) for key in keys]
    )


def without_coordinator(key: str, error: ApiError) -> CoordinatorResult:
    return CoordinatorResult(key, error_code=error.code, error_message=error.message)


def build_find_coordinator_response(
    version: int, found: Sequence[CoordinatorResult]
) -> FindCoordinatorResponse:
    if version >= MANY_KEYS_SINCE:
        return FindCoordinatorResponse(coordinators=tuple(found))
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message or NO_ERROR_MESSAGE,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
