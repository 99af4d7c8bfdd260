from __future__ import annotations

from barnabas.errors import BarnabasError
from barnabas.pipelines.failure import PipelineFailed
from barnabas.pipelines.progress import RunProgress, flow_text

REPORT = {
    "name": "spark_catalog.default.t",
    "batchId": 7,
    "numInputRows": 3,
    "processedRowsPerSecond": 12.34,
    "durationMs": {"triggerExecution": 212},
    "sources": [{"endOffset": {"orders": {"0": 3}}, "latestOffset": {"orders": {"0": 10}}}],
}


def test_reports_add_rows_and_replace_rates() -> None:
    progress = RunProgress()
    progress.apply_event("Flow spark_catalog.default.t is RUNNING.")
    progress.apply_report(REPORT)
    flow = progress.apply_report(REPORT)
    assert flow_text(flow) == "t: running, 6 rows, 12 rows/s, lag 7, batch 7 in 212 ms"
    assert progress.documents() == [
        {
            "flow": "t",
            "state": "RUNNING",
            "rows": 6,
            "rows_per_second": 12.3,
            "lag": 7,
            "batch": 7,
            "batch_ms": 212,
            "error": None,
        }
    ]


def test_completion_counts_only_if_no_failure_follows() -> None:
    progress = RunProgress()
    for flow in ("t", "u"):
        progress.apply_event(f"Flow {flow} is RUNNING.")
        assert progress.apply_event(f"Flow {flow} has COMPLETED.") is None
    assert progress.fail("u", "no space left") is not None
    assert progress.fail("u", "no space left") is None
    assert [flow.flow for flow in progress.completed_flows()] == ["t"]


def test_flow_that_completes_in_a_later_attempt_has_not_failed() -> None:
    progress = RunProgress()
    failures: dict[str, BarnabasError] = {}
    for flow in ("default.t", "default.u"):
        failures[flow] = PipelineFailed(f"{flow}: no broker reached")
        assert progress.fail(flow, "no broker reached") is not None
    for state in ("is STARTING", "is RUNNING", "has COMPLETED"):
        progress.apply_event(f"Flow default.t {state}.")
    assert [(flow.flow, flow.error) for flow in progress.completed_flows()] == [("t", None)]
    assert progress.first_failure(failures) is failures["default.u"]
    progress.apply_event("Flow default.u has COMPLETED.")
    assert progress.first_failure(failures) is None


def test_next_run_keeps_flows_and_resets_rows() -> None:
    progress = RunProgress()
    progress.apply_report(REPORT)
    progress.fail("t", "x")
    progress.begin_run()
    assert (progress.flows["t"].state, progress.flows["t"].rows) == ("QUEUED", 0)
    assert progress.flows["t"].error is None
