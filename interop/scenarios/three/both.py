"""The script for three brokers, played to three of Kafka's and to three of ours around one ZooKeeper.

Step by step to both, side by side: what takes time, a session that runs out or a broker that starts, passes for both at
once.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from barnabas.java.find import Java
from interop.harness.jars import Jars
from interop.harness.kafka import KafkaBroker
from interop.harness.ours import OurBroker
from interop.harness.zookeeper import ZooKeeper
from interop.scenarios.step import Transcript
from interop.scenarios.three.script import SCRIPT
from interop.scenarios.three.side import Side
from interop.scenarios.three.step import Step
from support.ports import free_port

IDS = (1, 2, 3)
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.enable": "true",
    "controlled.shutdown.retry.backoff.ms": "500",
    # Leaders stay where a stop put them: when they move back by themselves is a matter of minutes.
    "auto.leader.rebalance.enable": "false",
    # For consumers that name their rack; no broker has one at first.
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "num.partitions": "2",
    "default.replication.factor": "2",
    # The records of the script are years old.
    "log.retention.ms": "-1",
}


def play_to_three(
    directory: Path, java: Java, jars: Jars, script: Iterable[Step] = SCRIPT
) -> tuple[Transcript, Transcript]:
    with ZooKeeper(directory / "zookeeper", java) as zookeeper:
        kafka, ours = sides(directory, java, jars, zookeeper)
        try:
            with ThreadPoolExecutor(max_workers=2) as each:
                list(each.map(Side.start, (kafka, ours)))
                for step in script:
                    list(each.map(lambda side, step=step: side.take(step), (kafka, ours)))
        finally:
            kafka.kill()
            ours.kill()
    return kafka.transcript, ours.transcript


def sides(directory: Path, java: Java, jars: Jars, zookeeper: ZooKeeper) -> tuple[Side, Side]:
    theirs = [
        KafkaBroker(
            number,
            directory / f"kafka-{number}",
            java=java,
            jars=jars,
            zookeeper_connect=f"{zookeeper.address}/kafka",
            settings=SETTINGS,
            port=free_port(),
        )
        for number in IDS
    ]
    mine = [
        OurBroker(
            number,
            directory / f"ours-{number}",
            zookeeper_connect=f"{zookeeper.address}/ours",
            settings=SETTINGS,
        )
        for number in IDS
    ]
    return Side("Kafka", theirs), Side("ours", mine)
