"""The last in-sync replica fails while others are online. The topic's setting decides the election; history records it.

strict      no leader until the last in-sync replica is back, and no record is lost
loose       an out-of-sync replica leads (unclean.leader.election.enable), and the records it lacks are lost
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Consumer
from barnabas.client.view import PartitionView
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import TopicPartition
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from support.cluster import ClusterProcesses
from support.command import run
from support.waiting import eventually
from tests.compatibility.raw import Raw, recent_batch_of, values_in

STRICT, LOOSE = "strict", "loose"
LAST, SUCCESSOR, OTHER = 1, 2, 3
"""The last in-sync replica, the out-of-sync replica that is elected, and a third replica."""
DEADLINE_S = 30.0
SETTINGS = {"zookeeper.session.timeout.ms": "1500", "barnabas.history.topic.enable": "true"}


@pytest.fixture
def cluster(tmp_path: Path, chroot: str) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, chroot, brokers=3, settings=SETTINGS) as running:
        create(running)
        yield running


def create(cluster: ClusterProcesses) -> None:
    replicas = (CreatableReplicaAssignment(0, (LAST, SUCCESSOR, OTHER)),)
    allowed = (CreatableTopicConfig("unclean.leader.election.enable", "true"),)
    topics = (
        CreatableTopic(STRICT, -1, -1, replicas),
        CreatableTopic(LOOSE, -1, -1, replicas, allowed),
    )
    with Raw(cluster.brokers[cluster.controller_id].bootstrap_servers) as raw:
        answer = raw.ask(CreateTopicsRequest(topics=topics), CreateTopicsResponse)
        assert [each.error_code for each in answer.topics] == [0, 0], answer


def partition(cluster: ClusterProcesses, broker: int, topic: str) -> PartitionView | None:
    """The partition as this broker knows it."""
    view = cluster.brokers[broker].view()
    return None if view is None or topic not in view.topics else view.topics[topic].partitions[0]


def leader(cluster: ClusterProcesses, broker: int, topic: str) -> int | None:
    found = partition(cluster, broker, topic)
    return None if found is None else found.leader


def write(cluster: ClusterProcesses, broker: int, topic: str, value: bytes) -> None:
    with Raw(cluster.brokers[broker].bootstrap_servers) as raw:
        eventually(
            lambda: raw.produce(topic, recent_batch_of(value)).error_code == ErrorCode.NONE,
            f"{value!r} is acknowledged",
            DEADLINE_S,
        )


def read(cluster: ClusterProcesses, broker: int, topic: str) -> list[bytes | None]:
    with Raw(cluster.brokers[broker].bootstrap_servers) as raw:
        return values_in(raw.fetch(topic, 0))


def is_alone(cluster: ClusterProcesses, topic: str) -> bool:
    found = partition(cluster, LAST, topic)
    return found is not None and found.isr == (LAST,)


def holds(cluster: ClusterProcesses, broker: int, topic: str, values: list[bytes]) -> bool:
    return read(cluster, broker, topic) == values


def elections(cluster: ClusterProcesses, topic: str) -> list[dict[str, Any]]:
    """Leader elections in the history, without duplicate events."""
    found = {}
    try:
        with Cluster(cluster.bootstrap_servers) as client:
            consumer = Consumer(client, {TopicPartition(STATE_CHANGES, 0): Beginning()})
            for record in consumer.records(stop_at_end=True):
                event = json.loads(record.value or b"{}")
                if event.get("topic") == topic and event.get("what") == "partition":
                    found[record.key] = event
    except ApiError:
        return []  # the history topic has no leader yet
    return list(found.values())


def test_unclean_election_follows_topic_setting_and_is_recorded(
    cluster: ClusterProcesses,
) -> None:
    for topic in (STRICT, LOOSE):
        write(cluster, LAST, topic, b"everywhere")
    for broker in (SUCCESSOR, OTHER):
        cluster.brokers[broker].kill()
    for topic in (STRICT, LOOSE):
        eventually(partial(is_alone, cluster, topic), f"one in-sync replica of {topic}", DEADLINE_S)
        write(cluster, LAST, topic, b"only here")
    cluster.brokers[LAST].kill()

    cluster.brokers[SUCCESSOR].start()
    eventually(lambda: leader(cluster, SUCCESSOR, LOOSE) == SUCCESSOR, "new leader", DEADLINE_S)
    cluster.brokers[OTHER].start()
    assert leader(cluster, SUCCESSOR, STRICT) == -1
    write(cluster, SUCCESSOR, LOOSE, b"of the heir")
    with Raw(cluster.brokers[SUCCESSOR].bootstrap_servers) as raw:
        assert raw.produce(STRICT, recent_batch_of(b"nobody's")).error_code == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER
        )

    cluster.brokers[LAST].start()
    eventually(
        lambda: leader(cluster, LAST, STRICT) == LAST, "the in-sync replica leads", DEADLINE_S
    )
    for topic, kept in (
        (STRICT, [b"everywhere", b"only here"]),
        (LOOSE, [b"everywhere", b"of the heir"]),
    ):
        for broker in cluster.brokers:
            what = f"broker {broker} holds all records of {topic}"
            eventually(partial(holds, cluster, broker, topic, kept), what, DEADLINE_S)
    eventually(
        lambda: any(event.get("unclean") for event in elections(cluster, LOOSE)),
        "the history records it",
        DEADLINE_S,
    )
    (unclean,) = (event for event in elections(cluster, LOOSE) if event.get("unclean"))
    assert (unclean["leader"], unclean["isr"], unclean["after"]) == (
        SUCCESSOR,
        [SUCCESSOR],
        "OnlinePartition",
    )
    assert not any(event.get("unclean") for event in elections(cluster, STRICT))
    history = run("topics", "history", LOOSE, f"--bootstrap-servers={cluster.bootstrap_servers}")
    assert "unclean" in history.stdout, history
