"""Topics that come into being because a client asked for them.

The controller's own broker creates them; any other one asks the controller to, with a plain CreateTopics that does not
wait for leaders. Meanwhile the client hears LEADER_NOT_AVAILABLE and asks again; what keeps a topic from being created
is told as CreateTopics tells it. A name is asked for once at a time, however many clients ask for it: the others hear
UNKNOWN_TOPIC_OR_PARTITION, which makes them ask again, too.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas.broker.parts import BrokerParts
from barnabas.client.connection import BrokerConnection
from barnabas.controller.topic_checks import TopicWish
from barnabas.errors import ApiError, ErrorCode, RegistryError, RemoteWireError, StorageError
from barnabas.metadata.cache import INTERNAL_TOPICS
from barnabas.metadata.topic_names import what_is_wrong_with
from barnabas.wire.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

logger = logging.getLogger("barnabas.topics")

DO_NOT_WAIT = 0
CONNECT_SECONDS = 5.0
USE_DEFAULT = -1
ON_ITS_WAY = (
    ErrorCode.NONE,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.REQUEST_TIMED_OUT,  # the answer to who does not wait
    ErrorCode.NOT_CONTROLLER,  # somebody will be, when the client asks again
)


async def create_automatically(parts: BrokerParts, names: Sequence[str]) -> dict[str, ErrorCode]:
    """What the client is told of each. The cluster's own topics are made by who needs them."""
    told: dict[str, ErrorCode] = {}
    wanted = []
    being_created = parts.topics.created_automatically
    for name in names:
        if what_is_wrong_with(name) is not None:
            told[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif name in INTERNAL_TOPICS or name in being_created:
            told[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            wanted.append(name)
            being_created[name] = None
    if wanted:
        try:
            found = await (create if parts.controller.is_active else forward)(parts, wanted)
        finally:
            for name in wanted:
                del being_created[name]
        for name in wanted:
            code = found.get(name, ErrorCode.NONE)
            told[name] = ErrorCode.LEADER_NOT_AVAILABLE if code in ON_ITS_WAY else code
    return told


async def create(parts: BrokerParts, names: Sequence[str]) -> dict[str, ErrorCode]:
    wishes = [TopicWish(name=name, configs={}) for name in names]
    try:
        outcomes = await parts.topics.create(wishes, timeout_ms=DO_NOT_WAIT)
    except ApiError as error:
        return dict.fromkeys(names, error.code)
    except (RegistryError, StorageError) as error:
        logger.error("cannot create topics=%s error=%s", ",".join(names), error)
        return dict.fromkeys(names, ErrorCode.UNKNOWN_SERVER_ERROR)
    return {each.name: each.error.code for each in outcomes if each.error is not None}


async def forward(parts: BrokerParts, names: Sequence[str]) -> dict[str, ErrorCode]:
    """Where the controller cannot be asked now, the client that asks again is the one to try again."""
    controller = parts.metadata.controller_id
    endpoint = parts.metadata.endpoint_of(controller, parts.config.inter_broker_listener)
    if endpoint is None:
        return dict.fromkeys(names, ErrorCode.NOT_CONTROLLER)
    request = CreateTopicsRequest(
        topics=tuple(CreatableTopic(name, USE_DEFAULT, USE_DEFAULT) for name in names),
        timeout_ms=DO_NOT_WAIT,
    )
    try:
        connection = await BrokerConnection.open(
            parts.network,
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{parts.config.broker_id}-create",
            timeout_s=CONNECT_SECONDS,
        )
        try:
            answer = await connection.exchange(
                request, CreateTopicsResponse, timeout_s=parts.config.request_timeout_ms / 1000
            )
        finally:
            connection.close()
    except (ConnectionError, TimeoutError, RemoteWireError) as error:
        logger.warning("cannot ask controller=%d to create topics error=%s", controller, error)
        return dict.fromkeys(names, ErrorCode.NOT_CONTROLLER)
    return {topic.name: ErrorCode(topic.error_code) for topic in answer.topics}
