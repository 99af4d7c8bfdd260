"""`groups history` and `transactions history`, with real clients and a failover of the coordinator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer

from barnabas import LocalCluster
from barnabas.cli.main import cli
from barnabas.cli.terminal.failure import explain
from barnabas.client.cluster import Cluster
from barnabas.client.group_coordinator import find_coordinator
from barnabas.errors import BarnabasError
from barnabas.wire.messages.find_coordinator import CoordinatorType
from support.waiting import eventually

SETTINGS = {
    "barnabas.history.topic.enable": True,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 300,
    "group.consumer.heartbeat.interval.ms": 100,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 50,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings=SETTINGS) as made:
        made.create_topic("orders", partitions=2, replicas=3)
        yield made


def run(cluster: LocalCluster, *arguments: str) -> str:
    result = CliRunner().invoke(cli, [*arguments, "-b", cluster.bootstrap_servers])
    if isinstance(result.exception, BarnabasError):
        return explain(result.exception)
    assert result.exception is None, result.exception
    return " ".join(result.output.split())


def history(cluster: LocalCluster, *arguments: str) -> list[dict[str, Any]]:
    """The events of a group or transactional id. None before the first one."""
    result = CliRunner().invoke(
        cli, [*arguments, "-o", "json", "-b", cluster.bootstrap_servers], catch_exceptions=True
    )
    if result.exception is not None:
        return []
    events: list[dict[str, Any]] = json.loads(result.stdout)["events"]
    return events


def join(cluster: LocalCluster, group: str, **settings: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "client.id": "app",
            "log_level": 0,
            **settings,
        }
    )
    consumer.subscribe(["orders"])
    return consumer


def poll(*consumers: Consumer) -> bool:
    """Poll, so that the consumers take part in rebalances. Return whether each has partitions."""
    for consumer in consumers:
        consumer.poll(0.01)
    return all(consumer.assignment() for consumer in consumers)


def begin(cluster: LocalCluster, transactional_id: str, timeout_ms: int = 60_000) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "client.id": "loader",
            "log_level": 0,
        }
    )
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", b"1")
    assert producer.flush(10) == 0
    return producer


CLASSIC = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 50}
MODERN = {"group.protocol": "consumer"}


@pytest.mark.parametrize(("name", "settings"), [("classic", CLASSIC), ("modern", MODERN)])
def test_groups_history(cluster: LocalCluster, name: str, settings: dict[str, Any]) -> None:
    number = "generation" if name == "classic" else "epoch"
    first, second = join(cluster, name, **settings), join(cluster, name, **settings)
    try:
        eventually(lambda: poll(first, second), "both members have partitions")
    finally:
        second.close()

    def is_alone() -> bool:
        poll(first)
        return len(first.assignment()) == 2

    eventually(is_alone, "the first member has all partitions")
    first.close()
    run(cluster, "groups", "delete", name, "--yes")
    eventually(
        lambda: (
            [event["after"] for event in history(cluster, "groups", "history", name)][-2:]
            == ["empty", "deleted"]
        ),
        "the end of the group in the history",
    )
    text = run(cluster, "groups", "history", name)
    assert "with 2 members: member" in text
    assert f"rebalanced to {number} " in text
    assert "with 1 member: member" in text
    assert "empty, the last member is gone: member" in text
    assert "deleted: a client requested it" in text


@contextmanager
def following(cluster: LocalCluster, *arguments: str) -> Iterator[IO[str]]:
    """Run a command with --follow, and yield its output."""
    options = ["--follow", "-o", "json", "-b", cluster.bootstrap_servers]
    command = [sys.executable, "-m", "barnabas", *arguments, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.terminate()


def test_transactions_history(cluster: LocalCluster) -> None:
    with following(cluster, "transactions", "history", "t") as new_events:
        check_transactions_history(cluster)
        found = [json.loads(new_events.readline()) for _ in range(5)]
    assert found == history(cluster, "transactions", "history", "t")


def check_transactions_history(cluster: LocalCluster) -> None:
    slow = begin(cluster, "t", timeout_ms=1000)
    eventually(lambda: bool(history(cluster, "transactions", "history", "t")), "the timeout")
    with pytest.raises(KafkaException, match="fenced"):
        slow.commit_transaction(10)
    replaced = begin(cluster, "t")
    begin(cluster, "t").commit_transaction(10)
    with pytest.raises(KafkaException, match="fenced"):
        replaced.commit_transaction(10)
    open_one = begin(cluster, "t")
    run(cluster, "transactions", "abort", "t", "--yes")
    eventually(lambda: len(history(cluster, "transactions", "history", "t")) == 5, "all events")
    events = history(cluster, "transactions", "history", "t")
    assert [(event["after"], event["producer_epoch"], event.get("by")) for event in events] == [
        ("aborted", 0, None),
        ("fenced", 0, None),
        ("aborted", 2, "loader"),
        ("fenced", 2, None),
        ("aborted", 5, "barnabas"),
    ]
    text = run(cluster, "transactions", "history", "t")
    assert "it was open for longer than its timeout, 1000 ms" in text
    assert "EndTxn was rejected: the current epoch is 1" in text
    assert "InitProducerId by loader at 127.0.0.1" in text
    assert "InitProducerId by barnabas at 127.0.0.1" in text
    del open_one


def test_names_without_events(cluster: LocalCluster) -> None:
    begin(cluster, "quiet").commit_transaction(10)
    assert "no events of quiet" in run(cluster, "transactions", "history", "quiet")
    assert "did you mean 'quiet'" in run(cluster, "transactions", "history", "quite")
    assert "there is no group 'absent'" in run(cluster, "groups", "history", "absent")


def test_history_of_topics_ignores_events_of_coordinators(cluster: LocalCluster) -> None:
    for command in (("topics", "history", "orders"), ("lifecycle", "report")):
        assert "malformed" not in run(cluster, *command)


def kill_coordinator(cluster: LocalCluster, name: str, kind: CoordinatorType) -> None:
    with Cluster(cluster.bootstrap_servers) as client:
        host, port = find_coordinator(client, name, kind)
    for number, broker in cluster.brokers.items():
        if broker.address == f"{host}:{port}":
            cluster.kill(number)


def test_failover_of_coordinators(cluster: LocalCluster) -> None:
    """The last test with this cluster: some time after it, leaders move back to the restored brokers."""
    producer = begin(cluster, "moving")
    member = join(cluster, "moving", **CLASSIC)
    eventually(lambda: poll(member), "the member has partitions")
    history_of_group = ("groups", "history", "moving")
    eventually(lambda: bool(history(cluster, *history_of_group)), "the first rebalance")
    kill_coordinator(cluster, "moving", CoordinatorType.GROUP)

    def is_loaded() -> bool:
        poll(member)
        return "loaded by a new coordinator" in run(cluster, *history_of_group)

    eventually(is_loaded, "the new coordinator of the group")
    text = run(cluster, *history_of_group)
    assert "rebalanced to generation 1 with 1 member: member app-" in text
    assert "classic protocol, generation 1 with 1 member" in text
    member.close()
    cluster.restore()
    kill_coordinator(cluster, "moving", CoordinatorType.TRANSACTION)
    history_of_id = ("transactions", "history", "moving")
    eventually(
        lambda: "took over the transaction" in run(cluster, *history_of_id),
        "the new coordinator of the transaction",
    )
    producer.commit_transaction(20)
    assert "1 partition): its producer may continue" in run(cluster, *history_of_id)
    cluster.restore()


def test_nothing_is_recorded_if_the_history_is_disabled(tmp_path_factory: Any) -> None:
    data = tmp_path_factory.mktemp("disabled")
    settings = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 300}
    with LocalCluster(data=data, settings=settings) as cluster:
        cluster.create_topic("orders")
        member = join(cluster, "g", **CLASSIC)
        eventually(lambda: poll(member), "the member has partitions")
        member.close()
        assert "until then nothing is recorded" in run(cluster, "groups", "history", "g")
    assert not list(data.glob("broker-*/coordinator-events-*"))
