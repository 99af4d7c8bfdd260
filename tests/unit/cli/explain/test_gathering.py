"""Parts of the gathering that need no cluster."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from barnabas.cli.explain.commands import (
    parse_partition_name,
    require_partition,
    require_topic,
)
from barnabas.cli.explain.gather import (
    GatheredFacts,
    find_moves,
    find_start_commands,
    parse_settings,
    wanted_ends,
)
from barnabas.cli.explain.probe import BrokerAnswer
from barnabas.cli.explain.registry_facts import RegistryPlace, find_place, gather_registry_facts
from barnabas.client.cluster import Cluster, Unreachable
from barnabas.errors import ApiError, ConfigError
from barnabas.explain.facts import Probe
from barnabas.metadata.znodes import ReplicaAssignment
from barnabas.model import BrokerId, TopicPartition
from tests.unit.explain.facts_of import FIRST, cluster_view, facts_of, partition, registry_with

UP = Probe(is_responding=True)
MOVE = ReplicaAssignment(replicas=(BrokerId(1),), adding=(BrokerId(1),))


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"zookeeper.connect": "z:1/dev", "log.dirs": "/d"}, RegistryPlace(zookeeper="z:1/dev")),
        ({"barnabas.registry.dir": "/r", "log.dirs": "/d"}, RegistryPlace(directory="/r")),
        ({"log.dirs": "/data/broker-1,/other"}, RegistryPlace(directory="/data/registry")),
        ({"log.dir": "/data/kafka-logs/"}, RegistryPlace(directory="/data/kafka-logs-registry")),
        ({}, RegistryPlace()),
    ],
)
def test_brokers_report_the_place_of_their_registry(
    settings: dict[str, str], place: RegistryPlace
) -> None:
    assert find_place(settings) == place


def test_registry_on_another_machine_is_skipped(tmp_path: Path) -> None:
    place = RegistryPlace(directory=str(tmp_path / "missing"))
    assert gather_registry_facts(place, {}, [], all_topics=True) == (None, None)
    (tmp_path / "empty").mkdir()
    empty = RegistryPlace(directory=str(tmp_path / "empty"))
    assert gather_registry_facts(empty, {}, [], all_topics=True) == (None, None)


def test_named_registry_must_exist(tmp_path: Path) -> None:
    place = RegistryPlace(data=str(tmp_path), is_given=True)
    with pytest.raises(ConfigError):
        gather_registry_facts(place, {}, [], all_topics=True)


def test_partition_name_may_contain_dashes() -> None:
    assert parse_partition_name("a-b-12") == TopicPartition("a-b", 12)
    for name in ("orders", "orders-", "-1", "orders-x"):
        with pytest.raises(click.BadParameter):
            parse_partition_name(name)


def test_partition_that_only_the_registry_could_know_must_exist() -> None:
    facts = facts_of(registry=registry_with({"ghost": (8, 9)}))
    require_partition(facts, TopicPartition("ghost", 0))
    with pytest.raises(ApiError, match="ghost has no partition 7"):
        require_partition(facts, TopicPartition("ghost", 7))


def test_topic_of_an_unreachable_cluster_is_looked_up_in_the_registry() -> None:
    facts = facts_of(registry=registry_with({"ghost": (8, 9)}))
    gathered = GatheredFacts(facts, unreachable=Unreachable([("h:1", "connection refused")]))
    with Cluster("h:1") as cluster:
        require_topic(cluster, gathered, "ghost")
        with pytest.raises(Unreachable, match=r"no broker reached: h:1 \(connection refused\)"):
            require_topic(cluster, gathered, "orders")


def test_throttle_rates_are_those_that_are_set() -> None:
    answers = {
        1: BrokerAnswer(UP, {"follower.replication.throttled.rate": "1000"}),
        2: BrokerAnswer(UP, {"follower.replication.throttled.rate": str(2**63 - 1)}),
        3: BrokerAnswer(UP, {"leader.replication.throttled.rate": "500"}),
    }
    found = parse_settings({"auto.leader.rebalance.enable": "false"}, answers)
    assert found.follower_rates == {1: 1000}
    assert found.leader_rates == {3: 500}
    assert not found.is_rebalance_enabled
    assert found.is_delete_enabled


def test_properties_files_of_brokers_that_are_down(tmp_path: Path) -> None:
    for number in (1, 4):
        (tmp_path / f"broker-{number}.properties").touch()
    found = find_start_commands({"log.dirs": str(tmp_path / "broker-1")}, cluster_view())
    assert found == {4: f"barnabas broker {tmp_path / 'broker-4.properties'}"}
    assert find_start_commands({}, cluster_view()) == {}


def test_reported_moves_take_precedence() -> None:
    assert find_moves({1: BrokerAnswer(UP)}, None) == {}
    assert find_moves({1: BrokerAnswer(UP, moves={FIRST: MOVE})}, None) == {FIRST: MOVE}


def test_ends_are_wanted_of_leaders_and_missing_replicas() -> None:
    view = cluster_view(partition(1, (1, 2, 3), (1, 3)), partition(1, (1, 2), (1, 2), number=1))
    assert wanted_ends(view, ["orders"]) == {1: [FIRST], 2: [FIRST]}
