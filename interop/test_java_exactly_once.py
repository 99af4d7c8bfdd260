"""Loops with Kafka's Java client copy a topic exactly once, while brokers are killed and paused.

`make faults` runs it for BARNABAS_FAULT_SECONDS.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.java.find import Java
from interop.harness.jars import KAFKA_3_9, KAFKA_4, Jars
from interop.harness.java_loop import JavaLoop, compile_loop
from interop.harness.zookeeper import ZooKeeper
from support.cluster import ClusterProcesses
from tests.faults.exactly_once.scenario import (
    PARTITIONS,
    SECONDS,
    SETTINGS,
    copy_while_brokers_fail,
)

SHORT_SECONDS = 8.0
RELEASES_BY_PROTOCOL = {"classic": (KAFKA_3_9, KAFKA_4), "consumer": (KAFKA_4, KAFKA_4)}
"""Releases of the two members of each group.

The new protocol is a preview in clients of 3.9. If a member gets partitions while it looks up committed offsets, it may
read them from their first offset (KAFKA-17066). Clients of 4 do not.
"""
pytestmark = pytest.mark.timeout(SECONDS + 300)


def test_java_clients_copy_records_exactly_once(
    java: Java, kafka_jars: Jars, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    classes = compile_loop(java, kafka_jars, tmp_path)
    connect = f"{zookeeper.address}/exactly-once"
    with ClusterProcesses(tmp_path, connect, brokers=3, settings=SETTINGS) as cluster:
        loops = [
            JavaLoop(
                cluster.bootstrap_servers,
                PARTITIONS,
                f"java-{protocol}",
                member,
                java=java,
                class_path=f"{classes}{os.pathsep}{kafka_jars.class_path(release)}",
                protocol=protocol,
                directory=tmp_path,
            )
            for protocol, releases in RELEASES_BY_PROTOCOL.items()
            for member, release in enumerate(releases)
        ]
        copy_while_brokers_fail(cluster, loops, SHORT_SECONDS)
