"""`barnabas pipeline replay-dead-letters` sends dead letters back, once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from click.testing import CliRunner

from barnabas import LocalCluster
from barnabas.cli.main import cli
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, ConsumedRecord, Consumer
from barnabas.client.offsets import latest_offsets
from barnabas.client.producer import Producer
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.groups.records import read_offset
from barnabas.model import TopicPartition

DEAD = "orders-dead"
OFFSETS_TOPIC = "__consumer_offsets"
TOPICS = {"orders": 2, "others": 1, DEAD: 2}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with LocalCluster(brokers=1) as running, Cluster(running.bootstrap_servers) as client:
        new = [NewTopic(name=name, partitions=count) for name, count in TOPICS.items()]
        assert not [outcome for outcome in Admin(client).create_topics(new) if outcome.error]
        yield client


def bury(cluster: Cluster, value: str, reason: str, topic: str | None = "orders") -> None:
    headers = [
        ("own", b"1"),
        ("__connect.errors.exception.message", reason.encode()),
        ("barnabas.errors.timestamp", b"1700000000000"),
    ]
    if topic is not None:
        headers.append(("__connect.errors.topic", topic.encode()))
    with Producer(cluster) as producer:
        producer.send(DEAD, value.encode(), key=b"k", headers=headers)


def test_only_letters_of_committed_transactions_are_replayed(cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "letters")
    headers = [
        ("__connect.errors.topic", b"others"),
        ("__connect.errors.exception.message", b"old"),
    ]
    for is_commit in (False, True, False):
        producer.begin()
        producer.send(DEAD, str(is_commit).encode(), key=b"k", headers=headers)
        producer.flush()
        if is_commit:
            producer.commit()
        else:
            producer.abort()
    producer.begin()
    producer.send(DEAD, b"open", key=b"k", headers=headers)
    producer.flush()
    expected = [{"topic": "others", "reason": "old", "records": 1}]
    assert replay(cluster)["replayed"] == expected
    assert [record.value for record in records(cluster, "others", 1)] == [b"True"]
    producer.commit()
    assert replay(cluster)["replayed"] == expected
    assert [record.value for record in records(cluster, "others", 2)] == [b"True", b"open"]


def replay(cluster: Cluster, *arguments: str) -> dict[str, Any]:
    host, port = cluster.bootstrap[0]
    command = ["pipeline", "replay-dead-letters", DEAD, "-b", f"{host}:{port}", "-o", "json"]
    result = CliRunner().invoke(cli, [*command, *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def records(cluster: Cluster, topic: str, count: int) -> list[ConsumedRecord]:
    partitions = [TopicPartition(topic, number) for number in range(TOPICS[topic])]
    consumer = Consumer(cluster, dict.fromkeys(partitions, Beginning()))
    found = list(islice(consumer.records(), count))
    assert not consumer.poll(0)
    return sorted(found, key=lambda record: record.value or b"")


def test_dead_letters_are_replayed_once(cluster: Cluster) -> None:
    bury(cluster, "a", "too old")
    bury(cluster, "b", "too young")
    bury(cluster, "c", "too old", "others")
    expected = [
        {"topic": "orders", "reason": "too old", "records": 1},
        {"topic": "orders", "reason": "too young", "records": 1},
        {"topic": "others", "reason": "too old", "records": 1},
    ]
    assert replay(cluster, "--dry-run")["replayed"] == expected
    assert replay(cluster)["replayed"] == expected
    assert replay(cluster)["replayed"] == []
    first, second = records(cluster, "orders", 2)
    assert (first.key, first.value, first.timestamp) == (b"k", b"a", 1_700_000_000_000)
    assert first.headers == (("own", b"1"),)
    assert second.value == b"b"
    assert [record.value for record in records(cluster, "others", 1)] == [b"c"]

    bury(cluster, "d", "too young")
    found = replay(cluster, "--reason", "^too old$")
    assert (found["replayed"], found["left_out"]) == ([], 1)
    found = replay(cluster, "--reason", "young", "--from-beginning", "--to", "others")
    assert [each["records"] for each in found["replayed"]] == [2]


def test_progress_of_replays_does_not_expire(cluster: Cluster) -> None:
    bury(cluster, "a", "old")
    replay(cluster)
    offsets = cluster.topic(OFFSETS_TOPIC).partitions
    places = [TopicPartition(OFFSETS_TOPIC, each.partition) for each in offsets]
    stored = Consumer(cluster, dict.fromkeys(places, Beginning())).records(stop_at_end=True)
    values = [read_offset(record.value) for record in stored if record.value]
    assert len(values) == TOPICS[DEAD]
    years = 365 * 86_400_000
    assert all(each.expire_timestamp > each.commit_timestamp + 50 * years for each in values)
    assert replay(cluster)["replayed"] == []


def test_letter_of_the_dead_letter_topic_itself_is_refused(cluster: Cluster) -> None:
    bury(cluster, "a", "old", DEAD)
    host, port = cluster.bootstrap[0]
    command = ["pipeline", "replay-dead-letters", DEAD, "-b", f"{host}:{port}"]
    result = CliRunner().invoke(cli, command)
    assert "offset 0: came from this topic itself; --to NAME" in str(result.exception)


def test_nothing_is_sent_if_a_topic_is_missing(cluster: Cluster) -> None:
    bury(cluster, "a", "old")
    bury(cluster, "b", "old", "removed")
    host, port = cluster.bootstrap[0]
    for arguments in ([], ["--dry-run"], ["--to", "removed"]):
        command = ["pipeline", "replay-dead-letters", DEAD, "-b", f"{host}:{port}", *arguments]
        result = CliRunner().invoke(cli, command)
        assert "there is no topic 'removed'" in str(result.exception)
    assert replay(cluster, "--to", "others")["replayed"][0]["records"] == 2
    assert [each.value for each in records(cluster, "others", 2)] == [b"a", b"b"]
    partitions = [TopicPartition("orders", number) for number in range(TOPICS["orders"])]
    assert not any(latest_offsets(cluster, partitions).values())


def test_record_without_source_needs_a_target(cluster: Cluster) -> None:
    bury(cluster, "a", "", topic=None)
    host, port = cluster.bootstrap[0]

    def rejection(*arguments: str) -> str:
        command = ["pipeline", "replay-dead-letters", "-b", f"{host}:{port}", *arguments]
        result = CliRunner().invoke(cli, command)
        return str(result.exception)

    assert "has no header __connect.errors.topic; --to NAME sends all" in rejection(DEAD)
    assert "--to: is the topic of the dead letters" in rejection(DEAD, "--to", DEAD)
    assert "there is no topic 'orders-ded'" in rejection("orders-ded")
    assert "--reason: '(' is not a regular expression" in rejection(DEAD, "--reason", "(")
    assert replay(cluster, "--to", "orders")["replayed"][0]["records"] == 1
    assert records(cluster, "orders", 1)[0].value == b"a"
