"""The benchmark of clusters in tests runs and reports every measurement. No figure is asserted."""

from __future__ import annotations

from benchmarks import testkit


def test_every_measurement_is_reported() -> None:
    found = testkit.measure(1, with_kafka=False)
    lines = list(testkit.table(found))
    assert len(lines) == 1 + len(found) == 8
    assert all(value > 0 for values in found.values() for value in values)
