"""The last replica in sync is gone, and others are there. Who leads then is the topic's choice, and it is told.

strict      nobody leads until the one that has everything is back, and nothing is lost
loose       one that lacks records leads (unclean.leader.election.enable), and what it lacks is lost everywhere
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
LAST, HEIR, OTHER = 1, 2, 3
"""Who is the last in sync, who is elected though it is not, and one more."""
DEADLINE_S = 30.0
SETTINGS = {"zookeeper.session.timeout.ms": "1500", "barnabas.history.topic.enable": "true"}


@pytest.fixture
def cluster(tmp_path: Path, chroot: str) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, chroot, brokers=3, settings=SETTINGS) as running:
        create(running)
        yield running


def create(cluster: ClusterProcesses) -> None:
    replicas = (CreatableReplicaAssignment(0, (LAST, HEIR, OTHER)),)
    allowed = (CreatableTopicConfig("unclean.leader.election.enable", "true"),)
    topics = (
        CreatableTopic(STRICT, -1, -1, replicas),
        CreatableTopic(LOOSE, -1, -1, replicas, allowed),
    )
    with Raw(cluster.brokers[cluster.controller_id].bootstrap_servers) as raw:
        answer = raw.ask(CreateTopicsRequest(topics=topics), CreateTopicsResponse)
        assert [each.error_code for each in answer.topics] == [0, 0], answer


def partition(cluster: ClusterProcesses, broker: int, topic: str) -> PartitionView | None:
    """As this broker knows it."""
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
    """Of leaders, as the history has them: it may hold an event twice, under the same name."""
    found = {}
    try:
        with Cluster(cluster.bootstrap_servers) as client:
            consumer = Consumer(client, {TopicPartition(STATE_CHANGES, 0): Beginning()})
            for record in consumer.records(stop_at_end=True):
                event = json.loads(record.value or b"{}")
                if event.get("topic") == topic and event.get("what") == "partition":
                    found[record.key] = event
    except ApiError:
        return []  # it has no leader yet, either
    return list(found.values())


def test_who_is_out_of_sync_leads_only_where_that_is_allowed_and_it_is_told(
    cluster: ClusterProcesses,
) -> None:
    for topic in (STRICT, LOOSE):
        write(cluster, LAST, topic, b"everywhere")
    for broker in (HEIR, OTHER):
        cluster.brokers[broker].kill()
    for topic in (STRICT, LOOSE):
        eventually(partial(is_alone, cluster, topic), f"it is alone in {topic}", DEADLINE_S)
        write(cluster, LAST, topic, b"only here")
    cluster.brokers[LAST].kill()

    cluster.brokers[HEIR].start()
    eventually(lambda: leader(cluster, HEIR, LOOSE) == HEIR, "an heir leads", DEADLINE_S)
    cluster.brokers[OTHER].start()
    assert leader(cluster, HEIR, STRICT) == -1
    write(cluster, HEIR, LOOSE, b"of the heir")
    with Raw(cluster.brokers[HEIR].bootstrap_servers) as raw:
        assert raw.produce(STRICT, recent_batch_of(b"nobody's")).error_code == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER
        )

    cluster.brokers[LAST].start()
    eventually(lambda: leader(cluster, LAST, STRICT) == LAST, "who has everything", DEADLINE_S)
    for topic, kept in (
        (STRICT, [b"everywhere", b"only here"]),
        (LOOSE, [b"everywhere", b"of the heir"]),
    ):
        for broker in cluster.brokers:
            what = f"broker {broker} holds what there is of {topic}"
            eventually(partial(holds, cluster, broker, topic, kept), what, DEADLINE_S)
    eventually(
        lambda: any(event.get("unclean") for event in elections(cluster, LOOSE)),
        "the history tells of it",
        DEADLINE_S,
    )
    (unclean,) = (event for event in elections(cluster, LOOSE) if event.get("unclean"))
    assert (unclean["leader"], unclean["isr"], unclean["after"]) == (
        HEIR,
        [HEIR],
        "OnlinePartition",
    )
    assert not any(event.get("unclean") for event in elections(cluster, STRICT))
    told = run("topics", "history", LOOSE, f"--bootstrap-servers={cluster.bootstrap_servers}")
    assert "unclean" in told.stdout, told
