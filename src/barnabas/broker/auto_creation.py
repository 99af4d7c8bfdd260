"""Topics that come into being because a client asked for them.

The controller's own broker creates them; any other one asks the controller to, with a plain CreateTopics that does not
wait for leaders. Meanwhile the client hears LEADER_NOT_AVAILABLE and asks again; what keeps a topic from being created
is told as CreateTopics tells it. A name is asked for once at a time, however many clients ask for it: the others hear
UNKNOWN_TOPIC_OR_PARTITION, which makes them ask again, too.

How large a topic becomes is up to the settings of the broker that was asked, as in Kafka, not of the
controller's. Asking for an id, producing and fetching create nothing. FindCoordinator of a group creates
`__consumer_offsets`, whatever auto.create.topics.enable says.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas.broker.parts import BrokerParts
from barnabas.broker.topic_events import record_creations
from barnabas.client.connection import BrokerConnection
from barnabas.config import BrokerConfig
from barnabas.controller.topic_checks import TopicWish
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
    what_is_wrong_with,
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
"""The controller has as long to be reached, and again to answer. Clients ask again sooner than they give up."""
ON_ITS_WAY = (
    ErrorCode.NONE,
    ErrorCode.TOPIC_ALREADY_EXISTS,  # or is being deleted, and will be free when the client asks again
    ErrorCode.REQUEST_TIMED_OUT,  # the answer to who does not wait
    ErrorCode.NOT_CONTROLLER,  # somebody will be, when the client asks again
)


async def create_automatically(
    parts: BrokerParts, names: Sequence[str], requester: Requester
) -> dict[str, ErrorCode]:
    """What the client is told of each. The history's topic is made by who has something to tell."""
    told: dict[str, ErrorCode] = {}
    wanted = []
    being_created = parts.topics.created_automatically
    for name in names:
        if what_is_wrong_with(name) is not None:
            told[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif name == STATE_CHANGES or name in being_created:
            told[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            wanted.append(name)
            being_created[name] = None
    if wanted:
        wishes = [wish_for(name, parts.config) for name in wanted]
        try:
            found = await (create if parts.controller.is_active else forward)(
                parts, wishes, requester
            )
        finally:
            for name in wanted:
                del being_created[name]
        for name in wanted:
            code = found.get(name, ErrorCode.NONE)
            told[name] = ErrorCode.LEADER_NOT_AVAILABLE if code in ON_ITS_WAY else code
    return told


def wish_for(name: str, config: BrokerConfig) -> TopicWish:
    """The counts stand in it, so that it means the same to any controller. Kafka's own two topics have settings of
    their own."""
    if name == CONSUMER_OFFSETS:
        return TopicWish(
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
        return TopicWish(
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
    return TopicWish(
        name=name,
        partitions=config.num_partitions,
        replication_factor=config.default_replication_factor,
        configs={},
    )


async def create(
    parts: BrokerParts, wishes: Sequence[TopicWish], requester: Requester
) -> dict[str, ErrorCode]:
    try:
        outcomes = await parts.topics.create(wishes, timeout_ms=DO_NOT_WAIT)
    except ApiError as error:
        return dict.fromkeys((wish.name for wish in wishes), error.code)
    except (RegistryError, StorageError) as error:
        logger.error("cannot create topics=%s error=%s", listed(wishes), error)
        return dict.fromkeys((wish.name for wish in wishes), ErrorCode.UNKNOWN_SERVER_ERROR)
    record_creations(parts, wishes, outcomes, requester)
    return {each.name: each.error.code for each in outcomes if each.error is not None}


async def forward(
    parts: BrokerParts, wishes: Sequence[TopicWish], requester: Requester
) -> dict[str, ErrorCode]:
    """Where the controller cannot be asked now, the client that asks again is the one to try again."""
    nobody = dict.fromkeys((wish.name for wish in wishes), ErrorCode.NOT_CONTROLLER)
    controller = parts.metadata.controller_id
    endpoint = parts.metadata.endpoint_of(controller, parts.config.inter_broker_listener)
    if endpoint is None:
        return nobody
    request = CreateTopicsRequest(
        topics=tuple(creatable(wish) for wish in wishes), timeout_ms=DO_NOT_WAIT
    )
    try:
        connection = await BrokerConnection.open(
            parts.network,
            endpoint.host,
            endpoint.port,
            client_id=format_client_id(requester),
            timeout_s=FORWARD_SECONDS,
        )
        try:
            answer = await connection.exchange(
                request, CreateTopicsResponse, timeout_s=FORWARD_SECONDS
            )
        finally:
            connection.close()
    except (ConnectionError, TimeoutError, RemoteWireError) as error:
        logger.warning(
            "cannot ask controller=%d to create topics=%s error=%s",
            controller,
            listed(wishes),
            reason(error),
        )
        return nobody
    return {topic.name: ErrorCode(topic.error_code) for topic in answer.topics}


def creatable(wish: TopicWish) -> CreatableTopic:
    return CreatableTopic(
        wish.name,
        wish.partitions,
        wish.replication_factor,
        configs=tuple(CreatableTopicConfig(*config) for config in wish.configs.items()),
    )


def listed(wishes: Sequence[TopicWish]) -> str:
    return ",".join(wish.name for wish in wishes)
