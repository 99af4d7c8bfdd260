"""Our group consumer on our brokers: members join and leave, coordinators fail, and no record is lost or read twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from barnabas import LocalCluster
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.blocking import Deadline
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.group_assignors import COOPERATIVE_STICKY, RANGE
from barnabas.client.group_consumer import GroupConsumer
from barnabas.client.group_coordinator import find_coordinator
from barnabas.client.producer import Producer
from barnabas.model import TopicPartition

TIMEOUT_S = 60.0
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
RECORDS = 12


def poll(done: Callable[[list[int]], bool], *consumers: GroupConsumer) -> list[int]:
    """Poll the consumers in turn until the records found satisfy `done`."""
    deadline = Deadline(TIMEOUT_S)
    found: list[int] = []
    while not done(found):
        for consumer in consumers:
            found += [int(record.value or b"") for record in consumer.poll(0.05)]
            consumer.processed()
        assert not deadline.passed, [consumer.assigned for consumer in consumers]
    return found


def write(cluster: Cluster, numbers: range) -> None:
    with Producer(cluster) as producer:
        for number in numbers:
            producer.send("orders", b"%d" % number, partition=number % 3)


def test_group_survives_coordinator_failure() -> None:
    with (
        LocalCluster(brokers=3, settings=SETTINGS) as brokers,
        Cluster(brokers.bootstrap_servers) as cluster,
    ):
        topic = NewTopic(name="orders", partitions=3, replication_factor=3)
        (made,) = Admin(cluster).create_topics([topic])
        assert made.error is None
        write(cluster, range(RECORDS))
        with GroupConsumer(
            cluster, "billing", ["orders"], start=Beginning(), heartbeat_s=0.1
        ) as consumer:
            found = poll(lambda _: consumer.at_end, consumer)
            consumer.commit()
            assert sorted(found) == list(range(RECORDS))
            before = find_coordinator(cluster, "billing")
            (coordinator,) = (
                broker
                for broker in brokers.brokers.values()
                if broker.address == f"{before[0]}:{before[1]}"
            )
            coordinator.kill()
            write(cluster, range(RECORDS, 2 * RECORDS))
            again = poll(lambda found: len(found) == RECORDS, consumer)
            assert sorted(again) == list(range(RECORDS, 2 * RECORDS))
        assert find_coordinator(cluster, "billing") != before
        committed = GroupAdmin(cluster).committed_offsets("billing")
        assert sum(offset.offset for offset in committed.values()) == 2 * RECORDS


def test_cooperative_members_keep_unrevoked_partitions() -> None:
    revoked: list[TopicPartition] = []
    with (
        LocalCluster(settings=SETTINGS) as brokers,
        Cluster(brokers.bootstrap_servers) as one,
        Cluster(brokers.bootstrap_servers) as two,
    ):
        (made,) = Admin(one).create_topics([NewTopic(name="orders", partitions=3)])
        assert made.error is None
        sticky = (COOPERATIVE_STICKY,)
        with GroupConsumer(
            one,
            "billing",
            ["orders"],
            assignors=sticky,
            heartbeat_s=0.05,
            on_revoked=revoked.extend,
        ) as first:
            poll(lambda _: len(first.assigned) == 3, first)
            with GroupConsumer(
                two, "billing", ["orders"], assignors=sticky, heartbeat_s=0.05
            ) as second:
                poll(
                    lambda _: len(first.assigned) == 2 and len(second.assigned) == 1, first, second
                )
                assert revoked == second.assigned
            poll(lambda _: len(first.assigned) == 3, first)
            assert len(revoked) == 1


@pytest.mark.parametrize("assignors", [(RANGE,), (COOPERATIVE_STICKY,)], ids=lambda each: each[0])
def test_every_record_is_read_once_during_membership_changes(assignors: tuple[str, ...]) -> None:
    with LocalCluster(settings=SETTINGS) as brokers, ExitStack() as stack:

        def cluster() -> Cluster:
            return stack.enter_context(Cluster(brokers.bootstrap_servers))

        def member() -> GroupConsumer:
            return GroupConsumer(
                cluster(),
                "billing",
                ["orders"],
                start=Beginning(),
                assignors=assignors,
                heartbeat_s=0.05,
            )

        writer = cluster()
        (made,) = Admin(writer).create_topics([NewTopic(name="orders", partitions=3)])
        assert made.error is None
        found: list[int] = []
        members: list[GroupConsumer] = []
        changes = ["join", "join", "join", "leave", "leave"]
        for step, change in enumerate(changes):
            if change == "join":
                members.append(member())
            else:
                members.pop(0).close()
            write(writer, range(step * RECORDS, (step + 1) * RECORDS))
            found += poll(
                lambda new: len(new) >= RECORDS and are_partitions_shared(members), *members
            )
        for each in members:
            each.close()
        assert sorted(found) == list(range(len(changes) * RECORDS))
        committed = GroupAdmin(writer).committed_offsets("billing")
        assert sum(offset.offset for offset in committed.values()) == len(changes) * RECORDS


def are_partitions_shared(members: list[GroupConsumer]) -> bool:
    count = sum(len(each.assigned) for each in members)
    return all(each.is_settled for each in members) and count == 3
