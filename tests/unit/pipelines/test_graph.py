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
from barnabas.pipelines.names import Namespace
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
    expected = r"there is no topic ordres \(UNKNOWN_TOPIC_OR_PARTITION\); did you mean orders"
    with pytest.raises(ConfigError, match=expected):
        check_sink_topics(graph, ["orders"])
    with pytest.raises(ConfigError, match="barnabas topics create ordres"):
        check_sink_topics(graph, [])
    check_sink_topics(graph, ["ordres"])


def test_sink_to_deleted_topic_is_refused() -> None:
    graph = graph_of("a", kind=OutputKind.SINK, topic="orders")
    graph.deleted_topics = {"orders"}
    deleted = r"the topic orders was deleted \(UNKNOWN_TOPIC_OR_PARTITION\); .*: barnabas topics create orders"
    with pytest.raises(ConfigError, match=deleted):
        check_sink_topics(graph, ["orders2"])
    check_sink_topics(graph, ["orders"])


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


@pytest.mark.parametrize("target", ["t", "shop.T", "spark_catalog.`shop`.t"])
def test_two_flows_into_one_table_are_refused_for_every_spelling_of_it(target: str) -> None:
    graph = PipelineGraph(namespace=Namespace(database="shop"))
    graph.add_output(OutputDefinition(name="shop.t", kind=OutputKind.TABLE, location="a.py:1"))
    graph.add_flow(FlowDefinition(name="a", target="t", location="a.py:2"))
    graph.add_flow(FlowDefinition(name="b", target=target, location="a.py:3"))
    with pytest.raises(ConfigError, match="the parquet table t has 2 flows"):
        check_flows(graph)


def test_tables_of_two_databases_are_two_tables() -> None:
    graph = graph_of("a")
    graph.add_output(OutputDefinition(name="shop.t", kind=OutputKind.TABLE, location="b.py:1"))
    graph.add_flow(FlowDefinition(name="b", target="shop.t", location="b.py:2"))
    check_flows(graph)


def test_renamed_flow_into_table_of_other_database_is_refused() -> None:
    graph = PipelineGraph()
    graph.add_output(OutputDefinition(name="shop.t", kind=OutputKind.TABLE, location="a.py:1"))
    graph.add_flow(FlowDefinition(name="Shop.New", target="shop.t", location="a.py:2"))
    with pytest.raises(ConfigError, match=r"shop\.t was written by the flow old, and new cannot"):
        check_earlier_flows(graph, {"shop.t": ["old"]}, [])
    check_earlier_flows(graph, {"shop.t": ["New"]}, [])
    check_earlier_flows(graph, {"shop.t": ["old"]}, ["spark_catalog.shop.t"])


def test_dots_in_backquotes_do_not_separate_parts_of_name() -> None:
    shop = Namespace(database="shop")
    assert shop.short_name("`shop.orders`") == "shop.orders"
    assert shop.short_name("`Shop`.`eu.orders`") == "eu.orders"
    assert shop.short_name("spark_catalog.shop.eu.orders") == "eu.orders"
    assert shop.short_name("lake.shop.orders") == "lake.shop.orders"
    assert Namespace("Lake", "Shop").short_name("lake.shop.orders") == "orders"


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


def find_reads(query: str) -> tuple[set[str], set[str]]:
    """Return the names that a query reads as a stream and as a table."""
    found = find_definitions(f"CREATE MATERIALIZED VIEW m AS {query};", "x.sql")
    return set(found.stream_reads), set(found.table_reads)


@pytest.mark.parametrize("comment", ["", "COMMENT 'one' ", 'COMMENT "it\'s; one" '])
def test_two_sql_flows_into_file_table_are_refused(comment: str) -> None:
    flow = "CREATE FLOW {} " + comment + "AS INSERT INTO t BY NAME SELECT * FROM STREAM orders;\n"
    found = find_definitions(flow.format("a") + flow.format("b"), "x.sql")
    assert [(flow.name, flow.target, flow.location) for flow in found.flows] == [
        ("a", "t", "x.sql:1"),
        ("b", "t", "x.sql:2"),
    ]
    graph = graph_of()
    for each in found.flows:
        graph.add_flow(each)
    with pytest.raises(ConfigError, match="the parquet table t has 2 flows"):
        check_flows(graph)


def test_sql_table_with_change_flow_has_flow() -> None:
    sql = "CREATE STREAMING TABLE t FLOW AUTO CDC FROM STREAM users KEYS (id) SEQUENCE BY at;"
    found = find_definitions(sql, "x.sql")
    assert [(flow.name, flow.target) for flow in found.flows] == [("t", "t")]
    assert set(found.stream_reads) == {"users"}


@pytest.mark.parametrize(
    ("query", "streams", "tables"),
    [
        ("SELECT * FROM orders o, users AS u", set(), {"orders", "users"}),
        ("SELECT * FROM (orders), `web-users`, shop.items", set(), {"orders", "web-users", "shop.items"}),
        ("SELECT * FROM a JOIN b ON f(a.x, y) = b.x, c WHERE a.x IN (1, d)", set(), {"a", "b", "c"}),
        ("SELECT * FROM STREAM orders o, STREAM(`web-users`) u, users", {"orders", "web-users"}, {"users"}),
        ("SELECT * FROM (SELECT a, b FROM orders) x, users", set(), {"orders", "users"}),
        ("WITH x AS (SELECT a, b FROM orders), y AS (SELECT 1) SELECT a, c FROM users", set(), {"orders", "users"}),
        ("SELECT a, b FROM orders GROUP BY a, c ORDER BY a, d", set(), {"orders"}),
        ("FROM orders SELECT a, b", set(), {"orders"}),
        ("FROM orders |> EXTEND 1 AS a, 2 AS b", set(), {"orders"}),
        ("SELECT a IS DISTINCT FROM b, c FROM orders", set(), {"orders"}),
        ("SELECT value_json:from::string, orders FROM STREAM orders", {"orders"}, set()),
        ("SELECT * FROM orders o, LATERAL explode(o.a) t(b, c), users", set(), {"orders", "explode", "users"}),
        ("SELECT * FROM orders LATERAL VIEW explode(a) t AS b, c", set(), {"orders"}),
    ],
)  # fmt: skip
def test_sql_reads_every_table_of_from(query: str, streams: set[str], tables: set[str]) -> None:
    assert find_reads(query) == (streams, tables)


def test_sql_strings_and_comments_may_have_apostrophes() -> None:
    sql = """-- it's a comment
CREATE STREAMING TABLE a COMMENT "it's" AS SELECT * FROM STREAM `it's`; /* it's */
CREATE STREAMING TABLE b COMMENT 'say "it' AS SELECT "from x" FROM STREAM orders;
"""
    found = find_definitions(sql, "x.sql")
    assert [output.location for output in found.outputs] == ["x.sql:2", "x.sql:3"]
    assert (set(found.stream_reads), found.table_reads) == ({"it's", "orders"}, {})


@pytest.mark.parametrize(
    "kind", ["TEMPORARY VIEW", "TEMP VIEW", "OR REPLACE TEMPORARY VIEW", "OR REPLACE TEMP VIEW", "VIEW"]
)  # fmt: skip
def test_sql_views_are_found(kind: str) -> None:
    found = find_definitions(f"CREATE {kind} v AS SELECT * FROM orders;", "x.sql")
    assert [(output.name, output.kind) for output in found.outputs] == [("v", OutputKind.VIEW)]
    assert [(flow.name, flow.target) for flow in found.flows] == [("v", "v")]
