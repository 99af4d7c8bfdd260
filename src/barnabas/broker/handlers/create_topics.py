"""CreateTopics: creates topics. Only the active controller serves it."""

from __future__ import annotations

from collections import Counter
from functools import cache, partial

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.control_plane import is_history_producer
from barnabas.broker.mutation_quotas import throttle_connection
from barnabas.broker.security.access import Access
from barnabas.broker.topic_admin.create_topics import CreationOutcome, create_topics
from barnabas.broker.topic_admin.topics import error_fields, to_api_error
from barnabas.broker.topic_events import find_requester, record_creations
from barnabas.config.current import CurrentConfig
from barnabas.config.describe import describe_topic
from barnabas.controller.mutation_quota import UNLIMITED_MUTATIONS
from barnabas.controller.topic_checks import TopicSpec
from barnabas.errors import ApiError, ErrorCode, RegistryError, StorageError
from barnabas.history.requester import is_forwarded
from barnabas.model import ZERO_ID
from barnabas.security.acl.model import Operation
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
STRICT_QUOTA_SINCE = 6
RESULTS_PER_TURN = 500


async def handle(
    context: BrokerContext,
    request: CreateTopicsRequest,
    header: RequestHeader,
    connection: Connection,
) -> CreateTopicsResponse:
    access = context.security.access
    is_broker = is_of_broker(request, header) and access.is_broker(connection)
    requester = find_requester(header, connection, is_broker=is_broker)
    requester = requester._replace(at_ms=context.clock.now_ms())
    outcomes, new_topics = await in_thread_if_large(
        len(request.topics), parse_request, request, context.controller.is_active
    )
    if access.is_enabled and not is_broker:
        new_topics = await reject_denied(access, connection, new_topics, outcomes)
    is_automatic = requester.via is not None
    quota = UNLIMITED_MUTATIONS
    if new_topics:
        # Another broker requests an automatic creation for its client. That is never rejected.
        is_strict = header.api_version >= STRICT_QUOTA_SINCE and not is_automatic
        quota = await context.mutation_quotas.open(
            requester.user, requester.client, is_strict=is_strict
        )
        try:
            created = await create_topics(
                context.topics,
                new_topics,
                timeout_ms=request.timeout_ms,
                validate_only=request.validate_only,
                quota=quota,
            )
        except (ApiError, RegistryError, StorageError) as error:
            failed = to_api_error(error)
            created = [CreationOutcome(name=each.name, error=failed) for each in new_topics]
        else:
            if not request.validate_only:
                record_creations(context, new_topics, created, requester)
        outcomes |= {outcome.name: outcome for outcome in created}
    # Most topics of a request have the same settings.
    describe = cache(partial(describe_overrides, context.current_config))
    results = []
    turns = Turns(RESULTS_PER_TURN)
    for topic in request.topics:
        await turns.yield_if_due()
        outcome = outcomes[topic.name]
        # The client gets the id even after a timeout.
        result = CreatableTopicResult(topic.name, outcome.topic_id, *error_fields(outcome.error))
        is_described = access.allows_topic(
            connection, Operation.DESCRIBE_CONFIGS, topic.name, is_audited=False
        )
        code = ErrorCode.NONE if outcome.error is None else outcome.error.code
        if not is_described and code in (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
            result = result._replace(
                topic_id=ZERO_ID, topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
        elif outcome.error is None:
            result = result._replace(
                num_partitions=len(outcome.replicas), replication_factor=len(outcome.replicas[0])
            )
            if header.api_version >= CONFIGS_SINCE:
                overrides = tuple(sorted(outcome.overrides.items()))
                result = result._replace(configs=describe(overrides))
        results.append(result)
    throttle_ms = 0 if is_automatic else throttle_connection(connection, quota)
    return CreateTopicsResponse(topics=tuple(results), throttle_time_ms=throttle_ms)


def is_of_broker(request: CreateTopicsRequest, header: RequestHeader) -> bool:
    """Whether the sender claims to be a broker: it creates a topic for a client, or the topic of its history."""
    is_history = len(request.topics) == 1 and is_history_producer(
        request.topics[0].name, header.client_id
    )
    return is_history or is_forwarded(header.client_id)


async def reject_denied(
    access: Access,
    connection: Connection,
    new_topics: list[TopicSpec],
    outcomes: dict[str, CreationOutcome],
) -> list[TopicSpec]:
    """Return the topics that the principal may create. The others get an outcome with an error."""
    if access.allows_cluster(connection, Operation.CREATE, is_audited=False):
        return new_topics
    allowed = []
    turns = Turns()
    for each in new_topics:
        if access.allows_topic(connection, Operation.CREATE, each.name):
            allowed.append(each)
        else:
            error = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Create is not allowed")
            outcomes[each.name] = CreationOutcome(name=each.name, error=error)
        await turns.yield_if_due()
    return allowed


def parse_request(
    request: CreateTopicsRequest, is_controller: bool
) -> tuple[dict[str, CreationOutcome], list[TopicSpec]]:
    """Return the errors that are found without the registry, by topic name, and the topics without an error."""
    if not is_controller:
        error = ApiError(ErrorCode.NOT_CONTROLLER)
        return {
            each.name: CreationOutcome(name=each.name, error=error) for each in request.topics
        }, []
    rejected = {}
    for name, count in Counter(topic.name for topic in request.topics).items():
        why = None
        if name == CLUSTER_METADATA:
            why = f"topic name '{name}' is reserved"
        elif count > 1:
            why = f"topic '{name}' is in the request {count} times"
        if why is not None:
            error = ApiError(ErrorCode.INVALID_REQUEST, why)
            rejected[name] = CreationOutcome(name=name, error=error)
    accepted = [topic for topic in request.topics if topic.name not in rejected]
    return rejected, [to_topic_spec(topic) for topic in accepted]


def to_topic_spec(topic: CreatableTopic) -> TopicSpec:
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


def describe_overrides(
    current: CurrentConfig, overrides: tuple[tuple[str, str], ...]
) -> tuple[CreatableTopicConfigs, ...]:
    return tuple(
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in describe_topic(
            dict(overrides),
            current.value,
            dynamic=current.dynamic.broker,
            dynamic_default=current.dynamic.default,
        )
    )
