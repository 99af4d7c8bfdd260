"""Our command line with three brokers of Apache Kafka: it shows all that Kafka's protocol reports."""

from __future__ import annotations

import json
from typing import Any

from interop.harness.kafka import KafkaCluster
from support.command import run


def document(cluster: KafkaCluster, *arguments: str) -> dict[str, Any]:
    ended = run(*arguments, "-b", cluster.bootstrap_servers, "-o", "json")
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_our_command_line_shows_kafka_cluster(kafka_cluster: KafkaCluster) -> None:
    created = document(
        kafka_cluster,
        *("topics", "create", "shown", "--partitions", "3", "--replication-factor", "3"),
    )
    assert created["created"] is True
    brokers = document(kafka_cluster, "brokers", "list")
    assert len(brokers["brokers"]) == 3
    assert all(row["alive"] for row in brokers["brokers"])
    controller = document(kafka_cluster, "controller", "show")
    assert controller["controller"] == brokers["controller"]
    assert controller["controller"] in {row["broker"] for row in brokers["brokers"]}
    assert controller["epoch"] is None  # Kafka's protocol does not report it
    (topic,) = document(kafka_cluster, "topics", "describe", "shown")["topics"]
    assert len(topic["partition_list"]) == 3
    assert all(partition["trouble"] is None for partition in topic["partition_list"])


def test_our_command_line_reassigns_partitions_of_kafka(kafka_cluster: KafkaCluster) -> None:
    first, second, third = (
        row["broker"] for row in document(kafka_cluster, "brokers", "list")["brokers"]
    )
    placement = f"{first}:{second},{second}:{first}"
    document(kafka_cluster, "topics", "create", "moved", "--replica-assignment", placement)
    goal = ("--add-broker", str(third), "--topic", "moved")
    plan = document(kafka_cluster, "reassign", "plan", *goal)
    assert plan["copied_replicas"] == 1
    moved = document(kafka_cluster, "reassign", "run", *goal, "--throttle", "10MB/s", "--yes")
    assert moved["result"]["completed"] == moved["result"]["started"]
    assert moved["result"]["throttles_removed"][0] == "topic moved"
    status = document(kafka_cluster, "reassign", "status")
    assert status == {
        "moving": [],
        "throttles": {"topics": [], "brokers": []},
        "seconds_left_at_throttle": None,
        "throttles_removed": [],
    }
    drained = document(
        kafka_cluster, "reassign", "run", "--drain", str(third), "--topic", "moved", "--yes"
    )
    assert drained["result"]["failed"] == []
    (topic,) = document(kafka_cluster, "topics", "describe", "moved")["topics"]
    assert all(third not in partition["replicas"] for partition in topic["partition_list"])
