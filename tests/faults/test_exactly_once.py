"""Loops with librdkafka and aiokafka copy a topic exactly once, while brokers are killed and paused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster import ClusterProcesses
from tests.faults.exactly_once.loops import AiokafkaLoop, LibrdkafkaLoop
from tests.faults.exactly_once.scenario import (
    PARTITIONS,
    SECONDS,
    SETTINGS,
    copy_while_brokers_fail,
)

pytestmark = pytest.mark.timeout(SECONDS + 300)


@pytest.fixture
def cluster(tmp_path: Path, chroot: str) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, chroot, brokers=3, settings=SETTINGS) as running:
        yield running


def test_copied_records_appear_exactly_once(cluster: ClusterProcesses) -> None:
    servers = cluster.bootstrap_servers
    copy_while_brokers_fail(
        cluster,
        [
            LibrdkafkaLoop(servers, PARTITIONS, "librdkafka", 0),
            LibrdkafkaLoop(servers, PARTITIONS, "librdkafka", 1),
            AiokafkaLoop(servers, PARTITIONS, "aiokafka"),
        ],
    )
