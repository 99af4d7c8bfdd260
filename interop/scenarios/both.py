"""Plays the script to one Kafka broker and one of ours, with the same settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from barnabas.java.find import Java
from interop.harness.jars import Jars
from interop.harness.kafka import SETTINGS, KafkaCluster
from interop.harness.zookeeper import ZooKeeper
from interop.scenarios.runner import Ours, RealKafka, Runner
from interop.scenarios.script import AFTER_STOP, SCRIPT
from interop.scenarios.step import Step, Transcript
from support.broker import BrokerProcess

SAME = {
    "log.retention.ms": "-1",  # the script's records are years old
    "log.initial.task.delay.ms": "3600000",  # no background task runs during the script
    "group.max.size": "2",
    # Kafka supports the new consumer protocol only without ZooKeeper, see consumer_groups.py.
    "group.coordinator.rebalance.protocols": "classic",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
Script = Sequence[Step]


def play_to_both(
    directory: Path,
    java: Java,
    jars: Jars,
    script: Script = SCRIPT,
    after_stop: Script = AFTER_STOP,
) -> tuple[Transcript, Transcript]:
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
        kafka = play(RealKafka(cluster.brokers[0]), script, after_stop)
    with BrokerProcess(directory / "barnabas", {**SETTINGS, **SAME}) as broker:
        ours = play(Ours(broker), script, after_stop)
    return kafka, ours


def play(broker: RealKafka | Ours, script: Script, after_stop: Script) -> Transcript:
    runner = Runner(broker)
    runner.run(script)
    broker.stop()
    return runner.run(after_stop)
