"""Collects the definitions of a pipeline, adds the brokers and the topics, and sends them to the Connect server.

PySpark's registry sends each definition at once. This one keeps the flows until all files are loaded, because only then
it is known which of the names that they read are topics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import pyspark.sql.connect.proto as pb2
from google.protobuf.message import Message
from pyspark.errors import PySparkException
from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.output import (
    MaterializedView,
    Output,
    Sink,
    StreamingTable,
    TemporaryView,
)
from pyspark.pipelines.source_code_location import SourceCodeLocation
from pyspark.pipelines.spark_connect_graph_element_registry import (
    SparkConnectGraphElementRegistry,
)

from barnabas.errors import ConfigError
from barnabas.pipelines.failure import flow_error
from barnabas.pipelines.graph import (
    FlowDefinition,
    OutputDefinition,
    OutputKind,
    PipelineGraph,
    plan_topic_views,
    topics_by_name,
)
from barnabas.pipelines.names import DEFAULT_NAMESPACE, Namespace
from barnabas.pipelines.sql_statements import find_definitions
from barnabas.pipelines.storage import topic_ids_directory
from barnabas.pipelines.topic_options import SERVERS_OPTION, added_options, check_secrets
from barnabas.spark.options import TOPIC_IDS_LOCATION
from barnabas.spark.tables import COLUMNS, quote_topic

SOURCE = "barnabas"
KINDS: dict[type, OutputKind] = {
    StreamingTable: OutputKind.TABLE,
    MaterializedView: OutputKind.MATERIALIZED_VIEW,
    TemporaryView: OutputKind.VIEW,
    Sink: OutputKind.SINK,
}


@dataclass(frozen=True, slots=True)
class PlannedFlow:
    """Stands for the DataFrame of a flow: PySpark's registry asks it for its plan."""

    relation: Any

    @property
    def _plan(self) -> PlannedFlow:
        return self

    def plan(self, _client: object) -> Any:
        return self.relation


class TopicRegistry(SparkConnectGraphElementRegistry):  # type: ignore[misc]
    def __init__(
        self,
        spark: Any,
        graph_id: str,
        client_options: Mapping[str, str],
        directory: PurePath,
        storage: Path | None = None,
        *,
        namespace: Namespace = DEFAULT_NAMESPACE,
        may_send_secrets: bool = True,
    ) -> None:
        """`client_options` are the options for topics of the cluster: its servers and its security settings.

        `storage` is the storage directory, if the server of Spark has it at the same path. Without `may_send_secrets`,
        definitions whose options have secrets are rejected.
        """
        super().__init__(spark, graph_id)
        self.spark = spark
        self.graph_id = graph_id
        self.client_options = client_options
        self.servers = client_options[SERVERS_OPTION]
        self.directory = directory
        self.storage = storage
        self.may_send_secrets = may_send_secrets
        self.graph = PipelineGraph(namespace=namespace)
        self.pending: list[tuple[Flow, Any]] = []

    # ---- called by the pipeline files ------------------------------------------------------------------------------

    def register_output(self, output: Output) -> None:
        topic = None
        if isinstance(output, Sink) and output.format == SOURCE:
            given = {name.lower(): value for name, value in output.options.items()}
            added = self.added_options(given, self.location(output.source_code_location))
            output = replace(output, options={**added, **output.options})
            # A sink for another cluster is not checked against the topics of this one.
            if given.get(SERVERS_OPTION, self.servers) == self.servers:
                topic = given.get("topic")
        self.graph.add_output(
            OutputDefinition(
                name=output.name,
                kind=KINDS[type(output)],
                location=self.location(output.source_code_location),
                format=getattr(output, "format", None),
                topic=topic,
            )
        )
        super().register_output(output)

    def register_flow(self, flow: Flow) -> None:
        with add_pipeline_analysis_context(
            spark=self.spark, dataflow_graph_id=self.graph_id, flow_name=flow.name
        ):
            frame = flow.func()
        location = self.add_flow(flow.name, flow.target, flow.source_code_location)
        if not hasattr(frame, "_plan"):
            why = f"flow {flow.name} returns {type(frame).__name__}, not a DataFrame"
            raise ConfigError(location, why)
        relation = frame._plan.plan(self._client)
        for message in messages_in(relation):
            if isinstance(message, pb2.Read):
                self.add_read(message, location)
            elif isinstance(message, pb2.SQL):
                found = find_definitions(message.query, location, self.graph.namespace)
                merge(self.graph.sql_stream_reads, dict.fromkeys(found.stream_reads, location))
                merge(self.graph.sql_table_reads, dict.fromkeys(found.table_reads, location))
        self.pending.append((flow, relation))

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        location = self.add_flow(flow.name or flow.target, flow.target, flow.source_code_location)
        merge(self.graph.stream_reads, {self.graph.short_name(flow.source): location})
        super().register_auto_cdc_flow(flow)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        found = find_definitions(sql_text, str(file_path), self.graph.namespace)
        for output in found.outputs:
            self.graph.add_output(output)
        for flow in found.flows:
            self.graph.add_flow(flow)
        merge(self.graph.sql_stream_reads, found.stream_reads)
        merge(self.graph.sql_table_reads, found.table_reads)
        super().register_sql(sql_text, file_path)

    # ---- after all files -------------------------------------------------------------------------------------------

    def finish(self, topics: Collection[str], earlier_topics: Collection[str]) -> PipelineGraph:
        """Replace the reads of topics by the source, and send the flows. Returns the graph.

        `earlier_topics` are those that earlier runs used.

        SQL is sent as text, so the topics that it reads become views. Python code gets no views: Spark cannot resolve
        them before the run, but operators such as withWatermark need the columns when the flow is defined.
        """
        self.graph.deleted_topics = set(earlier_topics).difference(topics)
        known = topics_by_name(self.graph, topics)
        for topic, streaming in plan_topic_views(self.graph, known).items():
            self.register_view(topic, streaming=streaming)
        self.graph.topics_read.update(known.values())
        for flow, relation in self.pending:
            self.add_topic_ids(flow, relation)
            for message in list(messages_in(relation)):
                if isinstance(message, pb2.Relation) and message.read.HasField("named_table"):
                    name = self.graph.short_name(message.read.named_table.unparsed_identifier)
                    if name in known:
                        is_streaming = message.read.is_streaming
                        topic_ids = self.topic_ids(flow) if is_streaming else None
                        frame = self.topic_frame(
                            known[name], streaming=is_streaming, topic_ids=topic_ids
                        )
                        message.CopyFrom(frame._plan.plan(self._client))
            try:
                self.send_flow(flow, relation)
            except PySparkException as error:
                raise flow_error(
                    flow.name, str(error), self.graph, topics, is_definition=True
                ) from None
        self.pending = []
        return self.graph

    def add_topic_ids(self, flow: Flow, relation: Any) -> None:
        """Set topicIdsLocation for the streams that a flow reads with `format("barnabas")`, unless the flow sets it.

        Two streams of the same topic must not share a directory, so each gets its own.
        """
        directory = self.topic_ids(flow)
        if directory is None:
            return
        sources = [
            message.data_source
            for message in messages_in(relation)
            if isinstance(message, pb2.Read)
            and message.is_streaming
            and message.data_source.format == SOURCE
        ]
        for number, source in enumerate(sources, 1):
            if TOPIC_IDS_LOCATION.lower() not in map(str.lower, source.options):
                source.options[TOPIC_IDS_LOCATION] = str(directory / str(number))

    def topic_ids(self, flow: Flow) -> Path | None:
        """Return where a flow stores the ids of its topics. Several flows can read a view, so it stores none."""
        output = self.graph.outputs.get(self.graph.short_name(flow.target))
        if self.storage is None or output is None or output.kind is OutputKind.VIEW:
            return None
        return topic_ids_directory(self.storage, flow.target, flow.name, self.graph.namespace)

    def topic_frame(self, topic: str, *, streaming: bool, topic_ids: Path | None = None) -> Any:
        options = self.added_options({}, f"topic {topic}")
        reader = (
            (self.spark.readStream if streaming else self.spark.read)
            .format(SOURCE)
            .options(**options)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
        )
        if topic_ids is not None:
            reader = reader.option(TOPIC_IDS_LOCATION, str(topic_ids))
        return reader.load().selectExpr(*COLUMNS)

    def register_view(self, topic: str, *, streaming: bool) -> None:
        frame = self.topic_frame(topic, streaming=streaming)
        name = quote_topic(topic)
        location = SourceCodeLocation(f"topic {topic}", None)
        super().register_output(
            TemporaryView(name=name, comment=None, source_code_location=location)
        )
        flow = Flow(
            name=name, target=name, spark_conf={}, source_code_location=location, func=lambda: frame
        )
        self.send_flow(flow, frame._plan.plan(self._client))

    def send_flow(self, flow: Flow, relation: Any) -> None:
        super().register_flow(replace(flow, func=lambda: PlannedFlow(relation)))

    # ---- reads -----------------------------------------------------------------------------------------------------

    def add_flow(self, name: str, target: str, at: SourceCodeLocation) -> str:
        """Record a flow, and return its location."""
        location = self.location(at)
        self.graph.add_flow(FlowDefinition(name=name, target=target, location=location))
        return location

    def add_read(self, read: Any, location: str) -> None:
        """Record a read of a table. A read of a topic by its options gets the brokers, if it has none."""
        if read.HasField("named_table"):
            reads = self.graph.stream_reads if read.is_streaming else self.graph.table_reads
            merge(reads, {self.graph.short_name(read.named_table.unparsed_identifier): location})
            return
        source = read.data_source
        if source.format != SOURCE:
            self.graph.has_other_sources = True
            return
        given = {name.lower(): value for name, value in source.options.items()}
        for name, value in self.added_options(given, location).items():
            source.options[name] = value
        topics = [topic.strip() for topic in given.get("subscribe", "").split(",")]
        if given.get(SERVERS_OPTION, self.servers) == self.servers and all(topics):
            self.graph.topics_read.update(topics)
        else:
            self.graph.has_other_sources = True

    def added_options(self, given: Mapping[str, str], location: str) -> dict[str, str]:
        """Return the options that a source or a sink gets. Raises ConfigError for secrets that must not be sent."""
        added = added_options(self.client_options, given)
        if not self.may_send_secrets:
            check_secrets({**given, **added}, location)
        return added

    def location(self, at: SourceCodeLocation) -> str:
        path = PurePath(at.filename)
        shown = path.relative_to(self.directory) if path.is_relative_to(self.directory) else path
        return f"{shown}:{at.line_number}"


def merge(found: dict[str, str], more: dict[str, str]) -> None:
    for name, location in more.items():
        found.setdefault(name, location)


def messages_in(message: Message) -> Iterator[Message]:
    """Yield a protobuf message and all messages inside it."""
    yield message
    for _, value in message.ListFields():
        if isinstance(value, Message):
            yield from messages_in(value)
        elif hasattr(value, "values"):
            for each in value.values():
                if isinstance(each, Message):
                    yield from messages_in(each)
        elif not isinstance(value, str | bytes | int | float):
            for each in value:
                if isinstance(each, Message):
                    yield from messages_in(each)
