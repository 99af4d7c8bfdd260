"""Kafka's tool kafka-transactions of 3.9 and 4 with our brokers, and console consumers with both isolation levels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas import LocalCluster, TopicPartition
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import latest_offsets
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.client.transactional_producer import TransactionalProducer
from interop.harness.tools import Outcome, Tools

SETTINGS = {
    "transaction.state.log.num.partitions": 2,
    # Otherwise the brokers prevent hanging transactions.
    "transaction.partition.verification.enable": False,
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with LocalCluster(brokers=2, settings=SETTINGS) as running:
        yield running.bootstrap_servers


@pytest.fixture
def cluster(servers: str) -> Iterator[Cluster]:
    with Cluster(servers) as cluster:
        yield cluster


def run_tool(tools: Tools, servers: str, *arguments: str) -> list[dict[str, str]]:
    """Run kafka-transactions, and return the rows of its table by column."""
    outcome: Outcome = tools.succeed(
        "kafka-transactions", "--bootstrap-server", servers, *arguments
    )
    head, *rows = [line.split() for line in outcome.lines if line.strip()]
    return [dict(zip(head, row, strict=False)) for row in rows]


def make_topic(cluster: Cluster, name: str) -> TopicPartition:
    (made,) = Admin(cluster).create_topics([NewTopic(name=name, partitions=1)])
    assert made.error is None
    return TopicPartition(name, 0)


def test_open_transaction_is_listed_and_described(
    tools: Tools, servers: str, cluster: Cluster
) -> None:
    partition = make_topic(cluster, f"open-{tools.release}")
    name = f"shop-{tools.release}"
    producer = TransactionalProducer(cluster, name)
    producer.begin()
    producer.send(partition.topic, b"open", partition=0)
    producer.flush()
    rows = run_tool(tools, servers, "list")
    (row,) = [row for row in rows if row["TransactionalId"] == name]
    assert row["TransactionState"] == "Ongoing"
    assert row["ProducerId"] == str(producer.link.identity[0])
    (described,) = run_tool(tools, servers, "describe", "--transactional-id", name)
    assert described["TransactionState"] == "Ongoing"
    assert described["TransactionTimeoutMs"] == "60000"
    assert described["TopicPartitions"] == str(partition)
    where = ("--topic", partition.topic, "--partition", "0")
    (found,) = run_tool(tools, servers, "describe-producers", *where)
    assert (found["ProducerId"], found["CurrentTransactionStartOffset"]) == (row["ProducerId"], "0")
    producer.commit()


def test_hanging_transaction_is_found_and_aborted(
    tools: Tools, servers: str, cluster: Cluster
) -> None:
    partition = make_topic(cluster, f"hanging-{tools.release}")
    producer = TransactionalProducer(cluster, f"hanging-{tools.release}")
    producer.begin()
    producer.partitions.add(partition)  # its coordinator does not learn of it
    producer.send(partition.topic, b"hanging", partition=0, timestamp=1_000)
    producer.flush()
    search = ("find-hanging", "--topic", partition.topic)
    (found,) = run_tool(tools, servers, *search)
    assert found["ProducerId"] == str(producer.link.identity[0])
    assert found["StartOffset"] == "0"
    (ours,) = TransactionAdmin(cluster).find_hanging([partition], before_ms=2_000)
    assert (ours.producer_id, ours.start_offset) == (producer.link.identity[0], 0)
    where = ("--topic", partition.topic, "--partition", "0", "--start-offset", "0")
    tools.succeed("kafka-transactions", "--bootstrap-server", servers, "abort", *where)
    assert latest_offsets(cluster, [partition], committed=True)[partition] == 2
    assert run_tool(tools, servers, *search) == []


def test_console_consumer_skips_aborted_records(
    tools: Tools, servers: str, cluster: Cluster
) -> None:
    partition = make_topic(cluster, f"read-{tools.release}")
    producer = TransactionalProducer(cluster, f"reader-{tools.release}")
    for value, is_kept in ((b"dropped", False), (b"kept", True)):
        producer.begin()
        producer.send(partition.topic, value, partition=0)
        producer.flush()
        if is_kept:
            producer.commit()
        else:
            producer.abort()
    read = ("--topic", partition.topic, "--from-beginning", "--timeout-ms", "5000")
    for level, expected in (
        ("read_committed", ["kept"]),
        ("read_uncommitted", ["dropped", "kept"]),
    ):
        outcome = tools.succeed(
            *("kafka-console-consumer", "--bootstrap-server", servers, *read),
            *("--isolation-level", level, "--max-messages", str(len(expected))),
        )
        assert outcome.lines == expected
