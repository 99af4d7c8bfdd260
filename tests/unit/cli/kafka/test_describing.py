from dataclasses import replace
from uuid import UUID

import pytest

from barnabas.cli.kafka.describing import (
    EMPTY_ELR,
    DescribeReport,
    PartitionDescription,
    TopicDescription,
    partition_line,
    topic_line,
)
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.wire.messages.list_partition_reassignments import OngoingPartitionReassignment

WHOLE = PartitionDescription(partition=0, leader=1, replicas=(1, 2), isr=(1, 2))
SHORT = PartitionDescription(partition=1, leader=2, replicas=(2, 3), isr=(2,))
DEAD = PartitionDescription(partition=2, leader=None, replicas=(3, 1), isr=(3,))
GONE = PartitionDescription(partition=3, leader=9, replicas=(9, 1), isr=(9, 1))
MOVING = PartitionDescription(
    partition=4,
    leader=1,
    replicas=(3, 1),
    isr=(1,),
    reassignment=OngoingPartitionReassignment(4, (3, 1), (3,), (1,)),
)
TOPIC = TopicDescription(
    name="t",
    id=UUID(int=1),
    partitions=(WHOLE, SHORT, DEAD, GONE),
    configs=[("retention.ms", "1"), ("cleanup.policy", "compact,delete")],
)


def shown_partitions(
    *filters: str, topic: TopicDescription = TOPIC, min_isr: int | None = 2
) -> list[int]:
    report = DescribeReport(ParsedOptions(tuple((name, None) for name in filters)), {1, 2, 3})
    lines = report.lines(topic, elr=EMPTY_ELR, min_isr=min_isr)
    return [int(line.split("\t")[2].removeprefix("Partition: ")) for line in lines]


def test_names_and_values_cannot_add_columns_or_lines() -> None:
    hostile = replace(TOPIC, name="t\tLeader: 7\n")
    assert partition_line(hostile, WHOLE, elr=EMPTY_ELR).startswith(
        "\tTopic: t\\tLeader: 7\\n\tPartition: 0\t"
    )
    topic = replace(TOPIC, name="t\t", configs=[("k\t", "v\n")])
    assert topic_line(topic).startswith("Topic: t\\t\tTopicId: ")
    assert topic_line(topic).endswith("\tConfigs: k\\t=v\\n")


def test_topic_and_partition_lines_are_tab_separated() -> None:
    assert topic_line(TOPIC) == (
        "Topic: t\tTopicId: AAAAAAAAAAAAAAAAAAAAAQ\tPartitionCount: 4\tReplicationFactor: 2"
        "\tConfigs: retention.ms=1,cleanup.policy=compact,delete"
    )
    assert partition_line(TOPIC, WHOLE, elr=EMPTY_ELR) == (
        "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: \tLastKnownElr: "
    )
    assert "\tLeader: none\t" in partition_line(TOPIC, DEAD, elr=EMPTY_ELR)


def test_topic_without_id_and_marked_for_deletion() -> None:
    old = TopicDescription(
        name="t", id=None, partitions=[WHOLE], configs=[], marked_for_deletion=True
    )
    assert topic_line(old) == (
        "Topic: t\tPartitionCount: 1\tReplicationFactor: 2\tConfigs: \tMarkedForDeletion: true"
    )


def test_reassigned_partition_keeps_its_replication_factor() -> None:
    assert "\tAdding Replicas: 3\tRemoving Replicas: 1\t" in partition_line(
        TOPIC, MOVING, elr=EMPTY_ELR
    )
    assert MOVING.replication_factor == 1
    assert not MOVING.is_under_replicated


@pytest.mark.parametrize(
    ("filter_name", "shown"),
    [
        ("under-replicated-partitions", [1, 2]),
        ("unavailable-partitions", [2, 3]),
        ("under-min-isr-partitions", [1, 2]),
        ("at-min-isr-partitions", [0, 3]),
    ],
)
def test_filter_shows_matching_partitions_without_topic(filter_name: str, shown: list[int]) -> None:
    assert shown_partitions(filter_name) == shown


def test_two_filters_are_combined_with_or() -> None:
    assert shown_partitions("under-replicated-partitions", "unavailable-partitions") == [1, 2, 3]


def test_overrides_filter_shows_topics_without_partitions() -> None:
    report = DescribeReport(ParsedOptions((("topics-with-overrides", None),)), ())
    plain = TopicDescription(name="plain", id=None, partitions=[WHOLE], configs=[])
    assert report.lines(TOPIC, elr=EMPTY_ELR) == [topic_line(TOPIC)]
    assert report.lines(plain, elr=EMPTY_ELR) == []
