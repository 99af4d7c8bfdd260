"""Plays the script to one Kafka broker and one of ours, with the same settings."""

from __future__ import annotations

from pathlib import Path

from barnabas.java.find import Java
from interop.harness.jars import Jars
from interop.harness.kafka import SETTINGS, KafkaCluster
from interop.harness.zookeeper import ZooKeeper
from interop.scenarios.runner import Ours, RealKafka, Runner
from interop.scenarios.script import AFTER_STOP, SCRIPT
from interop.scenarios.step import Transcript
from support.broker import BrokerProcess

SAME = {
    "log.retention.ms": "-1",  # the script's records are years old
    "log.initial.task.delay.ms": "3600000",  # no background task runs during the script
    "group.max.size": "2",
}


def play_to_both(directory: Path, java: Java, jars: Jars) -> tuple[Transcript, Transcript]:
    with (
        ZooKeeper(directory / "zookeeper", java) as zookeeper,
        KafkaCluster(
            directory / "kafka",
            java=java,
            jars=jars,
            zookeeper=zookeeper,
            settings=SAME,
        ) as cluster,
    ):
        kafka = play(RealKafka(cluster.brokers[0]))
    with BrokerProcess(directory / "barnabas", {**SETTINGS, **SAME}) as broker:
        ours = play(Ours(broker))
    return kafka, ours


def play(broker: RealKafka | Ours) -> Transcript:
    runner = Runner(broker)
    runner.run(SCRIPT)
    broker.stop()
    return runner.run(AFTER_STOP)
