"""Plays the script for three brokers to three Kafka brokers and three of ours with one ZooKeeper.

Each step is played to both before the next, so that waits for sessions and starts overlap.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from barnabas.java.find import Java
from interop.harness.jars import Jars
from interop.harness.kafka import KafkaBroker
from interop.harness.our_broker import OurBroker
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
    # Leaders stay after a stop: automatic rebalancing would take minutes.
    "auto.leader.rebalance.enable": "false",
    # Brokers look for followers that lag twice in this time. A restarted follower joins the ISR a few milliseconds
    # before it is at the end of the log. If a broker looked just then, it would remove the follower again.
    "replica.lag.time.max.ms": "600000",
    # For consumers with a rack id; at first no broker has a rack.
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "num.partitions": "2",
    "default.replication.factor": "2",
    # The script's records are years old.
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
