"""Topics that are deleted, or deleted and created again, while `pipeline run --continuous` uses them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from barnabas import LocalCluster
from tests.pipelines.test_pipeline_command import (
    DEADLINE_S,
    HEAD,
    SINK,
    Shell,
    table_values,
    wait_until,
)

FLOWS = (
    HEAD
    + SINK
    + """
@dp.table
def by_name():
    # For the watermark, Spark needs the columns of the topic when the flow is defined.
    orders = spark.readStream.table("orders").withWatermark("timestamp", "0 seconds")
    return orders.select("value_text")

@dp.table
def by_options():
    topic = spark.readStream.format("barnabas").option("subscribe", "users")
    records = topic.option("startingOffsets", "earliest").load()
    return records.selectExpr("cast(value as string) as value_text")
"""
)
# Spark runs a failed flow three times, with pauses. The error is the same each time.
NO_RETRIES = "  spark.sql.pipelines.maxFlowRetryAttempts: 0\n"
DELETED = "was deleted (UNKNOWN_TOPIC_OR_PARTITION)"
NO_SINK = (
    f"transformations/flows.py:4: sink upper: the topic upper {DELETED}; "
    "create it, and the sink continues with new records: barnabas topics create upper"
)
NO_SOURCE = (
    f"transformations/flows.py:10: flow by_name: the topic orders {DELETED}; "
    "create it: barnabas topics create orders, and compute the table again: --full-refresh by_name"
)
NO_OTHER_SOURCE = (
    f"transformations/flows.py:16: flow by_options: offsets of users-0 are gone: the topic {DELETED}; "
    "create it: barnabas topics create users, and compute the table again: --full-refresh by_options"
)


def recreated(line: int, flow: str, topic: str) -> str:
    return (
        f"transformations/flows.py:{line}: flow {flow}: offsets of {topic}-0 are gone: the topic was deleted and "
        f"created again; to compute the table from the remaining records: --full-refresh {flow}"
    )


@pytest.mark.timeout(600)
def test_deleted_topics_are_reported_until_tables_are_computed_again(
    tmp_path: Path, trained_spark: str
) -> None:
    with LocalCluster(brokers=1) as cluster:
        shell = Shell(tmp_path, cluster.bootstrap_servers)
        for topic in ("lines", "upper", "orders", "users"):
            cluster.create_topic(topic)
        for topic in ("lines", "orders", "users"):
            shell.produce(topic, "old")
        project = tmp_path / shell.project("shop", FLOWS)
        spec = project / "spark-pipeline.yml"
        spec_with_retries = spec.read_text()
        spec.write_text(spec_with_retries + NO_RETRIES)
        running = shell.start("pipeline", "run", "shop", "--continuous")
        try:
            wait_until(lambda: any(run["runs"] for run in shell.runs()), "the first run")

            delete(shell, "upper")
            shell.produce("lines", "new")
            wait_until(lambda: errors(shell) == {NO_SINK}, "the error of the sink")
            assert_status_shows(shell, NO_SINK)
            cluster.create_topic("upper")
            wait_until(lambda: shell.consume("upper") == ["NEW"], "a run into the new topic")
            wait_until(lambda: not errors(shell), "the end of the run")

            delete(shell, "users")
            wait_until(lambda: NO_OTHER_SOURCE in errors(shell), "the error of the flow by_options")
            assert_status_shows(shell, NO_OTHER_SOURCE)
            delete(shell, "orders")
            wait_until(lambda: NO_SOURCE in errors(shell), "the error of the flow by_name")
            assert_status_shows(shell, NO_SOURCE)

            # The new topics are longer than the old ones, so their offsets alone reveal nothing.
            for topic in ("orders", "users"):
                cluster.create_topic(topic)
                shell.produce(topic, "first", "second")
            expected = {recreated(10, "by_name", "orders"), recreated(16, "by_options", "users")}
            wait_until(lambda: expected <= errors(shell), "the errors of both flows")
            assert values(project) == {"by_name": ["old"], "by_options": ["old"]}
            stop(shell, running)
        finally:
            running.kill()
        out, err = running.communicate(timeout=DEADLINE_S)
        for error in (NO_SINK, NO_SOURCE, NO_OTHER_SOURCE):
            assert f"error: {error}\nstarting again in " in err
        assert_brief(out + err)

        spec.write_text(spec_with_retries)
        refresh = ("--full-refresh", "by_name", "--full-refresh", "by_options")
        code, out, err = shell.run("pipeline", "run", "shop", *refresh)
        assert code == 0, err
        new = ["first", "second"]
        assert values(project) == {"by_name": new, "by_options": new}
        assert shell.consume("upper") == ["NEW"]


def delete(shell: Shell, topic: str) -> None:
    code, _, err = shell.run("topics", "delete", topic, "--yes")
    assert code == 0, err


def stop(shell: Shell, running: subprocess.Popen[str]) -> None:
    code, _, err = shell.run("pipeline", "stop", "shop")
    assert code == 0, err
    assert running.wait(DEADLINE_S) == 0


def errors(shell: Shell) -> set[str]:
    """Return the errors in the state file of the running pipeline."""
    (run,) = shell.runs()
    return {found["error"] for found in (run, *run["flows"]) if found["error"] is not None}


def assert_status_shows(shell: Shell, error: str) -> None:
    code, out, err = shell.run("pipeline", "status")
    assert code == 0, err
    assert error in out
    assert_brief(out)
    (run,) = json.loads(shell.run("pipeline", "status", "-o", "json")[1])
    assert error in {run["error"], *(flow["error"] for flow in run["flows"])}


def assert_brief(text: str) -> None:
    """Assert that a text has no stack trace of Python or Java."""
    assert "Traceback" not in text
    assert "\tat " not in text
    assert "Exception" not in text


def values(project: Path) -> dict[str, list[str]]:
    catalog = project / "storage" / "catalog"
    return {name: table_values(catalog, name, "value_text") for name in ("by_name", "by_options")}
