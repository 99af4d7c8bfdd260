"""The outputs and flows that a pipeline defines, and checks that Spark does not make. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum

from barnabas.errors import ConfigError, ErrorCode
from barnabas.pipelines.names import DEFAULT_NAMESPACE, Namespace, name_parts

FILE_FORMATS = frozenset({"parquet", "orc", "json", "csv", "text", "avro", "xml"})
"""Formats of Spark's file sink. Its log of batches has room for one query."""
DEFAULT_FORMAT = "parquet"
UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name


class OutputKind(StrEnum):
    TABLE = "table"
    MATERIALIZED_VIEW = "materialized view"
    VIEW = "view"
    SINK = "sink"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputDefinition:
    name: str
    kind: OutputKind
    location: str
    """File and line, such as transformations/orders.py:12."""
    format: str | None = None
    topic: str | None = None
    """The topic of a sink, if it writes to one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDefinition:
    name: str
    target: str
    location: str


@dataclass(slots=True)
class PipelineGraph:
    """Everything that the files of a pipeline define. Names are short names in the namespace."""

    namespace: Namespace = DEFAULT_NAMESPACE
    outputs: dict[str, OutputDefinition] = field(default_factory=dict)
    flows: dict[str, FlowDefinition] = field(default_factory=dict)
    stream_reads: dict[str, str] = field(default_factory=dict)
    """Names that Python code reads as a stream → location of the first read."""
    table_reads: dict[str, str] = field(default_factory=dict)
    """Names that Python code reads as a table → location of the first read."""
    sql_stream_reads: dict[str, str] = field(default_factory=dict)
    sql_table_reads: dict[str, str] = field(default_factory=dict)
    topics_read: set[str] = field(default_factory=set)
    """Topics that the flows read, once they are known."""
    deleted_topics: set[str] = field(default_factory=set)
    """Topics that an earlier run used, and that do not exist any more."""
    has_other_sources: bool = False
    """Whether Python code reads anything but topics and tables."""

    def add_output(self, output: OutputDefinition) -> None:
        self.outputs[self.short_name(output.name)] = output

    def add_flow(self, flow: FlowDefinition) -> None:
        self.flows[self.short_name(flow.name)] = flow

    def flows_into(self, name: str) -> list[FlowDefinition]:
        return [flow for flow in self.flows.values() if self.short_name(flow.target) == name]

    def location_of(self, name: str) -> str | None:
        """Return the location of a flow or an output."""
        short = self.short_name(name)
        found = self.flows.get(short) or self.outputs.get(short)
        return None if found is None else found.location

    def short_name(self, name: str) -> str:
        return self.namespace.short_name(name)


def check_flows(graph: PipelineGraph) -> None:
    """Raise ConfigError if two flows write to one file table: Spark would lose batches of one of them."""
    for name, output in graph.outputs.items():
        flows = graph.flows_into(name)
        if output.kind is not OutputKind.TABLE or len(flows) < 2:
            continue
        format_name = (output.format or DEFAULT_FORMAT).lower()
        if format_name not in FILE_FORMATS:
            continue
        places = " and ".join(f"{flow.name} ({flow.location})" for flow in flows)
        raise ConfigError(
            output.location,
            f"the {format_name} table {name} has {len(flows)} flows, {places}; Spark would skip batches of "
            "all but one; write one flow that returns a.union(b)",
        )


def check_sink_topics(graph: PipelineGraph, topics: Iterable[str]) -> None:
    """Raise ConfigError if a sink writes to a topic that does not exist."""
    known = set(topics)
    for output in graph.outputs.values():
        if output.topic is None or output.topic in known:
            continue
        hint = missing_topic_hint(output.topic, known)
        why = f"there is no topic {output.topic} ({UNKNOWN_TOPIC}); {hint}"
        if output.topic in graph.deleted_topics:
            why = (
                f"the topic {output.topic} was deleted ({UNKNOWN_TOPIC}); create it, and the sink continues with new "
                f"records: {create_command(output.topic)}"
            )
        raise ConfigError(output.location, f"sink {output.name}: {why}")


def check_full_refresh(graph: PipelineGraph, names: Iterable[str]) -> None:
    """Raise ConfigError if a table of --full-refresh does not exist, or cannot be computed again."""
    tables = {
        name: output
        for name, output in graph.outputs.items()
        if output.kind in (OutputKind.TABLE, OutputKind.MATERIALIZED_VIEW)
    }
    for name in names:
        short = graph.short_name(name)
        if short in tables:
            continue
        if short in graph.outputs and graph.outputs[short].kind is OutputKind.SINK:
            why = f"{name} is a sink, which cannot be emptied; to write all records again, rename its flow"
            raise ConfigError("--full-refresh", why)
        near = get_close_matches(short, tables, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the tables are {', '.join(sorted(tables))}"
        raise ConfigError("--full-refresh", f"there is no table {name}; {hint}")


def check_earlier_flows(
    graph: PipelineGraph, earlier: Mapping[str, Iterable[str]], refreshed: Iterable[str]
) -> None:
    """Raise ConfigError if a file table was written by another flow: Spark would skip the first batches of this one.

    `earlier` maps tables to the flows that have checkpoints. `refreshed` are the tables of --full-refresh.
    """
    exempt = {graph.short_name(name) for name in refreshed}
    for name, output in graph.outputs.items():
        is_file_table = (output.format or DEFAULT_FORMAT).lower() in FILE_FORMATS
        if output.kind is not OutputKind.TABLE or name in exempt or not is_file_table:
            continue
        # Spark names a checkpoint after the last part of the flow's name.
        flows = {name_parts(flow.name)[-1]: flow for flow in graph.flows_into(name)}
        written = {flow.lower() for flow in earlier.get(name, ())}
        others = sorted(written - flows.keys())
        new = [flow for flow in flows if flow not in written]
        if others and new:
            raise ConfigError(
                flows[new[0]].location,
                f"the table {name} was written by the flow {others[0]}, and {new[0]} cannot continue its checkpoint; "
                f"rename the flow to {others[0]}, or compute the table again: --full-refresh {name}",
            )


def missing_topic_hint(name: str, topics: Iterable[str]) -> str:
    by_lower = {topic.lower(): topic for topic in sorted(topics)}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    if near:
        return f"did you mean {by_lower[near[0]]}?"
    return f"create it: {create_command(name)}"


def create_command(topic: str) -> str:
    return f"barnabas topics create {topic}"


def topics_by_name(graph: PipelineGraph, topics: Iterable[str]) -> dict[str, str]:
    """Return the names that the pipeline reads and that are topics: short name → topic.

    A name that the pipeline defines is not a topic. Names ignore case, as in Spark; of topics that differ only in case,
    the first in sort order counts.
    """
    by_lower = {topic.lower(): topic for topic in sorted(topics, reverse=True)}
    named = {
        *graph.stream_reads, *graph.table_reads, *graph.sql_stream_reads, *graph.sql_table_reads
    }  # fmt: skip
    return {
        name: by_lower[name] for name in sorted(named - graph.outputs.keys()) if name in by_lower
    }


def topics_used(graph: PipelineGraph) -> set[str]:
    """Return the topics that the flows read, and those of the sinks."""
    sinks = {output.topic for output in graph.outputs.values() if output.topic is not None}
    return graph.topics_read | sinks


def plan_topic_views(graph: PipelineGraph, topics: Mapping[str, str]) -> dict[str, bool]:
    """Return the topics that SQL reads, and whether as a stream. `topics` is the result of `topics_by_name`.

    A view is either a stream or a table, and SQL text is not rewritten. So SQL cannot read a topic both ways.
    """
    views = {}
    for name, topic in topics.items():
        if name in graph.sql_stream_reads and name in graph.sql_table_reads:
            raise ConfigError(
                graph.sql_table_reads[name],
                f"SQL reads the topic {topic} as a table here, and as a stream in {graph.sql_stream_reads[name]}; "
                f'read one of them in Python: spark.read.table("{topic}")',
            )
        if name in graph.sql_stream_reads or name in graph.sql_table_reads:
            views[topic] = name in graph.sql_stream_reads
    return views
