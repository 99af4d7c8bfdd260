"""Flows that are changed between two runs: some continue, the others report the reason and the next step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.pipelines.test_pipeline_command import HEAD, Shell, table_values

FLOWS = """
def lines():
    return spark.readStream.table("changed")

@dp.table
def filtered():
    return lines().where({condition}).selectExpr({columns})

@dp.table
def counted():
    timed = lines().withWatermark("timestamp", "0 seconds")
    return timed.groupBy({groups}).count().select("timestamp", "count")

@dp.table
def merged():
    return {merged}.select("value_text")

@dp.table
def moved():
    return spark.readStream.table({moved}).select("value_text")

dp.create_sink("unique", "barnabas", {{"topic": "unique"}})

@dp.append_flow(target="unique")
def {sink_flow}():
    return lines().dropDuplicates({distinct}).select("value")
"""
BEFORE = {
    "condition": "\"value_text <> 'skip'\"",
    "columns": '"value_text"',
    "distinct": '["value_text"]',
    "groups": '"timestamp"',
    "merged": "lines()",
    "moved": '"changed"',
    "sink_flow": "to_unique",
}
AFTER = {
    "condition": '"length(value_text) < 3"',
    "columns": '"value_text", "offset as at"',
    "distinct": '["value_text", "key"]',
    "groups": '"timestamp", "key"',
    "merged": 'lines().union(spark.readStream.table("added"))',
    "moved": '"added"',
    "sink_flow": "to_unique",
}
ONE_PARTITION = "  spark.sql.shuffle.partitions: 1\n"
NO_RETRIES = "  spark.sql.pipelines.maxFlowRetryAttempts: 0\n"
"""Spark runs a failed flow three times, with pauses. The errors of these flows are the same each time."""
STATE = "has other stateful operators than before (an aggregation, join or deduplication)"
SOURCES = "reads another number of sources than before"


def refused(line: int, flow: str, reason: str, way_out: str) -> str:
    way_out = way_out.format(flow)
    return (
        f"transformations/flows.py:{line}: flow {flow}: {reason}, so its checkpoint cannot be continued; "
        f"undo the change, or {way_out}"
    )


AGAIN = "compute the table again: --full-refresh {}"
RENAME = "rename the flow: it then reads all records again"
ERRORS = {
    "counted": refused(11, "counted", STATE, AGAIN),
    "merged": refused(16, "merged", SOURCES, AGAIN),
    "moved": (
        "transformations/flows.py:20: flow moved: offsets of changed-0 are gone: the topic was deleted, or the query "
        "does not select it any more; undo the change, or compute the table again: --full-refresh moved"
    ),
    "to_unique": refused(26, "to_unique", STATE, RENAME),
}


@pytest.mark.timeout(600)
def test_changed_flows_continue_or_name_the_way_out(shell: Shell, remote: str) -> None:
    run = ("pipeline", "run", "changed", "--remote", remote)
    for topic in ("changed", "added", "unique"):
        assert shell.run("topics", "create", topic)[0] == 0
    define(shell, BEFORE)
    shell.produce("changed", "a", "a", "skip", "long")
    code, _, err = shell.run(*run)
    assert code == 0, err
    first = tables(shell)
    assert first["merged"] == ["a", "a", "long", "skip"]
    assert sum(first["counted"]) == 4
    assert sorted(shell.consume("unique")) == ["a", "long", "skip"]

    define(shell, AFTER, NO_RETRIES)
    shell.produce("changed", "a", "b", "longer")
    shell.produce("added", "o")
    code, out, err = shell.run(*run, "-o", "json")
    assert code == 2
    # The command ends with one of the errors, and the lines of the flows have all.
    assert err.removeprefix("error: ").rstrip("\n") in ERRORS.values()
    events = [json.loads(line) for line in out.splitlines()]
    ends = {each["flow"]: each for each in events if each["event"] == "flow"}
    failed = {name: each["error"] for name, each in ends.items() if each["state"] == "FAILED"}
    assert failed == ERRORS
    assert ends["filtered"]["state"] == "COMPLETED"
    assert tables(shell) == first
    assert sorted(shell.consume("unique")) == ["a", "long", "skip"]
    assert filtered(shell) == ["a", "a", "a", "b", "long"]
    assert table_values(shell.directory / "catalog", "filtered", "at") == [4, 5]

    define(shell, {**AFTER, "sink_flow": "to_unique_again"})
    code, _, err = shell.run(*run, *refresh("counted", "merged", "moved"))
    assert code == 0, err
    again = tables(shell)
    assert again["merged"] == ["a", "a", "a", "b", "long", "longer", "o", "skip"]
    assert again["moved"] == ["o"]
    assert sum(again["counted"]) == 7
    both = ["a", "a", "b", "long", "long", "longer", "skip", "skip"]
    assert sorted(shell.consume("unique")) == both
    assert filtered(shell) == ["a", "a", "a", "b", "long"]


def define(shell: Shell, parts: dict[str, str], settings: str = "") -> None:
    shell.project("changed", HEAD + FLOWS.format(**parts))
    with (shell.directory / "changed" / "spark-pipeline.yml").open("a") as spec:
        spec.write(ONE_PARTITION + settings)


def refresh(*names: str) -> list[str]:
    return [argument for name in names for argument in ("--full-refresh", name)]


def tables(shell: Shell) -> dict[str, list[Any]]:
    """Return the values of the tables whose flows are changed incompatibly."""
    columns = {"counted": "count", "merged": "value_text", "moved": "value_text"}
    catalog = shell.directory / "catalog"
    return {name: table_values(catalog, name, column) for name, column in columns.items()}


def filtered(shell: Shell) -> list[Any]:
    return table_values(shell.directory / "catalog", "filtered", "value_text")
