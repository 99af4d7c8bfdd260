"""Client of the Connect server: loads the files of a pipeline, and runs its graph."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark.sql.connect.proto as pb2
from pyspark.errors import PySparkException
from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.pipelines.block_session_mutations import block_session_mutations
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from barnabas.errors import BarnabasError
from barnabas.pipelines.failure import PipelineFailed, definition_error, first_line
from barnabas.pipelines.graph import PipelineGraph
from barnabas.pipelines.project import source_files
from barnabas.pipelines.registry import TopicRegistry
from barnabas.pipelines.spec import PipelineSpec

CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
RETRIES_MAX = 4
"""PySpark would retry for ten minutes, also after the server has ended, and when this process exits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinedGraph:
    id: str
    graph: PipelineGraph


class ProgressListener(StreamingQueryListener):  # type: ignore[misc]
    """Passes Spark's report of each micro-batch to a function. Spark calls it in a thread of the client."""

    def __init__(self, on_report: Callable[[Mapping[str, Any]], None]) -> None:
        self.on_report = on_report

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.on_report(json.loads(event.progress.json))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


class PipelineClient:
    """A session on a Connect server that can read and write topics."""

    def __init__(
        self,
        address: str,
        client_options: Mapping[str, str],
        on_report: Callable[[Mapping[str, Any]], None],
        *,
        has_source: bool,
        may_send_secrets: bool,
    ) -> None:
        """`client_options` are the options for topics of the cluster.

        `has_source`: the server shares the data source with all its sessions. `may_send_secrets`: the connection is
        encrypted, or does not leave this machine. Raises PySparkException if there is no such server.
        """
        # PySpark's functions then build expressions for Connect, not for a JVM in this process.
        os.environ[CONNECT_MODE] = "1"
        # The error follows.
        warnings.filterwarnings("ignore", module=r"pyspark\.sql\.connect\.client\.retries")
        self.client_options = client_options
        self.may_send_secrets = may_send_secrets
        # The builder would send requests before the retries are limited.
        self.spark = SparkSession(connection=address)
        policy = DefaultPolicy(max_retries=RETRIES_MAX, initial_backoff=50, max_backoff=2000)
        self.spark.client.set_retry_policies([policy])
        # PySpark's exit handler sends a request to a server that may have ended.
        atexit.unregister(self.spark.client._on_exit)
        SparkSession._set_default_and_active_session(self.spark)
        try:
            self.prepare_session(on_report, has_source=has_source)
        except PySparkException:
            self.spark.release_session_on_close = False  # there is none
            self.close()
            raise

    def prepare_session(
        self, on_report: Callable[[Mapping[str, Any]], None], *, has_source: bool
    ) -> None:
        self.spark.conf.set("spark.sql.connect.serverStacktrace.enabled", "false")
        # The stream of the listener breaks when the server ends.
        warnings.filterwarnings("ignore", module=r"pyspark\.sql\.connect\.streaming\.query")
        if not has_source:
            from pyspark_barnabas import DefaultSource

            self.spark.dataSource.register(DefaultSource)
        self.spark.streams.addListener(ProgressListener(on_report))

    def define(
        self,
        spec: PipelineSpec,
        directory: Path,
        topics: Collection[str],
        earlier_topics: Collection[str],
        storage: Path | None,
    ) -> DefinedGraph:
        """Load the files of the pipeline. Raises ConfigError with file and line.

        `earlier_topics` are those that earlier runs used. Flows store the ids of their topics in `storage`, if it is
        not None.
        """
        settings = {
            key: value
            for key, value in spec.configuration.items()
            if self.spark.conf.isModifiable(key)
        }
        graph_id = create_dataflow_graph(
            self.spark,
            default_catalog=spec.catalog,
            default_database=spec.database,
            sql_conf=settings,
        )
        registry = TopicRegistry(
            self.spark,
            graph_id,
            self.client_options,
            directory,
            storage,
            namespace=spec.namespace,
            may_send_secrets=self.may_send_secrets,
        )
        for file in source_files(spec, directory):
            try:
                with working_directory(directory), graph_element_registration_context(registry):
                    self.load(file, registry)
            except Exception as error:  # noqa: BLE001 - whatever the file raises
                raise definition_error(error, directory, file) from None
        return DefinedGraph(id=graph_id, graph=registry.finish(topics, earlier_topics))

    def load(self, file: Path, registry: TopicRegistry) -> None:
        if file.suffix == ".sql":
            text = file.read_text(encoding="utf-8")
            registry.register_sql(text, file.relative_to(registry.directory))
            return
        module_spec = importlib.util.spec_from_file_location(file.stem, file)
        assert module_spec is not None and module_spec.loader is not None
        module = importlib.util.module_from_spec(module_spec)
        module.__dict__["spark"] = self.spark
        context = add_pipeline_analysis_context(
            spark=self.spark, dataflow_graph_id=registry.graph_id, flow_name=None
        )
        with no_bytecode(), context, block_session_mutations():
            module_spec.loader.exec_module(module)

    def run(
        self, graph_id: str, *, storage: str, full_refresh: Sequence[str], dry: bool
    ) -> Iterator[str]:
        """Run the graph, and yield the messages of its events. Raises PySparkException if the run fails."""
        command = pb2.Command()
        command.pipeline_command.start_run.CopyFrom(
            pb2.PipelineCommand.StartRun(
                dataflow_graph_id=graph_id,
                full_refresh_selection=full_refresh,
                dry=dry,
                storage=storage,
            )
        )
        client = self.spark.client
        request = client._execute_plan_request_with_metadata()
        client._set_command_in_plan(request.plan, command)
        # PySpark's own iterator fails if the server also sends metrics of Python code.
        for result in client._execute_and_fetch_as_iterator(request, {}):
            if isinstance(result, dict) and "pipeline_event_result" in result:
                yield result["pipeline_event_result"].event.message

    def drop(self, graph_id: str) -> None:
        """Remove a graph from the server."""
        command = pb2.Command()
        command.pipeline_command.drop_dataflow_graph.dataflow_graph_id = graph_id
        with contextlib.suppress(PySparkException):
            self.spark.client.execute_command(command)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.spark.stop()


def run_error(error: Exception) -> BarnabasError:
    """Return an error of a run that no event has explained."""
    if isinstance(error, BarnabasError):
        return error
    return PipelineFailed(first_line(str(error)) or type(error).__name__)


@contextlib.contextmanager
def working_directory(path: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def no_bytecode() -> Iterator[None]:
    """Keep Python from writing __pycache__ into the project."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
