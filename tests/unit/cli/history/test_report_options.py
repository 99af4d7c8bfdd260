"""When `barnabas lifecycle report` uses Spark."""

from __future__ import annotations

from barnabas.cli.history.report import IN_PROCESS_EVENTS_MAX, needs_spark


def test_only_large_histories_and_a_master_need_spark() -> None:
    assert not needs_spark(IN_PROCESS_EVENTS_MAX, None)
    assert needs_spark(IN_PROCESS_EVENTS_MAX + 1, None)
    assert needs_spark(1, "local[2]")
