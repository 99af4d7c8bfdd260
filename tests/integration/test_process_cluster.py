"""Three broker processes with a real ZooKeeper: killed with SIGKILL and paused with SIGSTOP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from support.cluster import ClusterProcesses
from support.command import run
from support.waiting import eventually

DEADLINE_S = 30.0
# The topic of the history is created late, with three replicas. It would keep a broker from being decommissioned.
SETTINGS = {"zookeeper.session.timeout.ms": "4000", "barnabas.history.topic.enable": "false"}


@pytest.fixture
def cluster(tmp_path: Path, chroot: str) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, chroot, brokers=3, settings=SETTINGS) as running:
        yield running


def servers_without(cluster: ClusterProcesses, *numbers: int) -> str:
    return ",".join(
        broker.bootstrap_servers
        for number, broker in cluster.brokers.items()
        if number not in numbers
    )


def controller_seen_by(cluster: ClusterProcesses, number: int) -> int:
    view = cluster.brokers[number].view()
    return -1 if view is None else view.controller


def create(servers: str, name: str, replicas: int) -> None:
    with Cluster(servers) as client:
        wanted = NewTopic(name=name, partitions=3, replication_factor=replicas)
        (outcome,) = Admin(client).create_topics([wanted])
        assert outcome.error is None, outcome.error


def is_healthy(servers: str, name: str) -> bool:
    with Cluster(servers) as client:
        (topic,) = Admin(client).describe_topics([name])
        return not any(
            partition.is_offline or partition.is_under_replicated for partition in topic.partitions
        )


def test_new_controller_creates_topics_after_kill(
    cluster: ClusterProcesses,
) -> None:
    first = cluster.controller_id
    witness = next(number for number in cluster.brokers if number != first)
    create(cluster.bootstrap_servers, "before", replicas=3)
    cluster.brokers[first].kill()
    eventually(
        lambda: controller_seen_by(cluster, witness) not in (-1, first), "another", DEADLINE_S
    )
    alive = servers_without(cluster, first)
    create(alive, "after", replicas=2)
    with Cluster(alive) as client, Producer(client) as producer:
        producer.send("before", b"hello")
        assert producer.flush()

    cluster.brokers[first].start()
    cluster.wait_until_ready()
    eventually(lambda: is_healthy(cluster.bootstrap_servers, "before"), "in sync", DEADLINE_S)


def test_resumed_former_controller_steps_down(cluster: ClusterProcesses) -> None:
    first = cluster.controller_id
    witness = next(number for number in cluster.brokers if number != first)
    cluster.brokers[first].pause()
    eventually(
        lambda: controller_seen_by(cluster, witness) not in (-1, first), "another", DEADLINE_S
    )
    cluster.brokers[first].resume()
    eventually(
        lambda: (
            controller_seen_by(cluster, first) == controller_seen_by(cluster, witness)
            and cluster.is_ready()
        ),
        "the former controller knows the new one",
        DEADLINE_S,
    )
    create(cluster.bootstrap_servers, "letters", replicas=3)


def test_decommissioned_and_stopped_brokers_exit_with_code_0(cluster: ClusterProcesses) -> None:
    create(cluster.bootstrap_servers, "letters", replicas=3)
    first = cluster.controller_id
    # The stopped broker is the only bootstrap server: the command must continue with the others.
    command = ("brokers", "decommission", str(first), "--stop", "--yes")
    refused = run(*command, "-b", cluster.brokers[first].bootstrap_servers)
    assert "has 3 replicas, but only 2 brokers would be left for them" in refused.stderr
    hint = re.search("first run `barnabas (.*)`", refused.stderr)
    assert hint is not None, refused.stderr
    assert run(*hint[1].split(), "--yes").returncode == 0
    ended = run(*command, "-b", cluster.brokers[first].bootstrap_servers)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith(f"broker {first} is empty and stopped\n")
    assert cluster.brokers[first].wait() == 0
    rest = [number for number in cluster.brokers if number != first]
    assert is_healthy(cluster.brokers[rest[0]].bootstrap_servers, "letters")
    again = run(*command, "-b", cluster.brokers[rest[0]].bootstrap_servers)
    assert again.returncode == 1
    assert f"broker {first} is not alive and has no replica" in again.stderr

    eventually(lambda: controller_seen_by(cluster, rest[0]) in rest, "another", DEADLINE_S)
    last = controller_seen_by(cluster, rest[0])
    for number in sorted(rest, key=lambda each: each == last):
        assert cluster.brokers[number].stop() == 0, cluster.brokers[number].log()[-2000:]
