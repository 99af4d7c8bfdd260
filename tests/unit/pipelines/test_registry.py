from __future__ import annotations

from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any

import pyspark.sql.connect.proto as pb2
from pyspark.pipelines.flow import Flow
from pyspark.pipelines.source_code_location import SourceCodeLocation

from barnabas.pipelines.graph import OutputDefinition, OutputKind
from barnabas.pipelines.registry import TopicRegistry
from barnabas.pipelines.topic_options import SERVERS_OPTION


def stream(options: dict[str, str], *, format_name: str = "barnabas") -> pb2.Relation:
    source = pb2.Read.DataSource(format=format_name, options=options)
    return pb2.Relation(read=pb2.Read(is_streaming=True, data_source=source))


def union(left: pb2.Relation, right: pb2.Relation) -> pb2.Relation:
    return pb2.Relation(set_op=pb2.SetOperation(left_input=left, right_input=right))


def options_with_ids(kind: OutputKind, *relations: pb2.Relation) -> list[dict[str, str]]:
    """Return the options of the sources of a flow that reads these relations."""
    spark: Any = SimpleNamespace(client=None)
    registry = TopicRegistry(spark, "id", {SERVERS_OPTION: "b:1"}, PurePath("p"), Path("s"))
    registry.graph.add_output(OutputDefinition(name="t", kind=kind, location="a.py:1"))
    at = SourceCodeLocation("a.py", 1)
    flow = Flow(name="f", target="t", spark_conf={}, source_code_location=at, func=lambda: None)
    relation = relations[0]
    for other in relations[1:]:
        relation = union(relation, other)
    registry.add_topic_ids(flow, relation)
    reads = [relation]
    while reads[0].HasField("set_op"):
        reads[:1] = [reads[0].set_op.left_input, reads[0].set_op.right_input]
    return [dict(each.read.data_source.options) for each in reads]


def test_each_stream_of_a_flow_has_a_directory_for_topic_ids() -> None:
    """The directory of the flow itself is for the topics that it reads by name."""
    given = (stream({"subscribe": "a"}), stream({"topicidslocation": "own"}), stream({}))
    assert options_with_ids(OutputKind.TABLE, *given) == [
        {"subscribe": "a", "topicIdsLocation": "s/topic-ids/t/f/1"},
        {"topicidslocation": "own"},
        {"topicIdsLocation": "s/topic-ids/t/f/3"},
    ]


def test_views_and_other_sources_store_no_topic_ids() -> None:
    assert options_with_ids(OutputKind.VIEW, stream({"subscribe": "a"})) == [{"subscribe": "a"}]
    assert options_with_ids(OutputKind.TABLE, stream({}, format_name="rate")) == [{}]
