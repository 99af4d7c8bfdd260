"""`pipeline run --continuous` continues after its broker and its JVM were killed."""

from __future__ import annotations

from pathlib import Path

from barnabas import Client, LocalCluster
from tests.pipelines.test_pipeline_command import (
    DEADLINE_S,
    HEAD,
    SINK,
    Shell,
    descendants,
    wait_until,
)
from tests.processes import assert_ended, is_java


def test_continuous_run_survives_killed_broker_and_java(tmp_path: Path, trained_spark: str) -> None:
    with LocalCluster(brokers=1) as cluster:
        shell = Shell(tmp_path, cluster.bootstrap_servers)
        for topic in ("lines", "upper"):
            cluster.create_topic(topic)
        shell.project("copier", HEAD + SINK)
        shell.produce("lines", "a")
        running = shell.start("pipeline", "run", "copier", "--continuous", "-o", "json")
        try:
            wait_until(lambda: copied(cluster) == ["A"], "the first run")
            cluster.kill(1)
            cluster.restore()
            shell.produce("lines", "b")
            wait_until(lambda: copied(cluster) == ["A", "B"], "a run after the broker's restart")
            processes = descendants(running)
            (java,) = (each for each in processes if is_java(each))
            java.kill()
            shell.produce("lines", "c")
            wait_until(lambda: copied(cluster) == ["A", "B", "C"], "a run in a new JVM")
            assert_ended(processes)
            processes = descendants(running)
            running.terminate()
            _, err = running.communicate(timeout=DEADLINE_S)
        finally:
            running.kill()
        assert_ended(processes)
        assert copied(cluster) == ["A", "B", "C"]
        assert "Traceback" not in err


def copied(cluster: LocalCluster) -> list[str]:
    with Client(cluster.bootstrap_servers) as client:
        consumer = client.consumer(
            "upper", auto_offset_reset="earliest", isolation_level="read_committed"
        )
        with consumer:
            return [(record.value or b"").decode() for record in consumer.read_to_end()]
