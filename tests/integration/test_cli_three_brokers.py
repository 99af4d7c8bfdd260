"""The command line with three brokers, one of which fails: their state, and the suggested next steps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas import LocalCluster
from support.command import COMMAND, run
from support.process import ENVIRONMENT
from support.waiting import eventually
from tests.compatibility.raw import wait_until_known
from tests.terminal import on_terminal


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings={"barnabas.history.topic.enable": True}) as running:
        yield running


def ok(cluster: LocalCluster, *arguments: str) -> str:
    ended = run(*arguments, "-b", cluster.bootstrap_servers)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def create(cluster: LocalCluster, name: str, *arguments: str) -> str:
    """Create a topic and wait until all brokers know it; returns the output."""
    output = ok(cluster, "topics", "create", name, *arguments)
    wait_until_known([broker.address for broker in cluster.brokers.values()], name)
    return output


def document(cluster: LocalCluster, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ok(cluster, *arguments, "-o", "json"))
    return found


def test_brokers_controller_and_topics_are_listed(cluster: LocalCluster) -> None:
    created = create(cluster, "whole", "--partitions", "6", "--replication-factor", "3")
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


def test_controller_show_includes_epoch(cluster: LocalCluster) -> None:
    ok(cluster, "topics", "create", "noticed", "--if-not-exists")

    def shown() -> dict[str, Any]:
        return document(cluster, "controller", "show")

    eventually(lambda: shown()["epoch"] == 1, "the history is published")
    assert shown()["controller"] == cluster.controller_id
    assert ok(cluster, "controller", "show").startswith(
        f"broker {cluster.controller_id} at 127.0.0.1:"
    )


def test_failed_broker_is_explained_in_topic_state() -> None:
    with LocalCluster(brokers=3) as cluster:
        in_sync = ("--config", "min.insync.replicas=3")
        create(cluster, "copied", "--replica-assignment", "2:1:3,1:3:2", *in_sync)
        create(cluster, "alone", "--replica-assignment", "2,1")
        cluster.brokers[2].kill()
        alive = f"{cluster.brokers[1].address},{cluster.brokers[3].address}"

        def lines(*arguments: str) -> list[str]:
            return run(*arguments, "-b", alive).stdout.splitlines()

        def states() -> dict[str, str]:
            rows = (line.split(maxsplit=3) for line in lines("topics", "list")[1:])
            return {name: state for name, _, _, state in rows}

        # New leaders are reported first, then the missing replicas.
        known = {"alone": "1 offline", "copied": "2 under-replicated"}
        eventually(lambda: states() == known, "its death is known")
        described = lines("topics", "describe", "alone")
        assert all(len(line) <= 100 for line in described)
        assert " ".join(" ".join(described).split()).endswith(
            "partition 0: no leader: its only replica is on broker 2, which is down "
            "next: start broker 2 again; "
            f"`barnabas brokers explain 2 -b {alive}` shows what waits for it"
        )
        described = lines("topics", "describe", "copied")
        assert described[0].endswith("2 under-replicated")
        assert all(len(line) <= 100 for line in described)
        assert " ".join(" ".join(described).split()).endswith(
            "partitions 0 and 1: the replica on broker 2 is missing: the broker is down; "
            "writes with acks=all are rejected: 2 in sync, min.insync.replicas=3 "
            "next: start broker 2 again; "
            f"`barnabas brokers explain 2 -b {alive}` shows what waits for it"
        )
        assert lines("brokers", "list")[2].split()[:3] == ["2", "not", "alive"]

        cluster.brokers[2].start()
        eventually(lambda: set(states().values()) == {"ok"}, "all replicas are in sync")


def test_alter_partitions_warns_about_moved_keys(cluster: LocalCluster) -> None:
    servers = cluster.bootstrap_servers
    create(cluster, "growing", "--partitions", "3", "--replication-factor", "2")
    grow = ("topics", "alter", "growing", "--partitions")
    dry = run(*grow, "4", "--dry-run", "-b", servers)
    assert dry.stdout.startswith(
        "would alter topic growing: 4 partitions, 3 before\n\nkeys: 3/4 (75 %) of the keys"
    )
    assert "groups: none reads this topic" in dry.stdout
    assert document(cluster, "topics", "describe", "growing")["topics"][0]["partitions"] == 3
    assert document(cluster, *grow, "4", "--assignment", "2:3") == {
        "topic": "growing",
        "altered": True,
        "dry_run": False,
        "partitions_before": 3,
        "partitions": 4,
        "keys_moved_percent": 75,
    }

    def described() -> dict[str, Any]:
        (topic,) = document(cluster, "topics", "describe", "growing")["topics"]
        return dict(topic)

    eventually(lambda: described()["partitions"] == 4, "the queried broker knows it")
    topic = described()
    assert topic["partition_list"][3]["replicas"] == [2, 3]
    assert topic["partition_list"][3]["leader"] == 2
    fewer = run(*grow, "2", "-b", servers)
    assert fewer.returncode == 1
    assert fewer.stderr.startswith("error: INVALID_PARTITIONS: ")
    assert "hint:  for fewer partitions, create a new topic" in fewer.stderr
    wrong = run(*grow, "5", "--assignment", "2;3", "-b", servers)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: --assignment: '2;3' is not like")
    unknown = run("topics", "alter", "growin", "--partitions", "5", "-b", servers)
    assert "did you mean 'growing'?" in unknown.stderr


def test_deletion_names_brokers_with_remaining_replicas() -> None:
    with LocalCluster(brokers=3) as cluster:
        for name in ("whole", "kept", "other"):
            create(cluster, name, "--replica-assignment", "1:2:3,3:1:2")
        assert document(cluster, "topics", "delete", "whole", "--yes")["topics"] == [
            {
                "topic": "whole",
                "existed": True,
                "deleted": True,
                "marked_for_deletion": False,
                "left_on": [],
            }
        ]
        controller = cluster.controller_id
        dead = next(broker for broker in cluster.brokers if broker != controller)
        cluster.brokers[dead].kill()
        # Its session has not expired yet, so the cluster does not know that it is dead.
        servers = ("-b", cluster.bootstrap_servers)
        deleted = run("topics", "delete", "kept", "--yes", "-o", "json", *servers)
        assert deleted.returncode == 1
        assert json.loads(deleted.stdout)["topics"] == [
            {
                "topic": "kept",
                "existed": True,
                "deleted": False,
                "marked_for_deletion": True,
                "left_on": [dead],
            }
        ]
        eventually(lambda: not is_alive(cluster, dead), "its death is known")
        for option in ((), ("--if-not-exists",)):
            again = run("topics", "create", "kept", *option, "--timeout", "1", *servers)
            assert again.returncode == 1
            assert again.stderr == (
                "error: TOPIC_ALREADY_EXISTS: topic 'kept' is marked for deletion, which completes when "
                f"these brokers are back: {dead}\n"
                "hint:  start the brokers that have replicas of it and are not alive; then create the topic again\n"
            )
        dry = ok(cluster, "topics", "delete", "other", "--dry-run")
        assert f"broker {dead} is not alive: replicas there would be deleted later" in dry
        delete = run("topics", "delete", "other", "--yes", *servers)
        assert delete.returncode == 1
        assert " ".join(delete.stdout.split()) == (
            f"topic other is marked for deletion, but not deleted yet: broker {dead} still has replicas "
            "of it. They are deleted when it is back; until then the name cannot be used"
        )
        cluster.brokers[dead].start()
        made = ("topics", "create", "kept", "-b", cluster.bootstrap_servers)
        eventually(lambda: run(*made).returncode == 0, "the name is free")


def is_alive(cluster: LocalCluster, broker: int) -> bool:
    rows = document(cluster, "brokers", "list")["brokers"]
    return any(row["broker"] == broker and row["alive"] for row in rows)


def test_terminal_shows_pending_deletion() -> None:
    with LocalCluster(brokers=3) as cluster:
        create(cluster, "held", "--replica-assignment", "1:2:3")
        silent = next(broker for broker in cluster.brokers if broker != cluster.controller_id)
        cluster.brokers[silent].pause()
        others = ",".join(
            each.address for number, each in cluster.brokers.items() if number != silent
        )
        delete = ("topics", "delete", "held", "--yes", "--timeout", "4", "-b", others)
        code, seen = on_terminal([*COMMAND, *delete], environment=ENVIRONMENT)
        assert code == 1
        assert f"deleting held: still on broker {silent}" in seen
        assert f"topic held is marked for deletion, but not deleted yet: broker {silent}" in seen
        cluster.brokers[silent].resume()
