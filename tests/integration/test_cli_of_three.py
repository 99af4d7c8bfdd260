"""The command line beside three brokers, one of which goes down: what it says of them, and what it proposes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas import LocalCluster
from tests.broker_process import eventually, run


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings={"barnabas.history.topic.enable": True}) as running:
        yield running


def ok(cluster: LocalCluster, *arguments: str) -> str:
    ended = run(*arguments, "-b", cluster.bootstrap_servers)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def document(cluster: LocalCluster, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ok(cluster, *arguments, "-o", "json"))
    return found


def test_brokers_the_controller_and_topics_are_shown(cluster: LocalCluster) -> None:
    created = ok(
        cluster, *("topics", "create", "whole", "--partitions", "6", "--replication-factor", "3")
    )
    assert created == "created topic whole: 6 partitions, replication factor 3\n"

    brokers = document(cluster, "brokers", "list")
    assert brokers["controller"] == cluster.controller_id
    assert [row["broker"] for row in brokers["brokers"]] == [1, 2, 3]
    assert all(row["alive"] and row["in_sync"] >= 6 for row in brokers["brokers"])
    assert sum(row["leads"] for row in brokers["brokers"]) >= 6

    listed = ok(cluster, "topics", "list").splitlines()
    assert any(line.split() == ["whole", "6", "3", "ok"] for line in listed)
    described = document(cluster, "topics", "describe", "whole")
    (topic,) = described["topics"]
    assert {partition["leader"] for partition in topic["partition_list"]} == {1, 2, 3}
    assert topic["next_step"] is None


def test_the_controller_is_shown_with_its_epoch(cluster: LocalCluster) -> None:
    ok(cluster, "topics", "create", "noticed", "--if-not-exists")

    def shown() -> dict[str, Any]:
        return document(cluster, "controller", "show")

    eventually(lambda: shown()["epoch"] == 1, "its history has been published", seconds=20)
    assert shown()["controller"] == cluster.controller_id
    assert ok(cluster, "controller", "show").startswith(
        f"broker {cluster.controller_id} at 127.0.0.1:"
    )


def test_what_a_dead_broker_takes_with_it_is_told_in_words() -> None:
    with LocalCluster(brokers=3) as cluster:
        in_sync = ("--config", "min.insync.replicas=3")
        ok(
            cluster,
            *("topics", "create", "copied", "--replica-assignment", "2:1:3,1:3:2"),
            *in_sync,
        )
        ok(cluster, "topics", "create", "alone", "--replica-assignment", "2,1")
        cluster.brokers[2].kill()
        alive = f"{cluster.brokers[1].address},{cluster.brokers[3].address}"

        def lines(*arguments: str) -> list[str]:
            return run(*arguments, "-b", alive).stdout.splitlines()

        eventually(
            lambda: "1 offline" in lines("topics", "describe", "alone")[0], "known", seconds=20
        )
        described = lines("topics", "describe", "alone")
        assert all(len(line) <= 100 for line in described)
        assert " ".join(" ".join(described).split()).endswith(
            "partition 0: no leader: broker 2, the only one in sync, is not alive "
            f"next: start broker 2 again; `barnabas brokers list -b {alive}` shows who is alive"
        )
        described = lines("topics", "describe", "copied")
        assert described[0].endswith("2 under-replicated")
        assert all(len(line) <= 100 for line in described)
        assert " ".join(" ".join(described).split()).endswith(
            "partitions 0 and 1: broker 2 is not alive; writes with acks=all are refused "
            "(2 in sync, min.insync.replicas=3) "
            f"next: `barnabas brokers list -b {alive}` shows who is alive"
        )
        assert lines("brokers", "list")[2].split()[:3] == ["2", "not", "alive"]

        cluster.brokers[2].start()
        eventually(
            lambda: all(line.endswith("ok") for line in lines("topics", "list")[1:]),
            "all is well again",
            seconds=20,
        )
