from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from barnabas.errors import ConfigError
from barnabas.pipelines.failure import (
    PipelineFailed,
    definition_error,
    explain_flow_failure,
    explain_run_failure,
)
from barnabas.pipelines.graph import FlowDefinition, OutputDefinition, OutputKind, PipelineGraph
from barnabas.pipelines.names import Namespace

FAILED = "Flow 'spark_catalog.default.t' has FAILED.\nError: "
QUERY = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
TASK = "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in stage 3.0 (TID 3) (192.0.2.2 executor driver): "  # noqa: E501


@pytest.fixture
def graph() -> PipelineGraph:
    graph = PipelineGraph()
    graph.add_output(OutputDefinition(name="t", kind=OutputKind.TABLE, location="a.py:3"))
    graph.add_output(OutputDefinition(name="s", kind=OutputKind.SINK, location="a.py:9"))
    graph.add_flow(FlowDefinition(name="t", target="t", location="a.py:3"))
    graph.add_flow(FlowDefinition(name="to_s", target="s", location="a.py:10"))
    return graph


def test_error_of_definition_has_innermost_project_line() -> None:
    with pytest.raises(ValueError) as caught:
        exec(compile("\n\nint('x')", "/p/transformations/a.py", "exec"))
    found = definition_error(caught.value, PurePosixPath("/p"), PurePosixPath("/p/b.py"))
    expected = "transformations/a.py:3: ValueError: invalid literal for int() with base 10: 'x'"
    assert str(found) == expected


def test_missing_table_suggests_topic(graph: PipelineGraph) -> None:
    event = (
        "Failed to resolve flow: 'spark_catalog.default.t'.\n"
        "Error: [TABLE_OR_VIEW_NOT_FOUND] The table or view `spark_catalog`.`default`.`ordres` cannot be found."
    )
    found = explain_flow_failure(event, graph, ["orders"])
    assert found is not None
    assert isinstance(found[1], ConfigError)
    expected = "a.py:3: flow t: there is no table or topic ordres (UNKNOWN_TOPIC_OR_PARTITION); did you mean orders?"
    assert str(found[1]) == expected


@pytest.mark.parametrize(
    ("table", "start", "end"),
    [
        ("users", "Users is a topic, but the SQL does not", "after FROM or JOIN, write Users"),
        ("eu.users", "eu.users is a topic, but the SQL does not", "after FROM or JOIN, write `eu.users`"),
        ("s", "it cannot read s, because a.py:9 defines it as a sink", "sink"),
        ("t", "it cannot read t, because a.py:3 defines it as a table", "table"),
    ],
)  # fmt: skip
def test_hint_for_missing_table_never_names_that_table(
    graph: PipelineGraph, table: str, start: str, end: str
) -> None:
    event = (
        "Failed to resolve flow: 'spark_catalog.default.t'.\nError: [TABLE_OR_VIEW_NOT_FOUND] "
        f"The table or view `spark_catalog`.`default`.`{table}` cannot be found."
    )
    found = explain_flow_failure(event, graph, ["Users", "eu.users", "t"])
    assert found is not None
    assert str(found[1]).startswith(f"a.py:3: flow t: {start}")
    assert str(found[1]).endswith(end)


def test_error_of_flow_in_database_of_pipeline_has_its_line(graph: PipelineGraph) -> None:
    graph.namespace = Namespace(database="shop")
    event = "Flow 'spark_catalog.shop.t' has FAILED.\nError: no space left"
    found = explain_flow_failure(event, graph, [])
    assert found is not None
    assert str(found[1]) == "a.py:3: flow t: no space left"


@pytest.mark.parametrize(
    ("flow", "way_out"),
    [
        ("t", ", and compute the table again: --full-refresh t"),
        ("to_s", ", and rename the flow: it then reads the new topic from its first record"),
        ("m", ""),
        ("v", ", and compute the tables that read it again: --full-refresh TABLE"),
    ],
)
def test_deleted_topic_is_named_with_way_out(graph: PipelineGraph, flow: str, way_out: str) -> None:
    for name, kind in (("m", OutputKind.MATERIALIZED_VIEW), ("v", OutputKind.VIEW)):
        graph.add_output(OutputDefinition(name=name, kind=kind, location="a.py:3"))
        graph.add_flow(FlowDefinition(name=name, target=name, location="a.py:3"))
    graph.deleted_topics = {"Orders"}
    deleted = "was deleted (UNKNOWN_TOPIC_OR_PARTITION)"
    unresolved = (
        f"Failed to resolve flow: '{flow}'.\n"
        "Error: [TABLE_OR_VIEW_NOT_FOUND] The table or view `orders` cannot be found."
    )
    found = explain_flow_failure(unresolved, graph, ["Orders2"])
    assert found is not None
    where = f"{graph.location_of(flow)}: flow {flow}"
    way_out = f"create it: barnabas topics create Orders{way_out}"
    assert str(found[1]) == f"{where}: the topic Orders {deleted}; {way_out}"
    loss = f"offsets of Orders-0 are gone: the topic {deleted}"
    failed = f"Flow {flow} has FAILED.\nError: {loss}; set failOnDataLoss to false to continue"
    found = explain_flow_failure(failed, graph, ["Orders2"])
    assert found is not None
    assert str(found[1]) == f"{where}: {loss}; {way_out}"


def test_event_of_changed_sources_is_a_failure(graph: PipelineGraph) -> None:
    event = (
        "Flow 'spark_catalog.default.t' had streaming sources added or removed. It will not be retried. Please perform "
        f"a full refresh to rebuild it against the current sources.\nError: {QUERY}assertion failed: There are [1] "
        "sources in the checkpoint offsets and now there are [2] sources requested by the query. Cannot continue."
    )
    found = explain_flow_failure(event, graph, [])
    assert found is not None
    assert "reads another number of sources than before" in str(found[1])
    assert "--full-refresh t" in str(found[1])


def test_upstream_failures_and_other_events_are_ignored(graph: PipelineGraph) -> None:
    upstream = "Failed to resolve flow due to upstream failure: 't'.\nError: x"
    assert explain_flow_failure(upstream, graph, []) is None
    assert explain_flow_failure("Flow t is RUNNING.", graph, []) is None


def test_cause_of_failed_task_is_one_line(graph: PipelineGraph) -> None:
    event = f"{FAILED}{QUERY}{TASK}java.lang.RuntimeException: no space left\n\tat a.b(C.java:1)\n"
    found = explain_flow_failure(event, graph, [])
    assert found is not None
    assert isinstance(found[1], PipelineFailed)
    assert str(found[1]) == "a.py:3: flow t: no space left"


@pytest.mark.parametrize(
    ("flow", "way_out"), [("t", "--full-refresh t"), ("to_s", "rename the flow")]
)
def test_changed_source_names_way_out(graph: PipelineGraph, flow: str, way_out: str) -> None:
    text = (
        "assertion failed: There are [1] sources in the checkpoint offsets and now there are [2] sources requested "
        f"by the query. Cannot continue.\n=== Streaming Query ===\nIdentifier: {flow} [id = 1, runId = 2]\n"
    )
    name, error = explain_run_failure(text, graph, [])
    assert name == flow
    assert isinstance(error, ConfigError)
    assert "reads another number of sources than before" in str(error)
    assert way_out in str(error)


@pytest.mark.parametrize(
    ("flow", "way_out"),
    [("t", "from the remaining records: --full-refresh t"), ("to_s", "rename the flow")],
)
def test_lost_records_are_named_with_way_out(graph: PipelineGraph, flow: str, way_out: str) -> None:
    loss = "offsets 0 to 9 of orders-0 are gone: the log ends at 3 now; the topic was truncated"
    text = f"""{QUERY}[PYTHON_DATA_SOURCE_ERROR] Traceback (most recent call last):
barnabas.spark.ranges.DataLoss: {loss}; set failOnDataLoss to false to continue with the remaining records
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: {flow} [id = 1, runId = 2]
"""
    _, error = explain_run_failure(text, graph, [])
    assert isinstance(error, ConfigError)
    assert str(error).startswith(f"{graph.location_of(flow)}: flow {flow}: {loss}; ")
    assert way_out in str(error)
