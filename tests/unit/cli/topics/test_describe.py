from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from barnabas.cli.topics.describe import (
    described_topics_text,
    topic_document,
)
from barnabas.client.admin import ConfigEntry
from barnabas.client.view import BrokerView, ClusterView, PartitionView, TopicView
from barnabas.model import NO_LEADER, BrokerId
from barnabas.wire.messages.describe_configs import ConfigSource

ORDERS = TopicView(
    name="orders",
    partitions=(
        PartitionView(
            partition=0, leader=BrokerId(1), leader_epoch=4, replicas=(1, 2, 3), isr=(1, 3)
        ),
        PartitionView(partition=1, leader=NO_LEADER, leader_epoch=5, replicas=(2, 3, 1), isr=(2,)),
    ),
)
ALIVE = ClusterView(
    brokers={
        BrokerId(each): BrokerView(id=BrokerId(each), host="h", port=9090 + each) for each in (1, 3)
    }
)
CONFIGS = [
    ConfigEntry(name="retention.ms", value="1000", source=ConfigSource.TOPIC_CONFIG),
    ConfigEntry(name="cleanup.policy", value="delete", source=ConfigSource.DEFAULT_CONFIG),
]


def test_describe_shows_missing_replicas_and_overrides_only() -> None:
    document = {"topics": [topic_document(ORDERS, CONFIGS, False, ALIVE)]}
    text = described_topics_text(document)
    assert "retention.ms = 1000" in text
    assert "cleanup.policy" not in text
    table, _, diagnosis = text.partition("  partition 0:")
    assert table.splitlines()[-2:] == [
        "        0  1       1,2,3     1,3  2",
        "        1  none    2,3,1     2    3,1",
    ]
    assert " ".join(diagnosis.split()) == (
        "the replica on broker 2 is missing: the broker is down "
        "partition 1: no leader: its only in-sync replica is on broker 2, which is down. "
        "An unclean election would choose broker 3 and lose all records that it does not have "
        "next: start broker 2 again; if its data is lost for good, accept the loss: "
        "`barnabas elect-leaders --unclean --topic orders:1`"
    )
    everything = topic_document(ORDERS, CONFIGS, True, ALIVE)
    assert everything["configs"] == {"cleanup.policy": "delete", "retention.ms": "1000"}
    assert everything["partition_list"][1]["leader"] is None


def test_topic_id_has_kafka_encoding() -> None:
    known = replace(ORDERS, id=UUID("98061ffd-e3fd-4846-9a59-94b6ac2f1c0e"))
    assert topic_document(known, [], False, ALIVE)["topic_id"] == "mAYf_eP9SEaaWZS2rC8cDg"
    assert topic_document(ORDERS, [], False, ALIVE)["topic_id"] is None


def test_partitions_with_same_problem_share_a_line() -> None:
    (first, _) = ORDERS.partitions
    topic = replace(ORDERS, partitions=tuple(replace(first, partition=index) for index in range(3)))
    text = described_topics_text({"topics": [topic_document(topic, [], False, ALIVE)]})
    assert "  partitions 0 to 2: the replica on broker 2 is missing: the broker is down\n" in text


def test_healthy_topic_has_no_next_step() -> None:
    (first, _) = ORDERS.partitions
    whole = replace(ORDERS, partitions=(replace(first, isr=(1, 2, 3)),))
    document = topic_document(whole, [], False, ALIVE)
    assert document["next_step"] is None
    assert "next" not in described_topics_text({"topics": [document]})
