"""The progress of every flow of a run, from events of the pipeline and reports of its streaming queries. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from barnabas.errors import BarnabasError
from barnabas.pipelines.names import DEFAULT_NAMESPACE, Namespace
from barnabas.spark.progress import lag

FLOW_EVENT = re.compile(r"Flow '?(?P<flow>[^' ]+)'? (?:is|has) (?P<state>[A-Z]+)")
RUN_EVENT = re.compile(r"Run (?:is|has) (?P<state>[A-Z]+)")


@dataclass(slots=True)
class FlowProgress:
    """`rows` is the number of input rows in this run; `lag` the number of offsets that are not read yet."""

    flow: str
    state: str = "QUEUED"
    rows: int = 0
    rows_per_second: float = 0.0
    lag: int | None = None
    batch: int | None = None
    batch_ms: int | None = None
    error: str | None = None


@dataclass(slots=True)
class RunProgress:
    flows: dict[str, FlowProgress] = field(default_factory=dict)
    state: str = "STARTING"
    namespace: Namespace = DEFAULT_NAMESPACE

    def apply_event(self, message: str) -> FlowProgress | None:
        """Apply an event of the pipeline. Returns the flow whose state changed, if any."""
        if found := RUN_EVENT.match(message):
            self.state = found["state"]
        found = FLOW_EVENT.match(message)
        if found is None:
            return None
        flow = self.flow(found["flow"])
        if flow.state == found["state"]:
            return None
        flow.state = found["state"]
        # Spark reports a failed stream as completed first, so the end of the run confirms this state.
        return None if flow.state == "COMPLETED" else flow

    def completed_flows(self) -> list[FlowProgress]:
        """Return the completed flows, at the end of a run. The error of an attempt that Spark repeated is removed."""
        completed = [flow for flow in self.flows.values() if flow.state == "COMPLETED"]
        for flow in completed:
            flow.error = None
        return completed

    def first_failure(self, failures: Mapping[str, BarnabasError]) -> BarnabasError | None:
        """Return the error of the first of these flows that has not completed after all, at the end of a run."""
        left = (error for flow, error in failures.items() if self.flow(flow).state != "COMPLETED")
        return next(left, None)

    def apply_report(self, report: Mapping[str, Any]) -> FlowProgress:
        """Apply Spark's report of one micro-batch."""
        flow = self.flow(str(report.get("name") or "stream"))
        flow.rows += int(report.get("numInputRows") or 0)
        flow.rows_per_second = round(float(report.get("processedRowsPerSecond") or 0.0), 1)
        flow.lag = lag(report.get("sources", ()))
        flow.batch = report.get("batchId")
        durations = report.get("durationMs") or {}
        flow.batch_ms = durations.get("triggerExecution", report.get("batchDuration"))
        return flow

    def fail(self, flow: str, error: str) -> FlowProgress | None:
        """Mark a flow as failed. Returns None if it failed with this error before: Spark tries it three times."""
        found = self.flow(flow)
        is_known, found.error = found.error == error, error
        found.state = "FAILED"
        return None if is_known else found

    def flow(self, name: str) -> FlowProgress:
        short = self.namespace.short_name(name)
        return self.flows.setdefault(short, FlowProgress(short))

    def begin_run(self) -> None:
        """Start another run: keep the last batch of every flow, and reset the states."""
        self.state = "STARTING"
        for flow in self.flows.values():
            flow.state, flow.rows, flow.error = "QUEUED", 0, None

    def documents(self) -> list[dict[str, Any]]:
        return [asdict(flow) for flow in self.flows.values()]


def total_rows(flows: Iterable[FlowProgress]) -> int:
    return sum(flow.rows for flow in flows)


def flow_text(flow: FlowProgress) -> str:
    """Return one line.

    >>> flow_text(FlowProgress("words", "COMPLETED", 4, 12.3, 0, 7, 212))
    'words: completed, 4 rows, 12 rows/s, lag 0, batch 7 in 212 ms'
    """
    parts = [f"{flow.flow}: {flow.state.lower()}"]
    if flow.batch is not None:
        noun = "row" if flow.rows == 1 else "rows"
        parts.append(f"{flow.rows:,} {noun}, {flow.rows_per_second:,.0f} rows/s")
        if flow.lag is not None:
            parts.append(f"lag {flow.lag:,}")
        parts.append(f"batch {flow.batch} in {flow.batch_ms} ms")
    if flow.error is not None:
        parts.append(flow.error)
    return ", ".join(parts)
