"""The event of a new topic names the settings its partition count and replication factor come from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.broker.handlers import find_coordinator, metadata
from barnabas.broker.mutation_quotas import MutationQuotas
from barnabas.broker.topic_admin import auto_creation
from barnabas.broker.topic_admin.create_topics import CreationOutcome
from barnabas.broker.topic_events import creation_facts, find_requester, record_creations
from barnabas.config import BrokerConfig
from barnabas.controller.topic_checks import TopicSpec
from barnabas.errors import ApiError, ErrorCode
from barnabas.history.requester import Requester, format_client_id
from barnabas.metadata.cache import MetadataCache
from barnabas.model import BrokerId
from barnabas.security.principal import ANONYMOUS, Principal
from barnabas.wire.apis import ApiKey
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.metadata import MetadataRequestTopic

OUTCOME = CreationOutcome(name="t", replicas=((BrokerId(1), BrokerId(2)),) * 3)


def test_creation_event_names_settings_of_default_counts() -> None:
    client, other = Requester("app", "::1"), Requester("app", "::1", 2)

    def defaults(requester: Requester, **fields: Any) -> object:
        facts = creation_facts(TopicSpec(configs={}, **{"name": "t", **fields}), OUTCOME, requester)
        assert (facts["partitions"], facts["replication_factor"]) == (3, 2)
        return facts.get("defaults")

    assert defaults(client, partitions=3, replication_factor=2) is None
    assert defaults(client, replication_factor=2) == ["num.partitions"]
    assert defaults(client, partitions=3) == ["default.replication.factor"]
    assert defaults(client, assignments={0: (1, 2)}) is None
    both = ["num.partitions", "default.replication.factor"]
    assert defaults(client) == defaults(other, partitions=3, replication_factor=2) == both
    assert defaults(client, name="__consumer_offsets") == both
    assert defaults(other, name="__consumer_offsets") == [
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
    ]


def test_creation_event_names_broker_0() -> None:
    facts = creation_facts(TopicSpec(name="t", configs={}), OUTCOME, Requester("app", "::1", 0))
    assert (facts["automatic"], facts["via"]) == (True, 0)
    assert facts["defaults"] == ["num.partitions", "default.replication.factor"]


class NoRates:
    async def find_rate(self, user: str, client_id: str) -> None: ...


class FakeController:
    """Context of a broker that is the controller. Every creation succeeds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(auto_creation, "create_topics", self.create_topics)
        self.events: list[dict[str, Any]] = []
        recorder = SimpleNamespace(
            record_topic_request=lambda _, **fields: self.events.append(fields)
        )
        self.context: Any = SimpleNamespace(
            config=BrokerConfig(broker_id=0),
            controller=SimpleNamespace(
                is_active=True, execution=SimpleNamespace(recorder=recorder)
            ),
            metadata=MetadataCache("cluster"),
            topics=SimpleNamespace(auto_creations_in_progress={}),
            mutation_quotas=MutationQuotas(NoRates(), BrokerConfig()),
        )

    async def create_topics(self, _: Any, new_topics: list[TopicSpec], **__: Any) -> object:
        created, replicas = ApiError(ErrorCode.REQUEST_TIMED_OUT), ((BrokerId(0),),)
        return [
            CreationOutcome(name=each.name, replicas=replicas, error=created) for each in new_topics
        ]


async def test_creation_event_of_find_coordinator_names_client_and_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = FakeController(monkeypatch)
    header = RequestHeader(ApiKey.FIND_COORDINATOR, 4, 0, "app")
    connection = SimpleNamespace(stream=SimpleNamespace(peer=("::1", 5000)), principal=ANONYMOUS)
    await find_coordinator.create_internal_topic(
        controller.context, "__consumer_offsets", ["g"], header, cast(Any, connection), {}
    )
    (event,) = controller.events
    assert (event["request"], event["client"], event["host"]) == ("FindCoordinator", "app", "::1")
    assert event["facts"]["__consumer_offsets"]["via"] == 0


async def test_creation_event_of_metadata_for_internal_topic_names_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = FakeController(monkeypatch)
    options = metadata.ResponseOptions(12, "PLAINTEXT", False, False, False, cast(Any, None))
    topics = (MetadataRequestTopic(name="__consumer_offsets"),)
    requester = Requester("app", "::1")
    await metadata.create_unknown_topics(controller.context, topics, {}, options, requester)
    (event,) = controller.events
    assert event["request"] == "Metadata"


@pytest.mark.parametrize("request_name", ["Metadata", "FindCoordinator"])
def test_creation_event_of_forwarded_request_names_it(
    monkeypatch: pytest.MonkeyPatch, request_name: str
) -> None:
    controller = FakeController(monkeypatch)
    header = RequestHeader(
        ApiKey.CREATE_TOPICS,
        7,
        0,
        format_client_id(Requester("app", "::1", via=2, request=request_name)),
    )
    connection: Any = SimpleNamespace(
        stream=SimpleNamespace(peer=("::2", 5000)), principal=ANONYMOUS
    )
    topic = TopicSpec(name="__consumer_offsets", configs={})
    outcome = CreationOutcome(name=topic.name, replicas=((BrokerId(0),),))
    requester = find_requester(header, connection, is_broker=True)
    record_creations(controller.context, [topic], [outcome], requester)
    (event,) = controller.events
    assert (event["request"], event["client"], event["host"]) == (request_name, "app", "::1")


def test_requester_is_the_authenticated_user_and_only_a_broker_may_forward() -> None:
    forwarded = format_client_id(Requester("app", "::1", via=2, request="Metadata"))
    header = RequestHeader(ApiKey.CREATE_TOPICS, 7, 0, forwarded)
    connection: Any = SimpleNamespace(
        stream=SimpleNamespace(peer=("::2", 5000)), principal=Principal("alice")
    )
    direct = find_requester(header, connection)
    assert direct == Requester(forwarded, "::2", user="alice")
    assert direct.name == "User:alice"
    assert find_requester(header, connection, is_broker=True) == Requester(
        "app", "::1", 2, "Metadata"
    )
