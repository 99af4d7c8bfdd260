"""The event of a new topic names the settings its partition count and replication factor come from."""

from __future__ import annotations

from typing import Any

from barnabas.broker.topic_admin.create_topics import CreationOutcome
from barnabas.broker.topic_events import creation_facts
from barnabas.controller.topic_checks import TopicSpec
from barnabas.history.requester import Requester
from barnabas.model import BrokerId

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
