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
