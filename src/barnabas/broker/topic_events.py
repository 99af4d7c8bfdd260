"""History events that name the client of a topic change. The controller records the state changes that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.create_topics import CreationOutcome
from barnabas.controller.topic_checks import USE_DEFAULT, TopicSpec
from barnabas.errors import ApiError, ErrorCode
from barnabas.history.recorder import Facts
from barnabas.history.requester import Requester, parse_requester
from barnabas.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.wire.headers import RequestHeader

COUNT_SETTINGS = ("num.partitions", "default.replication.factor")
"""Settings for the partition count and replication factor of a topic that is requested without these counts."""
INTERNAL_COUNT_SETTINGS = {
    CONSUMER_OFFSETS: ("offsets.topic.num.partitions", "offsets.topic.replication.factor"),
    TRANSACTION_STATE: (
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
    ),
}
"""The same for internal topics that are created automatically. CreateTopics uses COUNT_SETTINGS for them too."""


def find_requester(
    header: RequestHeader, connection: Connection, *, is_broker: bool = False
) -> Requester:
    """Return the client that sent a request. If the sender may act as a broker, it may be another one's client."""
    host = connection.stream.peer[0]
    if is_broker:
        forwarded = parse_requester(header.client_id, host)
        if forwarded.via is not None:
            return forwarded
    return Requester(header.client_id, host, user=connection.principal.name)


def creation_facts(new_topic: TopicSpec, outcome: CreationOutcome, requester: Requester) -> Facts:
    """Return the partition count and replication factor of the new topic, and the settings that determined them."""
    is_automatic = requester.via is not None
    internal = INTERNAL_COUNT_SETTINGS if is_automatic else {}
    partitions_setting, replication_setting = internal.get(new_topic.name, COUNT_SETTINGS)
    defaults = []
    if new_topic.assignments is None:
        if is_automatic or new_topic.partitions == USE_DEFAULT:
            defaults.append(partitions_setting)
        if is_automatic or new_topic.replication_factor == USE_DEFAULT:
            defaults.append(replication_setting)
    facts: dict[str, object] = {
        "partitions": len(outcome.replicas),
        "replication_factor": len(outcome.replicas[0]),
    }
    if defaults:
        facts["defaults"] = defaults
    if is_automatic:
        facts |= {"automatic": True, "via": requester.via}
    return facts


def record_topic_request(
    context: BrokerContext,
    topics: Iterable[str],
    requester: Requester,
    *,
    request: str,
    after: str,
    facts: Mapping[str, Facts] | None = None,
) -> None:
    """Record which client requested a change. The znodes that the controller watches do not name the client.

    Does nothing if this broker is not the active controller.
    """
    execution = context.controller.execution
    if execution is not None:
        execution.recorder.record_topic_request(
            topics,
            request=request,
            after=after,
            client=requester.name,
            host=requester.host,
            asked_at_ms=requester.at_ms,
            facts=facts,
        )


def record_creations(
    context: BrokerContext,
    new_topics: Iterable[TopicSpec],
    outcomes: Iterable[CreationOutcome],
    requester: Requester,
) -> None:
    facts = {
        outcome.name: creation_facts(new_topic, outcome, requester)
        for new_topic, outcome in zip(new_topics, outcomes, strict=True)
        if is_written(outcome.error)
    }
    request = requester.request or "CreateTopics"
    record_topic_request(context, facts, requester, request=request, after="created", facts=facts)


def is_written(error: ApiError | None) -> bool:
    """Whether the change is in the registry. A timeout means only that it is not in the metadata cache yet."""
    return error is None or error.code is ErrorCode.REQUEST_TIMED_OUT
