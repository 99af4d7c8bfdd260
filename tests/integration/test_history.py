"""The state-change history as read with a Kafka client, with the command line, and from the files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from kafka import KafkaConsumer

from barnabas import LocalCluster, model
from barnabas.cli.main import cli
from barnabas.cli.terminal.failure import explain
from barnabas.client.admin import Admin, NewPartitions, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import latest_offsets
from barnabas.errors import BarnabasError
from barnabas.metadata.topic_names import STATE_CHANGES
from support import waiting

ON = {"barnabas.history.topic.enable": True}
ALONE = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
Event = dict[str, Any]


def eventually(condition: Callable[[], bool], what: str) -> None:
    waiting.eventually(condition, what, seconds=30)


def create(servers: str, name: str, partitions: int = 2, replication_factor: int = -1) -> None:
    with Cluster(servers) as cluster:
        (outcome,) = Admin(cluster).create_topics(
            [NewTopic(name=name, partitions=partitions, replication_factor=replication_factor)]
        )
        assert outcome.error is None, outcome.error


def is_listed(servers: str) -> bool:
    with Cluster(servers) as cluster:
        return any(
            topic.name == STATE_CHANGES and not any(p.is_offline for p in topic.partitions)
            for topic in Admin(cluster).list_topics()
        )


def end_of_history(servers: str) -> int:
    """The end offset. A new leader may not know it yet; this client waits for that, others return an error."""
    partition = model.TopicPartition(STATE_CHANGES, 0)
    with Cluster(servers) as cluster:
        return latest_offsets(cluster, [partition])[partition]


def read(servers: str) -> list[Event]:
    """All events in the topic, in log order."""
    eventually(lambda: is_listed(servers), "the topic of the history")
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", **ALONE})
    try:
        end = end_of_history(servers)
        # Fetch metadata first: without a known leader, librdkafka retries only after half a second.
        consumer.list_topics(STATE_CHANGES, 10)
        consumer.assign([TopicPartition(STATE_CHANGES, 0, OFFSET_BEGINNING)])
        events: list[Event] = []
        while len(events) < end:
            record = consumer.poll(30)
            assert record is not None
            assert record.error() is None, record.error()
            event = json.loads(record.value())
            assert record.key().decode() == f"{event['epoch']}-{event['sequence']}"
            events.append(event)
        return events
    finally:
        consumer.close()


def by_id(events: list[Event]) -> dict[tuple[int, int], Event]:
    return {(event["epoch"], event["sequence"]): event for event in events}


def events_in_files(data: Path) -> dict[tuple[int, int], Event]:
    """The events in the files of all brokers, without a line that is still being written."""
    lines = [
        json.loads(line)
        for path in sorted(data.glob("broker-*/state-changes-*.jsonl"))
        for line in path.read_text().rpartition("\n")[0].splitlines()
    ]
    assert len(by_id(lines)) == len(lines)
    return by_id(lines)


def has_answers(events: list[Event], topic: str) -> bool:
    sent = [event for event in events if topic in event.get("topics", {})]
    answered = {(event["epoch"], event["answers"]) for event in events if "answers" in event}
    return bool(sent) and all((event["epoch"], event["sequence"]) in answered for event in sent)


def is_complete(data: Path, servers: str) -> bool:
    """Whether the topic has all events of the files, except those about the topic itself."""
    published = by_id(read(servers))
    wanted = {key for key, event in events_in_files(data).items() if not event.get("own")}
    return published.keys() == wanted


def run(servers: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "-b", servers])


def run_rejected(servers: str, *arguments: str) -> str:
    error = run(servers, *arguments).exception
    assert isinstance(error, BarnabasError)
    return explain(error)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    data = tmp_path_factory.mktemp("history")
    with LocalCluster(brokers=3, data=data, settings=ON) as cluster:
        create(cluster.bootstrap_servers, "orders", partitions=2, replication_factor=3)
        eventually(
            lambda: has_answers(read(cluster.bootstrap_servers), "orders"), "orders in the history"
        )
        yield cluster


def test_topic_creation_is_recorded_completely(
    cluster: LocalCluster,
) -> None:
    events = read(cluster.bootstrap_servers)
    mine = [event for event in events if event.get("topic") == "orders"]
    partitions = [
        (event["id"], event["before"], event["after"])
        for event in mine
        if event["what"] == "partition"
    ]
    assert partitions[:4] == [
        ("orders-0", "NonExistentPartition", "NewPartition"),
        ("orders-1", "NonExistentPartition", "NewPartition"),
        ("orders-0", "NewPartition", "OnlinePartition"),
        ("orders-1", "NewPartition", "OnlinePartition"),
    ]
    online = next(event for event in mine if event["after"] == "OnlinePartition")
    assert sorted(online["isr"]) == sorted(online["replicas"]) == [1, 2, 3]
    assert online["leader"] == online["replicas"][0]
    assert online["cause"].startswith("TopicsChanged")
    (request,) = [event for event in mine if event["what"] == "topic"]
    assert (
        request["asked_at"] <= min(event["at"] for event in mine) <= online["at"] <= request["at"]
    )
    replicas = [event for event in mine if event["what"] == "replica"]
    assert {(event["partition"], event["replica"]) for event in replicas} == {
        (partition, broker) for partition in (0, 1) for broker in (1, 2, 3)
    }
    requests = [event for event in events if event["what"] == "request" and "topics" in event]
    about = [event["id"] for event in requests if "orders" in event["topics"]]
    assert {f"LeaderAndIsr to {broker}" for broker in (1, 2, 3)} <= set(about)
    assert {f"UpdateMetadata to {broker}" for broker in (1, 2, 3)} <= set(about)


def test_epoch_starts_with_election_and_sequences_have_no_gaps(
    cluster: LocalCluster,
) -> None:
    events = by_id(read(cluster.bootstrap_servers))
    first = events[min(events)]
    assert (first["what"], first["after"]) == ("controller", cluster.controller_id)
    held = events_in_files(cluster.data)
    assert sorted(held) == [(first["epoch"], number) for number in range(1, len(held) + 1)]


def test_events_about_history_topic_are_only_in_files(cluster: LocalCluster) -> None:
    published = read(cluster.bootstrap_servers)
    assert not [event for event in published if event.get("topic") == STATE_CHANGES]
    assert not [event for event in published if "own" in event]
    own = [event for event in events_in_files(cluster.data).values() if event.get("own")]
    assert {event["what"] for event in own} == {"topic", "partition", "replica", "request"}


def test_history_topic_replication_and_retention(cluster: LocalCluster) -> None:
    with Cluster(cluster.bootstrap_servers) as client:
        (view,) = Admin(client).describe_topics([STATE_CHANGES])
        configs = Admin(client).describe_topic_configs([STATE_CHANGES])[STATE_CHANGES]
    assert (len(view.partitions), view.replication_factor) == (1, 3)
    assert {config.name: config.value for config in configs}["retention.ms"] == "604800000"


def test_history_topic_is_internal_in_listings_and_patterns(cluster: LocalCluster) -> None:
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)
    try:
        consumer.subscribe(pattern=".*")
        eventually(
            lambda: bool(consumer.poll(timeout_ms=10) or consumer.subscription()), "a subscription"
        )
        assert consumer.subscription() == {"orders"}
    finally:
        consumer.close()
    assert STATE_CHANGES not in run(cluster.bootstrap_servers, "topics", "list").output
    assert STATE_CHANGES in run(cluster.bootstrap_servers, "topics", "list", "--internal").output


def test_topics_history_prints_text_and_json(cluster: LocalCluster) -> None:
    servers = cluster.bootstrap_servers
    words = run(servers, "topics", "history", "orders").output
    assert f"controller {cluster.controller_id}, epoch " in words
    assert "partition 0: new, on brokers " in words
    assert "partition 1: online, leader " in words
    assert "LeaderAndIsr" not in words
    assert "answered LeaderAndIsr" in run(servers, "topics", "history", "orders", "-v").output
    document = json.loads(run(servers, "topics", "history", "orders", "-o", "json").output)
    assert document["topic"] == "orders"
    assert all(
        event["what"] != "partition" or event["topic"] == "orders" for event in document["events"]
    )
    assert "did you mean 'orders'" in run_rejected(servers, "topics", "history", "ordres")
    nowhere = run_rejected(servers, "topics", "history", "zzzzzz")
    assert "barnabas topics list" in nowhere
    assert "topics create" not in nowhere


def test_added_partitions_are_recorded_with_requester() -> None:
    with LocalCluster(settings=ON) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, "grows")
        with Cluster(servers, client_id="gardener") as client:
            requests = [NewPartitions(name="grows", count=3), NewPartitions(name="absent", count=3)]
            Admin(client).create_partitions(requests, validate_only=True)
            Admin(client).create_partitions(requests)

        def requested() -> list[Event]:
            return [event for event in read(servers) if event["cause"] == "CreatePartitions"]

        eventually(lambda: bool(requested()), "the request is recorded")
        (request,) = requested()
        assert (request["topic"], request["by"], request["partitions"]) == ("grows", "gardener", 3)
        words = run(servers, "topics", "history", "grows").output
        assert "grown to 3 partitions, requested by gardener at 127.0.0.1" in words
        assert "partition 2: online, leader 1" in words


def test_history_is_complete_after_controller_failover(tmp_path: Path) -> None:
    with LocalCluster(brokers=3, data=tmp_path, settings=ON) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, "before", partitions=3, replication_factor=3)
        eventually(lambda: has_answers(read(servers), "before"), "the first topic")
        old = cluster.controller_id
        assert old is not None
        create(servers, "last-words", replication_factor=3)
        cluster.brokers[old].kill()
        eventually(lambda: cluster.controller_id not in (None, old), "a new controller")
        create(servers, "after", replication_factor=2)
        eventually(lambda: has_answers(read(servers), "after"), "events of the new controller")
        elections = [event for event in read(servers) if event["what"] == "controller"]
        assert len({event["epoch"] for event in elections}) == 2
        assert elections[-1]["after"] == cluster.controller_id
        cluster.brokers[old].start()
        eventually(lambda: is_complete(tmp_path, servers), "everything in the files")
        words = run(servers, "topics", "history", "before").output
        assert f"lost its leader {old}" in words or f"(before: {old}) in epoch" in words


def test_request_to_failed_broker_is_recorded_as_failed(
    tmp_path: Path,
) -> None:
    with LocalCluster(brokers=3, data=tmp_path) as cluster:
        silent = next(each for each in cluster.brokers if each != cluster.controller_id)
        cluster.brokers[silent].pause()
        others = [each.address for number, each in cluster.brokers.items() if number != silent]
        create(",".join(others), "orders", partitions=3, replication_factor=2)

        def failures() -> set[str]:
            events = [e for e in events_in_files(tmp_path).values() if "answers" in e]
            return {e["why"] for e in events if e["to"] == silent and e["result"] == "failed"}

        assert not failures()
        cluster.brokers[silent].kill()
        eventually(lambda: bool(failures()), "the result")
        assert failures() == {f"broker {silent} is gone"}


def test_duplicate_events_are_shown_once(tmp_path: Path) -> None:
    with LocalCluster(data=tmp_path, settings=ON) as cluster:
        create(cluster.bootstrap_servers, "orders")
        eventually(lambda: is_complete(tmp_path, cluster.bootstrap_servers), "the history")
    (tmp_path / "broker-1" / "state-changes-published.json").unlink()
    with LocalCluster(data=tmp_path, settings=ON) as cluster:
        servers = cluster.bootstrap_servers
        eventually(lambda: len(read(servers)) > len(by_id(read(servers))), "repetitions")
        eventually(lambda: is_complete(tmp_path, servers), "the history")
        document = json.loads(run(servers, "topics", "history", "orders", "-o", "json").output)
        assert len(by_id(document["events"])) == len(document["events"])


def test_disabled_history_topic_still_writes_files(tmp_path: Path) -> None:
    with LocalCluster(data=tmp_path) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, "orders")
        assert "barnabas.history.topic.enable=false" in run_rejected(
            servers, "topics", "history", "orders"
        )
        assert not is_listed(servers)
        assert "there is no topic 'clicks'" in run_rejected(servers, "topics", "history", "clicks")
    assert any(event.get("topic") == "orders" for event in events_in_files(tmp_path).values())
