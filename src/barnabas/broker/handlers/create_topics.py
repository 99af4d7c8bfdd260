"""CreateTopics: creates topics. Only the broker of the active controller serves it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.create_topics import TopicOutcome, create_topics
from barnabas.broker.topic_admin.topics import to_api_error
from barnabas.broker.topic_events import record_creations, requester_of
from barnabas.config import BrokerConfig
from barnabas.config.describe import describe_topic
from barnabas.controller.topic_checks import TopicSpec
from barnabas.errors import ApiError, ErrorCode, RegistryError, StorageError
from barnabas.tasks import Turns, in_thread_if_large
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

CLUSTER_METADATA = "__cluster_metadata"
CONFIGS_SINCE = 5
RESULTS_PER_TURN = 500


async def handle(
    context: BrokerContext,
    request: CreateTopicsRequest,
    header: RequestHeader,
    connection: Connection,
) -> CreateTopicsResponse:
    requester = requester_of(header, connection)._replace(at_ms=context.clock.now_ms())
    refused = await in_thread_if_large(
        len(request.topics), refuse_before_checking, context, request
    )
    wishes = await in_thread_if_large(len(request.topics), wishes_of, request.topics, refused)
    outcomes: list[TopicOutcome] = []
    if wishes:
        try:
            outcomes = await create_topics(
                context.topics,
                wishes,
                timeout_ms=request.timeout_ms,
                validate_only=request.validate_only,
            )
        except ApiError as error:
            refused |= {wish.name: error for wish in wishes}
        except (RegistryError, StorageError) as error:
            refused |= {wish.name: to_api_error(error) for wish in wishes}
    if outcomes and not request.validate_only:
        record_creations(context, wishes, outcomes, requester)
    by_name = {outcome.name: outcome for outcome in outcomes}
    descriptions = Descriptions(context.config)
    results = []
    turns = Turns(RESULTS_PER_TURN)
    for topic in request.topics:
        await turns.leave()
        failed = refused.get(topic.name)
        if failed is not None:
            results.append(not_created(topic.name, failed))
            continue
        result = created(by_name[topic.name])
        if not result.error_code and header.api_version >= CONFIGS_SINCE:
            configs = descriptions.of(by_name[topic.name].overrides)
            result = result._replace(configs=configs)
        results.append(result)
    return CreateTopicsResponse(topics=tuple(results))


def refuse_before_checking(
    context: BrokerContext, request: CreateTopicsRequest
) -> dict[str, ApiError]:
    if not context.controller.is_active:
        error = ApiError(ErrorCode.NOT_CONTROLLER)
        return {topic.name: error for topic in request.topics}
    refused = {}
    for name, count in Counter(topic.name for topic in request.topics).items():
        why = None
        if name == CLUSTER_METADATA:
            why = f"'{name}' is a name of Kafka's own"
        elif count > 1:
            why = f"'{name}' is asked for {count} times"
        if why is not None:
            refused[name] = ApiError(ErrorCode.INVALID_REQUEST, why)
    return refused


def wishes_of(
    topics: tuple[CreatableTopic, ...], refused: Mapping[str, ApiError]
) -> list[TopicSpec]:
    return [wish_of(topic) for topic in topics if topic.name not in refused]


def wish_of(topic: CreatableTopic) -> TopicSpec:
    assignments = None
    if topic.assignments:
        # If a partition is assigned more than once, the last assignment counts, as in Kafka.
        assignments = {entry.partition_index: entry.broker_ids for entry in topic.assignments}
    return TopicSpec(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=assignments,
        configs={entry.name: entry.value for entry in topic.configs},
    )


def not_created(name: str, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=error.code, error_message=error.message or None
    )


def created(outcome: TopicOutcome) -> CreatableTopicResult:
    if outcome.error is not None:
        # After a timeout the client gets the id all the same.
        return not_created(outcome.name, outcome.error)._replace(topic_id=outcome.topic_id)
    return CreatableTopicResult(
        name=outcome.name,
        topic_id=outcome.topic_id,
        num_partitions=len(outcome.replicas),
        replication_factor=len(outcome.replicas[0]),
    )


class Descriptions:
    """Cache of the described settings. Most topics of a request have the same settings."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.known: dict[tuple[tuple[str, str], ...], tuple[CreatableTopicConfigs, ...]] = {}

    def of(self, overrides: Mapping[str, str]) -> tuple[CreatableTopicConfigs, ...]:
        key = tuple(sorted(overrides.items()))
        if key not in self.known:
            self.known[key] = tuple(
                CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.is_sensitive,
                )
                for entry in describe_topic(overrides, self.config)
            )
        return self.known[key]
