"""Our group consumer and our group commands with Apache Kafka as coordinator."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import Consumer as TheirConsumer

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.blocking import Deadline
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning
from barnabas.client.group_assignors import COOPERATIVE_STICKY, RANGE
from barnabas.client.group_consumer import GroupConsumer
from barnabas.client.producer import Producer
from interop.harness.kafka import KafkaBroker
from support.command import run

TIMEOUT_S = 60.0
HEARTBEAT_S = 0.2


def poll_both(ours: GroupConsumer, theirs: TheirConsumer, done: Callable[[], bool]) -> None:
    deadline = Deadline(TIMEOUT_S)
    while not done():
        ours.poll(0.05)
        ours.processed()
        theirs.poll(0.05)
        assert not deadline.passed, f"{ours.assigned} and {theirs.assignment()}"


@pytest.mark.parametrize(
    ("theirs_first", "assignors"),
    [(RANGE, (RANGE, COOPERATIVE_STICKY)), (COOPERATIVE_STICKY, (COOPERATIVE_STICKY,))],
    ids=[RANGE, COOPERATIVE_STICKY],
)
def test_our_member_shares_group_with_other_client(
    kafka: KafkaBroker, theirs_first: str, assignors: Sequence[str]
) -> None:
    topic = group = f"shared-{theirs_first}"
    theirs = TheirConsumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "partition.assignment.strategy": theirs_first,
            "heartbeat.interval.ms": 200,
        }
    )
    with Cluster(kafka.bootstrap_servers) as cluster:
        (made,) = Admin(cluster).create_topics([NewTopic(name=topic, partitions=4)])
        assert made.error is None
        theirs.subscribe([topic])
        try:
            with GroupConsumer(
                cluster, group, [topic], assignors=assignors, heartbeat_s=HEARTBEAT_S
            ) as ours:
                poll_both(ours, theirs, lambda: len(ours.assigned) == 2 == len(theirs.assignment()))
                mine = {partition.partition for partition in ours.assigned}
                assert mine | {found.partition for found in theirs.assignment()} == {0, 1, 2, 3}
            deadline = Deadline(TIMEOUT_S)
            while len(theirs.assignment()) != 4:
                theirs.poll(0.05)
                assert not deadline.passed, "our member left, but they did not get its partitions"
        finally:
            theirs.close()


def test_our_group_commands_work_with_kafka(kafka: KafkaBroker) -> None:
    servers = ("-b", kafka.bootstrap_servers)
    with Cluster(kafka.bootstrap_servers) as cluster:
        (made,) = Admin(cluster).create_topics([NewTopic(name="billed", partitions=2)])
        assert made.error is None
        with Producer(cluster) as producer:
            for number in range(10):
                producer.send("billed", b"%d" % number, partition=number % 2)
        with GroupConsumer(cluster, "billing", ["billed"], start=Beginning()) as consumer:
            deadline = Deadline(TIMEOUT_S)
            while not consumer.at_end:
                consumer.poll(0.2)
                assert not deadline.passed
            consumer.processed()
            refused = run("groups", "delete", "billing", "-y", *servers)
            assert refused.returncode == 1
            assert "NON_EMPTY_GROUP" in refused.stderr
    described = run("groups", "describe", "billing", "-o", "json", *servers)
    (group,) = json.loads(described.stdout)["groups"]
    assert (group["state"], group["lag"]) == ("Empty", 0)
    done = run(
        "groups", "reset", "billing", "--shift-by", "-2", "--all-topics", "--execute", *servers
    )
    assert done.returncode == 0, done.stderr
    described = run("groups", "describe", "billing", "-o", "json", *servers)
    assert json.loads(described.stdout)["groups"][0]["lag"] == 4
    assert run("groups", "delete", "billing", "-y", *servers).returncode == 0
    listed = json.loads(run("groups", "list", "-o", "json", *servers).stdout)
    assert "billing" not in [found["group"] for found in listed["groups"]]
