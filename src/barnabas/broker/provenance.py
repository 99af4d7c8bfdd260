"""Who wanted a topic: what the history says beside what the controller did.

A client that creates or deletes a topic asks the controller's broker, which knows it by its connection. One that merely
names a topic may have asked any broker, and that one asks the controller with a plain CreateTopics, from which nobody
would know who the client was. So the broker tells it in the client id of this request:

    broker-2-create for rdkafka at 10.0.0.7

Anybody may call himself that, as anybody may call himself rdkafka: it is a name, and no proof.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.broker.connection import Connection
from barnabas.broker.parts import BrokerParts
from barnabas.broker.topics import TopicOutcome
from barnabas.controller.history import Facts
from barnabas.controller.topic_checks import USE_DEFAULT, TopicWish
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.wire.headers import RequestHeader

ON_BEHALF = re.compile(r"broker-(\d+)-create for (.*) at (\S+)", re.DOTALL)
COUNTS = ("num.partitions", "default.replication.factor")
COUNTS_OF = {
    CONSUMER_OFFSETS: ("offsets.topic.num.partitions", "offsets.topic.replication.factor"),
    TRANSACTION_STATE: (
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
    ),
}
"""The settings that say how many partitions and replicas a topic has that nobody gave any numbers for."""


class Asker(NamedTuple):
    """`via` is the broker that a client asked for a topic without telling it to create any; `at_ms` is when the request
    came, since by the time a note is taken it has been waited for."""

    client: str | None
    host: str
    via: int | None = None
    at_ms: int | None = None


def asker_of(header: RequestHeader, connection: Connection) -> Asker:
    """The client itself, or the one that another broker speaks for."""
    found = ON_BEHALF.fullmatch(header.client_id or "")
    if found is not None:
        broker, client, host = found.groups()
        return Asker(client or None, host, int(broker))
    return Asker(header.client_id, connection.stream.peer[0])


def client_id_for(asker: Asker) -> str:
    return f"broker-{asker.via}-create for {asker.client or ''} at {asker.host}"


def facts_of(wish: TopicWish, outcome: TopicOutcome, asker: Asker) -> Facts:
    """How large a topic became, and which of it was nobody's wish."""
    of_partitions, of_replicas = COUNTS_OF.get(wish.name, COUNTS) if asker.via else COUNTS
    defaults = []
    if wish.assignments is None:
        if asker.via or wish.partitions == USE_DEFAULT:
            defaults.append(of_partitions)
        if asker.via or wish.replication_factor == USE_DEFAULT:
            defaults.append(of_replicas)
    facts: dict[str, object] = {
        "partitions": len(outcome.replicas),
        "replication_factor": len(outcome.replicas[0]),
    }
    if defaults:
        facts["defaults"] = defaults
    if asker.via:
        facts |= {"automatic": True, "via": asker.via}
    return facts


def take_note(
    parts: BrokerParts,
    topics: Iterable[str],
    asker: Asker,
    *,
    request: str,
    after: str,
    facts: Mapping[str, Facts] | None = None,
) -> None:
    """In the history: the controller knows what happened, only we know who wanted it."""
    execution = parts.controller.execution
    if execution is not None:
        parts.controller.log.record(
            execution.history.asked(
                topics,
                request=request,
                after=after,
                client=asker.client,
                host=asker.host,
                asked_at_ms=asker.at_ms,
                facts=facts,
            )
        )


def take_note_of_new(
    parts: BrokerParts, wishes: Iterable[TopicWish], outcomes: Iterable[TopicOutcome], asker: Asker
) -> None:
    facts = {
        outcome.name: facts_of(wish, outcome, asker)
        for wish, outcome in zip(wishes, outcomes, strict=True)
        if is_done(outcome.error)
    }
    request = "CreateTopics" if asker.via is None else "Metadata"
    take_note(parts, facts, asker, request=request, after="created", facts=facts)


def is_done(error: ApiError | None) -> bool:
    """In the registry, whether or not the client waited for all brokers to know."""
    return error is None or error.code is ErrorCode.REQUEST_TIMED_OUT
