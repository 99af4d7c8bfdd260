"""Errors of a pipeline as one line with file and line, and the next step. Pure.

A definition that fails raises a Python exception in this process. A flow that fails is reported as an event. Its
message names the flow, and contains the error of Spark.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from pathlib import PurePath

from barnabas.errors import BarnabasError, ConfigError
from barnabas.pipelines.graph import (
    UNKNOWN_TOPIC,
    OutputKind,
    PipelineGraph,
    create_command,
    missing_topic_hint,
)
from barnabas.spark.error_text import LABEL, message_lines, python_cause
from barnabas.spark.ranges import DELETED_TOPIC
from barnabas.spark.tables import quote_topic

FLOW_FAILURE = re.compile(
    r"(?:Failed to resolve flow(?P<upstream> due to upstream failure)?: '(?P<unresolved>[^']+)'"
    r"|Flow '?(?P<failed>[^' ]+)'? (?:has FAILED|had streaming sources added or removed))"
    r"[^\n]*\n+(?:Error: )?(?P<error>.*)",
    re.DOTALL,
)
MISSING_TABLE = re.compile(r"table or view (?P<name>.+?) cannot be found")
CHECKPOINT_MISMATCH = (
    (
        re.compile(r"There are \[?(\d+)\]? sources in the checkpoint offsets and now there are \[?(\d+)\]?"),
        "reads another number of sources than before",
    ),
    (
        re.compile(r"STATE_STORE_\w*SCHEMA|STATE_SCHEMA|state schema|STREAMING_STATEFUL_OPERATOR\w*", re.IGNORECASE),
        "has other stateful operators than before (an aggregation, join or deduplication)",
    ),
)  # fmt: skip
LOST_RECORDS = re.compile(
    r"offsets(?: \d+ to \d+)? of (?P<topic>\S+)-\d+ are gone: .+?(?=; set failOnDataLoss|$)",
    re.MULTILINE,
)
WRAPPERS = re.compile(
    r"Query \[id = [^\]]*\] terminated with exception: "
    r"|Job aborted due to stage failure: Task .*?\(TID \d+\) \([^)]*\): "
    r"|^(?:[\w$]+\.)+[\w$]*(?:Exception|Error): "
)
"""Texts around the cause of a failed stream. The ids in them differ at every attempt."""
GRPC_ERROR = re.compile(
    r'<\w+ of RPC that terminated with:\s+status = StatusCode\.(?P<code>\w+)\s+details = "(?P<details>.*)"'
)
QUERY_DETAILS = "=== Streaming Query ==="
QUERY_NAME = re.compile(r"Identifier: (?P<flow>\S+) \[id = ")
NO_PACKAGE = re.compile(r"No module named '(?:pyspark_)?barnabas")
MESSAGE_MAX = 400


class PipelineFailed(BarnabasError):
    """A flow of the pipeline failed while it ran."""


def first_line(text: str) -> str:
    """Return the first line of an error of Spark or gRPC, without its label and the query plan."""
    if rpc := GRPC_ERROR.match(text):
        return rpc["details"] or rpc["code"]
    found = message_lines(text.partition(QUERY_DETAILS)[0].strip())[0].strip()
    while (shorter := WRAPPERS.sub("", found, count=1)) != found:
        found = LABEL.sub("", shorter)
    found = found.rstrip("; ")
    return found if len(found) <= MESSAGE_MAX else found[: MESSAGE_MAX - 1] + "…"


def definition_error(error: BaseException, directory: PurePath, file: PurePath) -> ConfigError:
    """Return the error of a pipeline file, with the innermost line that is in the project's directory."""
    if isinstance(error, ConfigError):
        return error
    line = 0
    if isinstance(error, SyntaxError) and error.filename:
        file, line = PurePath(error.filename), error.lineno or 0
        message = f"SyntaxError: {error.msg}"
    else:
        for frame in traceback.extract_tb(error.__traceback__):
            if PurePath(frame.filename).is_relative_to(directory):
                file, line = PurePath(frame.filename), frame.lineno or 0
        text = str(error)
        is_spark = LABEL.match(text) is not None or "\n" in text
        message = first_line(text) if is_spark else f"{type(error).__name__}: {text}"
    if line == 0 and (found := re.search(r"line (\d+), pos", str(error))):
        line = int(found[1])
    where = str(file.relative_to(directory)) if file.is_relative_to(directory) else str(file)
    return ConfigError(f"{where}:{line}" if line else where, message)


def explain_flow_failure(
    event: str, graph: PipelineGraph, topics: Iterable[str]
) -> tuple[str, BarnabasError] | None:
    """Return the flow and the error that an event reports, or None if it reports none, or that of an earlier flow."""
    found = FLOW_FAILURE.search(event)
    if found is None or found["upstream"]:
        return None
    flow = found["unresolved"] or found["failed"]
    return flow, flow_error(
        flow, found["error"], graph, topics, is_definition=bool(found["unresolved"])
    )


def explain_run_failure(
    text: str, graph: PipelineGraph, topics: Iterable[str]
) -> tuple[str | None, BarnabasError]:
    """Return the flow, if the error of a run names it, and the error."""
    found = QUERY_NAME.search(text)
    if found is None:
        return None, PipelineFailed(first_line(text))
    return found["flow"], flow_error(found["flow"], text, graph, topics, is_definition=False)


def flow_error(
    flow: str, text: str, graph: PipelineGraph, topics: Iterable[str], *, is_definition: bool
) -> BarnabasError:
    location = graph.location_of(flow)
    name = graph.short_name(flow)
    where = f"flow {name}" if location is None else f"{location}: flow {name}"
    if missing := MISSING_TABLE.search(text):
        table = graph.short_name(missing["name"])
        deleted = next((each for each in graph.deleted_topics if each.lower() == table), None)
        if deleted is not None and table not in graph.outputs:
            why = f"the topic {deleted} was deleted ({UNKNOWN_TOPIC})"
            return ConfigError(where, f"{why}; {way_out_of_deletion(deleted, name, graph)}")
        return ConfigError(where, explain_missing_table(table, name, graph, topics))
    if NO_PACKAGE.search(text):
        why = (
            "the workers of Spark cannot import barnabas; there, run: pip install 'barnabas[spark]'"
        )
        return PipelineFailed(f"{where}: {why}")
    target = graph.flows[name].target if name in graph.flows else name
    if lost := LOST_RECORDS.search(text):
        if lost[0].endswith(DELETED_TOPIC):
            hint = way_out_of_deletion(lost["topic"], name, graph)
        elif lost[0].endswith("does not select it any more"):
            hint = way_out(target, graph)
        else:
            hint = way_out_of_loss(target, graph)
        return ConfigError(where, f"{lost[0]}; {hint}")
    if cause := python_cause(text):
        if is_checkpoint_mismatch(str(cause)) is None:
            if isinstance(cause, ConfigError):
                return ConfigError(where, str(cause))
            return PipelineFailed(f"{where}: {cause}")
        text = str(cause)
    if reason := is_checkpoint_mismatch(text):
        return ConfigError(
            where, f"{reason}, so its checkpoint cannot be continued; {way_out(target, graph)}"
        )
    message = first_line(text)
    return ConfigError(where, message) if is_definition else PipelineFailed(f"{where}: {message}")


def explain_missing_table(
    table: str, flow: str, graph: PipelineGraph, topics: Iterable[str]
) -> str:
    """Return the reason and the next step if Spark cannot find a table. All names but the topics are short names."""
    if (output := graph.outputs.get(table)) is not None:
        return f"it cannot read {table}, because {output.location} defines it as a {output.kind}"
    known = {*topics, *graph.outputs} - {flow}
    if same := [topic for topic in sorted(known) if topic.lower() == table]:
        why = f"{same[0]} is a topic, but the SQL does not read it in a supported way"
        return f"{why}; after FROM or JOIN, write {quote_topic(same[0])}"
    hint = missing_topic_hint(table, known)
    return f"there is no table or topic {table} ({UNKNOWN_TOPIC}); {hint}"


def is_checkpoint_mismatch(text: str) -> str | None:
    """Return what changed if the text says that a checkpoint does not fit the flow, else None."""
    return next((reason for pattern, reason in CHECKPOINT_MISMATCH if pattern.search(text)), None)


def way_out(target: str, graph: PipelineGraph) -> str:
    if is_sink(target, graph):
        return "undo the change, or rename the flow: it then reads all records again"
    return f"undo the change, or compute the table again: --full-refresh {graph.short_name(target)}"


def way_out_of_loss(target: str, graph: PipelineGraph) -> str:
    """Return how to continue with the remaining records, if a topic has lost some."""
    if is_sink(target, graph):
        return "rename the flow: it then reads all remaining records again"
    table = graph.short_name(target)
    return f"to compute the table from the remaining records: --full-refresh {table}"


def way_out_of_deletion(topic: str, flow: str, graph: PipelineGraph) -> str:
    """Return how to continue if a flow reads a deleted topic. The offsets in its checkpoint do not fit a new one."""
    create = f"create it: {create_command(topic)}"
    target = graph.short_name(graph.flows[flow].target if flow in graph.flows else flow)
    output = graph.outputs.get(target)
    if output is None or output.kind is OutputKind.MATERIALIZED_VIEW:
        return create
    if output.kind is OutputKind.SINK:
        return f"{create}, and rename the flow: it then reads the new topic from its first record"
    tables = "the tables that read it" if output.kind is OutputKind.VIEW else "the table"
    names = "TABLE" if output.kind is OutputKind.VIEW else target
    return f"{create}, and compute {tables} again: --full-refresh {names}"


def is_sink(target: str, graph: PipelineGraph) -> bool:
    output = graph.outputs.get(graph.short_name(target))
    return output is not None and output.kind is OutputKind.SINK
