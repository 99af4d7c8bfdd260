from __future__ import annotations

import pytest

from barnabas.errors import ConfigError
from barnabas.pipelines.graph import (
    FlowDefinition,
    OutputDefinition,
    OutputKind,
    PipelineGraph,
    check_earlier_flows,
    check_flows,
    check_full_refresh,
    check_sink_topics,
    plan_topic_views,
    topics_by_name,
)
from barnabas.pipelines.sql_statements import find_definitions


def graph_of(*flows: str, kind: OutputKind = OutputKind.TABLE, **options: str) -> PipelineGraph:
    """A graph with one output `t`, and flows into it."""
    graph = PipelineGraph()
    graph.add_output(OutputDefinition(name="t", kind=kind, location="a.py:1", **options))
    for number, name in enumerate(flows, 2):
        graph.add_flow(FlowDefinition(name=name, target="default.T", location=f"a.py:{number}"))
    return graph


def test_two_flows_into_file_table_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"a\.py:1: the parquet table t has 2 flows.*union"):
        check_flows(graph_of("a", "b"))
    with pytest.raises(ConfigError, match="the json table"):
        check_flows(graph_of("a", "b", format="JSON"))


def test_two_flows_into_other_outputs_are_accepted() -> None:
    check_flows(graph_of("a"))
    check_flows(graph_of("a", "b", format="delta"))
    check_flows(graph_of("a", "b", kind=OutputKind.SINK))


def test_sink_to_unknown_topic_is_refused() -> None:
    graph = graph_of("a", kind=OutputKind.SINK, topic="ordres")
    with pytest.raises(ConfigError, match="there is no topic ordres; did you mean orders"):
        check_sink_topics(graph, ["orders"])
    with pytest.raises(ConfigError, match="barnabas topics create ordres"):
        check_sink_topics(graph, [])
    check_sink_topics(graph, ["ordres"])


def test_full_refresh_needs_table() -> None:
    check_full_refresh(graph_of(), ["t"])
    with pytest.raises(ConfigError, match="there is no table tt; did you mean t"):
        check_full_refresh(graph_of(), ["tt"])
    with pytest.raises(ConfigError, match="rename its flow"):
        check_full_refresh(graph_of(kind=OutputKind.SINK), ["t"])


def test_renamed_flow_into_file_table_is_refused() -> None:
    graph = graph_of("new")
    with pytest.raises(ConfigError, match=r"written by the flow old.*--full-refresh t"):
        check_earlier_flows(graph, {"t": ["old"]}, [])
    check_earlier_flows(graph, {"t": ["old"]}, ["t"])
    check_earlier_flows(graph, {"t": ["new"]}, [])
    check_earlier_flows(graph, {}, [])


def test_table_of_pipeline_hides_topic_of_same_name() -> None:
    graph = graph_of("a")
    graph.stream_reads = {"t": "a.py:2", "web-orders": "a.py:3"}
    graph.table_reads = {"orders": "a.py:4", "unknown": "a.py:5"}
    assert topics_by_name(graph, ["t", "Orders", "web-orders"]) == {
        "orders": "Orders",
        "web-orders": "web-orders",
    }


def test_only_topics_in_sql_become_views() -> None:
    graph = PipelineGraph(
        stream_reads={"python": "a.py:1"},
        sql_stream_reads={"stream": "a.sql:1"},
        sql_table_reads={"table": "a.sql:2"},
    )
    topics = {name: name for name in ("python", "stream", "table")}
    assert plan_topic_views(graph, topics) == {"stream": True, "table": False}
    graph.sql_table_reads["stream"] = "b.sql:7"
    with pytest.raises(ConfigError, match=r"b\.sql:7: SQL reads the topic stream as a table"):
        plan_topic_views(graph, topics)


SQL = """-- create streaming table no as select
CREATE STREAMING TABLE a AS
  SELECT 'from b' FROM STREAM(`web-orders`);
create or refresh streaming table c using json;
CREATE FLOW f AS INSERT INTO c BY NAME SELECT * FROM STREAM orders;
CREATE MATERIALIZED VIEW m AS SELECT * FROM a JOIN default.users;
"""


def test_sql_definitions_have_file_and_line() -> None:
    found = find_definitions(SQL, "x.sql")
    assert [(o.name, o.kind.value, o.format, o.location) for o in found.outputs] == [
        ("a", "table", None, "x.sql:2"),
        ("c", "table", "json", "x.sql:4"),
        ("m", "materialized view", None, "x.sql:6"),
    ]
    assert [(f.name, f.target, f.location) for f in found.flows] == [
        ("a", "a", "x.sql:2"),
        ("m", "m", "x.sql:6"),
        ("f", "c", "x.sql:5"),
    ]
    assert found.stream_reads == {"web-orders": "x.sql:3", "orders": "x.sql:5"}
    assert found.table_reads == {"a": "x.sql:6", "users": "x.sql:6"}
