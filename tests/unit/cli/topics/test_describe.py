from __future__ import annotations

from uuid import UUID

import pytest
from msgspec.structs import replace

from barnabas.cli.topics.describe import (
    created_text,
    describe_text,
    described_document,
    list_text,
    parse_configs,
    summary,
)
from barnabas.cli.topics.replica_assignment import parse_assignment
from barnabas.client.admin import ConfigEntry
from barnabas.client.view import PartitionView, TopicView
from barnabas.errors import ConfigError
from barnabas.model import NO_LEADER, BrokerId
from barnabas.wire.messages.configs import ConfigSource

ORDERS = TopicView(
    name="orders",
    partitions=(
        PartitionView(
            partition=0, leader=BrokerId(1), leader_epoch=4, replicas=(1, 2, 3), isr=(1, 3)
        ),
        PartitionView(partition=1, leader=NO_LEADER, leader_epoch=5, replicas=(2, 3, 1), isr=(2,)),
    ),
)
ALIVE = (1, 3)
CONFIGS = [
    ConfigEntry(name="retention.ms", value="1000", source=ConfigSource.TOPIC_CONFIG),
    ConfigEntry(name="cleanup.policy", value="delete", source=ConfigSource.DEFAULT_CONFIG),
]


def test_settings_are_pairs() -> None:
    assert parse_configs(("a.b=1", "c=x=y")) == {"a.b": "1", "c": "x=y"}
    for wrong in ("a", "=1"):
        with pytest.raises(ConfigError, match="KEY=VALUE"):
            parse_configs((wrong,))


def test_an_assignment_names_brokers_per_partition() -> None:
    assert parse_assignment("0:1:2,1:2:0") == ((0, 1, 2), (1, 2, 0))
    for wrong in ("a", "0:,1", "0;1"):
        with pytest.raises(ConfigError, match="0:1:2,1:2:0"):
            parse_assignment(wrong)


def test_a_list_shows_which_topics_are_not_whole() -> None:
    whole = TopicView(name="whole", partitions=())
    text = list_text({"topics": [summary(ORDERS), summary(whole)]})
    assert "1 offline, 2 under-replicated" in text
    assert text.splitlines()[-1].endswith("ok")
    assert "create one" in list_text({"topics": []})


def test_a_description_names_missing_replicas_and_own_settings_only() -> None:
    document = {"topics": [described_document(ORDERS, CONFIGS, False, ALIVE)]}
    text = describe_text(document)
    assert "retention.ms = 1000" in text
    assert "cleanup.policy" not in text
    assert text.splitlines()[-5:] == [
        "        0  1       1,2,3     1,3  2",
        "        1  none    2,3,1     2    3,1",
        "  partition 0: broker 2 is not alive",
        "  partition 1: no leader: broker 2, the only one in sync, is not alive",
        "  next: start broker 2 again; `barnabas brokers list` shows who is alive",
    ]
    everything = described_document(ORDERS, CONFIGS, True, ALIVE)
    assert everything["configs"] == {"cleanup.policy": "delete", "retention.ms": "1000"}
    assert everything["partition_list"][1]["leader"] is None


def test_ids_are_written_as_kafka_writes_them() -> None:
    known = replace(ORDERS, id=UUID("98061ffd-e3fd-4846-9a59-94b6ac2f1c0e"))
    assert described_document(known, [], False, ALIVE)["topic_id"] == "mAYf_eP9SEaaWZS2rC8cDg"
    assert described_document(ORDERS, [], False, ALIVE)["topic_id"] is None


def test_partitions_with_the_same_trouble_share_a_line() -> None:
    (first, _) = ORDERS.partitions
    topic = replace(ORDERS, partitions=tuple(replace(first, partition=index) for index in range(3)))
    lines = describe_text({"topics": [described_document(topic, [], False, ALIVE)]}).splitlines()
    assert "  partitions 0, 1 and 2: broker 2 is not alive" in lines


def test_a_whole_topic_has_no_trouble_to_tell_of() -> None:
    (first, _) = ORDERS.partitions
    whole = replace(ORDERS, partitions=(replace(first, isr=(1, 2, 3)),))
    document = described_document(whole, [], False, ALIVE)
    assert document["next_step"] is None
    assert "next" not in describe_text({"topics": [document]})


def test_what_was_created_is_told_with_its_shape() -> None:
    document = {
        "topic": "a",
        "existed": False,
        "dry_run": True,
        "partitions": 1,
        "replication_factor": 3,
    }
    assert created_text(document) == "would create topic a: 1 partition, replication factor 3"
    assert created_text({**document, "dry_run": False, "partitions": None}) == "created topic a"
    assert created_text({**document, "existed": True}) == "topic a exists already"
