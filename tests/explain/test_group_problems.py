"""Groups without members, with stuck rebalances, lag, invalid offsets, or without a coordinator."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from barnabas import LocalCluster
from barnabas.cli.explain.transaction_gather import gather_open_transactions
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.group_consumer import GroupConsumer
from barnabas.client.group_coordinator import ask_coordinator
from barnabas.client.group_member import GroupMembership
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.errors import ErrorCode
from barnabas.explain.finding import Cause
from barnabas.explain.text import cause_text
from barnabas.groups.loading import GroupLoader
from barnabas.model import TopicPartition
from barnabas.replication.internal_topic_loader import PartitionLoad
from barnabas.wire.messages.join_group import JoinGroupResponse
from support.waiting import eventually
from tests.explain.live import DEADLINE_S, SETTINGS, LiveCluster

READ = TopicPartition("read", 0)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """Two brokers. The topic of the offsets has one partition, on one of them."""
    data = tmp_path_factory.mktemp("groups")
    settings = {
        **SETTINGS,
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
    }
    with LocalCluster(brokers=2, data=data, settings=settings) as cluster:
        live = LiveCluster(cluster, data)
        live.create("read", [1, 2])
        live.produce("read", 10, acks=-1, age_s=3600)
        yield live


def member(cluster: Cluster, group: str, *, commit_s: float | None = 0.05) -> GroupConsumer:
    return GroupConsumer(
        cluster, group, ["read"], start=Beginning(), commit_s=commit_s, heartbeat_s=0.1
    )


def join(consumer: GroupConsumer) -> None:
    def is_settled() -> bool:
        consumer.poll(0.1)
        return consumer.is_settled

    eventually(is_settled, "the member has its partitions", DEADLINE_S)


def test_group_without_members(live: LiveCluster) -> None:
    with live.client() as client:
        GroupAdmin(client).set_offsets("gone", {READ: 4})
    found = live.expect_group("gone", Cause.GROUP_EMPTY)
    assert found.lag == 6
    ended = live.run("groups", "explain", "gone")
    assert "no consumer is running: 6 records wait" in ended.stdout
    unknown = live.run("groups", "explain", "gon")
    assert "did you mean 'gone'?" in unknown.stderr


def test_offsets_out_of_range(live: LiveCluster) -> None:
    live.create("cut", [1, 2])
    live.produce("cut", 10, acks=-1)
    cut = TopicPartition("cut", 0)
    with live.client() as client:
        GroupAdmin(client).set_offsets("early", {cut: 2})
        GroupAdmin(client).set_offsets("late", {cut: 99})
        Admin(client).delete_records({cut: 5})
    found = live.expect_group("early", Cause.OFFSET_BELOW_START)
    assert "offset 2 is out of range: the log starts at 5. 3 records" in cause_text(found)
    live.expect_group("late", Cause.OFFSET_BEYOND_END)


def test_member_that_does_not_commit(live: LiveCluster) -> None:
    with live.client() as client, member(client, "forgetful", commit_s=None) as consumer:
        join(consumer)
        found = live.expect_group("forgetful", Cause.NEVER_COMMITTED, stalled_after_s=0)
        assert found.lag == 10
        consumer.commit({READ: 3})
        live.expect_group("forgetful", Cause.NOT_COMMITTING, stalled_after_s=0)
        found = live.expect_group("forgetful", Cause.LAGGING, stalled_after_s=60)
        assert found.lag == 7
        # Consumers commit every few seconds: uncommitted records are normal until they are old.
        assert live.explain_group("forgetful", stalled_after_s=7200) == []


def test_group_waits_for_transaction_but_not_for_its_marker(live: LiveCluster) -> None:
    live.create("paid", [1, 2])
    paid = TopicPartition("paid", 0)
    with (
        live.client() as client,
        live.client() as reader,
        GroupConsumer(reader, "cashier", ["paid"], start=Beginning(), commit_s=None) as consumer,
    ):
        producer = TransactionalProducer(client, "shop-1")
        producer.begin()
        producer.send("paid", b"one", partition=0, timestamp=1_000)
        producer.flush()
        join(consumer)
        consumer.commit({paid: 0})
        view = gather_open_transactions(client, client.refresh(None), ["paid"], ())
        assert view[paid].transactional_id == "shop-1"

        def open_offset() -> int | None:
            """None if a broker did not answer in time."""
            facts = live.group_facts("cashier", stalled_after_s=0)
            found = facts.cluster.transactions.get(paid)
            return None if found is None else found.start_offset

        eventually(lambda: open_offset() == 0, "the facts have the transaction", DEADLINE_S)
        producer.commit()
        consumer.commit({paid: 1})  # the marker is at offset 1

        def is_healthy() -> bool:
            return live.explain_group("cashier", stalled_after_s=0) == []

        eventually(is_healthy, "only the marker is left", DEADLINE_S)


def test_idle_member(live: LiveCluster) -> None:
    with (
        live.client() as client,
        live.client() as second,
        member(client, "crowded") as one,
        member(second, "crowded") as two,
    ):

        def is_settled() -> bool:
            one.poll(0.05)
            two.poll(0.05)
            return one.is_settled and two.is_settled

        eventually(is_settled, "both have joined", DEADLINE_S)
        live.expect_group("crowded", Cause.IDLE_MEMBERS)


def test_rebalance_waits_for_member(live: LiveCluster) -> None:
    with live.client() as client, live.client() as second, member(client, "torn") as busy:
        join(busy)
        busy_id = busy.member.member_id
        with member(second, "torn") as new:
            new.poll(0.2)  # the other member does not poll, so it does not rejoin
            found = live.expect_group("torn", Cause.GROUP_WAITS_FOR_MEMBERS)
            assert found.values["waits_count"] == 1
            assert found.values["timeout_ms"] == 60_000
            assert "waits for test at" in cause_text(found), busy_id


def test_rebalance_waits_for_assignment(live: LiveCluster) -> None:
    """The first member has joined, but it does not send the assignment."""
    member = GroupMembership(
        *("undecided", ["read"]),
        assignors=["range"],
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
    )
    with live.client() as client:
        joined = ask_coordinator(
            *(client, "undecided", member.join(()), JoinGroupResponse),
            codes=lambda response: [response.error_code],
            max_version=3,  # later versions ask the member to repeat the request with its id
        )
    assert joined.error_code == ErrorCode.NONE
    live.expect_group("undecided", Cause.GROUP_WAITS_FOR_ASSIGNMENT)


def test_offline_partition(live: LiveCluster) -> None:
    (offsets,) = live.partitions("__consumer_offsets")
    victim = next(each for each in live.cluster.brokers if each != offsets.leader)
    live.create("single", [victim])
    with live.client() as client:
        GroupAdmin(client).set_offsets("blocked", {TopicPartition("single", 0): 0})
    live.cluster.brokers[victim].pause()
    found = live.expect_group("blocked", Cause.READS_FROM_SILENT_BROKER)
    assert found.brokers == (victim,)
    live.cluster.brokers[victim].kill()
    found = live.expect_group("blocked", Cause.READS_OFFLINE_PARTITION)
    assert found.brokers == (victim,)
    live.restore()


def test_coordinator_pauses_crashes_and_loads(
    live: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is deleted meanwhile leaves its offsets in the group."""
    (offsets,) = live.partitions("__consumer_offsets")
    coordinator = live.cluster.brokers[offsets.leader]
    other = next(each for each in live.cluster.brokers if each != coordinator.id)
    live.create("short", [other])
    with live.client() as client:
        GroupAdmin(client).set_offsets("any", {TopicPartition("short", 0): 0})
    coordinator.pause()
    live.expect_group("any", Cause.COORDINATOR_SILENT)
    coordinator.kill()
    found = live.expect_group("any", Cause.COORDINATOR_OFFLINE)
    assert found.brokers == (coordinator.id,)
    live.delete("short")
    loads, may_load = GroupLoader.load, threading.Event()

    async def load_later(loader: GroupLoader, load: PartitionLoad) -> None:
        while not may_load.is_set():
            await asyncio.sleep(0.01)
        await loads(loader, load)

    monkeypatch.setattr(GroupLoader, "load", load_later)
    try:
        coordinator.start()
        live.expect_group("any", Cause.COORDINATOR_LOADING)
    finally:
        may_load.set()
    live.restore()
    live.expect_group("any", Cause.READS_DELETED_TOPIC)
