"""Automatic creation of topics that a client requests by name.

The active controller creates the topics. Any other broker sends CreateTopics to it and does not wait for leaders.
Meanwhile the client gets LEADER_NOT_AVAILABLE and retries. If a topic cannot be created, the client gets the error of
CreateTopics. While a request creates a topic, other requests to this broker for the same topic get
UNKNOWN_TOPIC_OR_PARTITION, and their clients retry.

As in Kafka, the broker that got the request determines the partition count and the replication factor by its own
settings. Metadata requests by topic id create no topics. Produce and Fetch create none either. FindCoordinator creates
`__consumer_offsets` for a group and `__transaction_state` for a transactional id, regardless of
auto.create.topics.enable.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.create_topics import create_topics
from barnabas.broker.topic_events import record_creations
from barnabas.client.connection import BrokerConnection
from barnabas.config import BrokerConfig
from barnabas.controller.topic_checks import TopicSpec
from barnabas.errors import (
    ApiError,
    ErrorCode,
    RegistryError,
    RemoteWireError,
    StorageError,
    reason,
)
from barnabas.history.requester import Requester, format_client_id
from barnabas.metadata.topic_names import (
    CONSUMER_OFFSETS,
    STATE_CHANGES,
    TRANSACTION_STATE,
    topic_name_error,
)
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

logger = logging.getLogger("barnabas.topics")

DO_NOT_WAIT = 0
FORWARD_SECONDS = 5.0
"""Timeout to connect to the controller, and again for its response. Clients retry for longer."""
RETRIED_BY_CLIENT = (
    ErrorCode.NONE,
    ErrorCode.TOPIC_ALREADY_EXISTS,  # created meanwhile, or being deleted
    ErrorCode.REQUEST_TIMED_OUT,  # created; the request does not wait for leaders
    ErrorCode.NOT_CONTROLLER,  # the controller has changed, or cannot be reached
)
"""With these results of CreateTopics the client gets LEADER_NOT_AVAILABLE and retries."""


async def create_automatically(
    context: BrokerContext, names: Sequence[str], requester: Requester, *, request: str
) -> dict[str, ErrorCode]:
    """Create topics, and return the error code of each for the client. `__state_changes` is never created this way."""
    requester = requester._replace(via=context.config.broker_id, request=request)
    codes: dict[str, ErrorCode] = {}
    wanted = []
    being_created = context.topics.auto_creations_in_progress
    for name in names:
        if topic_name_error(name) is not None:
            codes[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif name == STATE_CHANGES or name in being_created:
            codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            wanted.append(name)
            being_created[name] = None
    if wanted:
        new_topics = [define_topic(name, context.config) for name in wanted]
        try:
            results = await (
                create_here if context.controller.is_active else forward_to_controller
            )(context, new_topics, requester)
        finally:
            for name in wanted:
                del being_created[name]
        for name in wanted:
            code = results.get(name, ErrorCode.NONE)
            codes[name] = ErrorCode.LEADER_NOT_AVAILABLE if code in RETRIED_BY_CLIENT else code
    return codes


def define_topic(name: str, config: BrokerConfig) -> TopicSpec:
    """Return the topic to create, with counts from this broker's settings. Internal topics have their own."""
    if name == CONSUMER_OFFSETS:
        return TopicSpec(
            name=name,
            partitions=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE:
        return TopicSpec(
            name=name,
            partitions=config.transaction_state_log_num_partitions,
            replication_factor=config.transaction_state_log_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "unclean.leader.election.enable": "false",
            },
        )
    return TopicSpec(
        name=name,
        partitions=config.num_partitions,
        replication_factor=config.default_replication_factor,
        configs={},
    )


async def create_here(
    context: BrokerContext, new_topics: Sequence[TopicSpec], requester: Requester
) -> dict[str, ErrorCode]:
    names = [new_topic.name for new_topic in new_topics]
    # As in Kafka, automatic creation counts against the quota of the client, but is never rejected or delayed.
    quota = await context.mutation_quotas.open(requester.user, requester.client, is_strict=False)
    try:
        outcomes = await create_topics(
            context.topics, new_topics, timeout_ms=DO_NOT_WAIT, quota=quota
        )
    except ApiError as error:
        return dict.fromkeys(names, error.code)
    except (RegistryError, StorageError) as error:
        logger.error("cannot create topics=%s error=%s", ",".join(names), error)
        return dict.fromkeys(names, ErrorCode.UNKNOWN_SERVER_ERROR)
    record_creations(context, new_topics, outcomes, requester)
    return {each.name: each.error.code for each in outcomes if each.error is not None}


async def forward_to_controller(
    context: BrokerContext, new_topics: Sequence[TopicSpec], requester: Requester
) -> dict[str, ErrorCode]:
    """Send CreateTopics to the controller once. Return the error codes by topic; NOT_CONTROLLER if that fails."""
    names = [new_topic.name for new_topic in new_topics]
    not_controller = dict.fromkeys(names, ErrorCode.NOT_CONTROLLER)
    controller = context.metadata.controller_id
    endpoint = context.metadata.endpoint_of(controller, context.config.inter_broker_listener)
    if endpoint is None:
        return not_controller
    request = CreateTopicsRequest(
        topics=tuple(
            CreatableTopic(
                new_topic.name,
                new_topic.partitions,
                new_topic.replication_factor,
                configs=tuple(
                    CreatableTopicConfig(*config) for config in new_topic.configs.items()
                ),
            )
            for new_topic in new_topics
        ),
        timeout_ms=DO_NOT_WAIT,
    )
    try:
        connection = await BrokerConnection.open(
            context.network,
            endpoint.host,
            endpoint.port,
            client_id=format_client_id(requester),
            timeout_s=FORWARD_SECONDS,
        )
        try:
            response = await connection.exchange(
                request, CreateTopicsResponse, timeout_s=FORWARD_SECONDS
            )
        finally:
            connection.close()
    except (ConnectionError, TimeoutError, RemoteWireError) as error:
        logger.warning(
            "cannot forward topic creation controller=%d topics=%s error=%s",
            controller,
            ",".join(names),
            reason(error),
        )
        return not_controller
    return {topic.name: ErrorCode(topic.error_code) for topic in response.topics}
