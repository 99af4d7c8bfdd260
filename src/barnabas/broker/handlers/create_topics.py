"""CreateTopics: creates topics. Only the active controller serves it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.create_topics import CreationOutcome, create_topics
from barnabas.broker.topic_admin.topics import to_api_error
from barnabas.broker.topic_events import find_requester, record_creations
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
    requester = find_requester(header, connection)._replace(at_ms=context.clock.now_ms())
    rejected = await in_thread_if_large(len(request.topics), reject_early, context, request)
    new_topics = await in_thread_if_large(
        len(request.topics), parse_new_topics, request.topics, rejected
    )
    outcomes: list[CreationOutcome] = []
    if new_topics:
        try:
            outcomes = await create_topics(
                context.topics,
                new_topics,
                timeout_ms=request.timeout_ms,
                validate_only=request.validate_only,
            )
        except ApiError as error:
            rejected |= {new_topic.name: error for new_topic in new_topics}
        except (RegistryError, StorageError) as error:
            rejected |= {new_topic.name: to_api_error(error) for new_topic in new_topics}
    if outcomes and not request.validate_only:
        record_creations(context, new_topics, outcomes, requester)
    by_name = {outcome.name: outcome for outcome in outcomes}
    descriptions = Descriptions(context.config)
    results = []
    turns = Turns(RESULTS_PER_TURN)
    for topic in request.topics:
        await turns.yield_if_due()
        failed = rejected.get(topic.name)
        if failed is not None:
            results.append(build_creation_error(topic.name, failed))
            continue
        result = build_created_result(by_name[topic.name])
        if not result.error_code and header.api_version >= CONFIGS_SINCE:
            configs = descriptions.of(by_name[topic.name].overrides)
            result = result._replace(configs=configs)
        results.append(result)
    return CreateTopicsResponse(topics=tuple(results))


def reject_early(context: BrokerContext, request: CreateTopicsRequest) -> dict[str, ApiError]:
    """Return the errors that are found without the registry, by topic name."""
    if not context.controller.is_active:
        error = ApiError(ErrorCode.NOT_CONTROLLER)
        return {topic.name: error for topic in request.topics}
    rejected = {}
    for name, count in Counter(topic.name for topic in request.topics).items():
        why = None
        if name == CLUSTER_METADATA:
            why = f"topic name '{name}' is reserved"
        elif count > 1:
            why = f"topic '{name}' is in the request {count} times"
        if why is not None:
            rejected[name] = ApiError(ErrorCode.INVALID_REQUEST, why)
    return rejected


def parse_new_topics(
    topics: tuple[CreatableTopic, ...], rejected: Mapping[str, ApiError]
) -> list[TopicSpec]:
    return [parse_new_topic(topic) for topic in topics if topic.name not in rejected]


def parse_new_topic(topic: CreatableTopic) -> TopicSpec:
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


def build_creation_error(name: str, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=error.code, error_message=error.message or None
    )


def build_created_result(outcome: CreationOutcome) -> CreatableTopicResult:
    if outcome.error is not None:
        # After a timeout the client gets the id all the same.
        return build_creation_error(outcome.name, outcome.error)._replace(topic_id=outcome.topic_id)
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
