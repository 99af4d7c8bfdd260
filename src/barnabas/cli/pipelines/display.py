"""Progress of a pipeline: a table that is redrawn on a terminal, lines in a pipe, or JSON lines."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from barnabas.cli.terminal.output import (
    OutputFormat,
    format_table,
    print_lines,
    print_note,
    to_json,
)
from barnabas.errors import BarnabasError
from barnabas.pipelines.progress import FlowProgress, RunProgress, flow_text
from barnabas.progress_line import ProgressBlock
from barnabas.spark.run_state import RunState

DRAW_S = 0.5
SAVE_S = 1.0
FINAL_STATES = ("COMPLETED", "FAILED", "SKIPPED", "STOPPED")
PROGRESS_COLUMNS = ("flow", "state", "rows", "rows/s", "lag", "batch", "ms")


class Display:
    """Shows the changes of a run, and saves them in the state file. Spark's threads call it."""

    def __init__(
        self,
        output: OutputFormat,
        progress: RunProgress,
        state: RunState | None,
        about: dict[str, Any],
    ) -> None:
        self.output = output
        self.progress = progress
        self.state = state
        self.about = about
        self.lock = threading.Lock()
        self.block = (
            ProgressBlock(sys.stderr)
            if output is OutputFormat.TEXT and sys.stderr.isatty()
            else None
        )
        self.runs = self.failures = 0
        self.restarts = 0
        self.last_error: str | None = None
        self.draw_after = self.save_after = 0.0
        self.printed: dict[str, str] = {}
        """The last line of each flow in this run."""

    def flow_changed(self, flow: FlowProgress) -> None:
        with self.lock:
            if self.output is OutputFormat.JSON:
                print_lines(to_json({"event": "flow", **asdict(flow)}))
                return
            # The command reports the first failure when it ends.
            is_reported = flow.state == "FAILED" and not self.failures
            self.failures += flow.state == "FAILED"
            if self.block is None and flow.state in FINAL_STATES and not is_reported:
                # Spark's last report may arrive after the end of the flow, and changes nothing.
                text = flow_text(flow)
                if self.printed.get(flow.flow) != text:
                    self.printed[flow.flow] = text
                    print_lines(text)

    def run_changed(self, state: str) -> None:
        with self.lock:
            self.printed.clear()
            self.runs += state == "COMPLETED"
            if state == "COMPLETED":
                self.last_error = None
            if self.output is OutputFormat.JSON:
                print_lines(to_json({"event": "run", "state": state, "runs": self.runs}))

    def restarting(self, error: BarnabasError, pause_s: float) -> None:
        with self.lock:
            self.restarts += 1
            self.failures = 0
            self.last_error = str(error)
            # Nothing calls `tick` during the pause.
            self.progress.state = "FAILED"
            self.save()
            if self.output is OutputFormat.JSON:
                document = {"event": "restart", "error": str(error), "pause_s": round(pause_s, 1)}
                print_lines(to_json(document))
                return
            if self.block is not None:
                self.block.erase()
            print_note(f"error: {error}", f"starting again in {pause_s:.0f} s")

    def tick(self) -> None:
        now = time.monotonic()
        with self.lock:
            if self.block is not None and now > self.draw_after:
                self.draw_after = now + DRAW_S
                self.block.show(progress_table(self.progress.flows.values(), self.progress.state))
            if now > self.save_after:
                self.save_after = now + SAVE_S
                self.save()

    def save(self) -> None:
        if self.state is not None:
            self.state.save(self.document())

    def document(self) -> dict[str, Any]:
        return {
            **self.about,
            "state": self.progress.state,
            "runs": self.runs,
            "restarts": self.restarts,
            "error": self.last_error,
            "flows": self.progress.documents(),
        }

    def finish(self) -> None:
        with self.lock:
            if self.block is not None:
                self.block.erase()
                self.block = None
                print_lines(*(flow_text(flow) for flow in self.progress.flows.values()))


def progress_table(flows: Iterable[FlowProgress], state: str) -> Sequence[str]:
    rows = [
        (flow.flow, flow.state.lower(), flow.rows, flow.rows_per_second, flow.lag, flow.batch, flow.batch_ms)
        for flow in flows
    ]  # fmt: skip
    if not rows:
        return [f"pipeline: {state.lower()}"]
    return format_table(PROGRESS_COLUMNS, rows, null="-").split("\n")
