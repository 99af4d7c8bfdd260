"""Who wanted a topic, as it goes from one broker to another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.broker.provenance import Asker, asker_of, client_id_for, facts_of
from barnabas.broker.topics import TopicOutcome
from barnabas.controller.topic_checks import TopicWish
from barnabas.model import BrokerId
from barnabas.wire.headers import RequestHeader

OUTCOME = TopicOutcome(name="t", replicas=((BrokerId(1), BrokerId(2)),) * 3)


def heard(client_id: str | None, peer: str = "10.0.0.2") -> Asker:
    connection = SimpleNamespace(stream=SimpleNamespace(peer=(peer, 4711)))
    return asker_of(RequestHeader(19, 7, 1, client_id), cast(Any, connection))


@pytest.mark.parametrize(
    "asker",
    [
        Asker("rdkafka", "10.0.0.7", 2),
        Asker(None, "::1", 3),
        Asker("a shop at home", "10.0.0.7", 2),
        Asker("broker-7-create for x at y", "10.0.0.7", 2),
        Asker("two\nlines", "fe80::1%eth0", 1_000_001),
    ],
)
def test_who_another_broker_speaks_for_is_heard_as_it_was_told(asker: Asker) -> None:
    assert heard(client_id_for(asker)) == asker


@pytest.mark.parametrize(
    "name", ["rdkafka", "", None, "broker-2-history", "broker-x-create for a at b"]
)
def test_everybody_else_speaks_for_themselves(name: str | None) -> None:
    assert heard(name) == Asker(name, "10.0.0.2")


def test_defaults_are_told_where_nobody_gave_a_number() -> None:
    client, other = Asker("app", "::1"), Asker("app", "::1", 2)

    def defaults(asker: Asker, **wish: Any) -> object:
        facts = facts_of(TopicWish(configs={}, **{"name": "t", **wish}), OUTCOME, asker)
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
