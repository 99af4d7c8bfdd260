"""The harness of the Spark benchmarks; whole jobs are run by `python -m benchmarks spark`."""

from __future__ import annotations

import time

import pytest

from barnabas.batch.header import batch_headers
from benchmarks import jobs, spark, spark_decode


@pytest.mark.parametrize("shape", spark_decode.SHAPES[-5:-3], ids=str)
def test_shape_matches_its_description(shape: spark_decode.Shape) -> None:
    data, count = spark_decode.build_fetch(shape)
    found = [header for _, header in batch_headers(data)]
    assert sum(header.count for header in found) == count
    assert {header.compression for header in found} == {shape.codec}
    assert spark_decode.rate(shape, runs=1) > 0


def test_cpu_share_of_other_processes_is_plausible() -> None:
    # The kernel counts CPU time in ticks, so the share is exact only over many of them.
    until_s = time.monotonic() + 0.5
    with spark.CpuMeter() as machine:
        while time.monotonic() < until_s:
            sum(range(10_000))
    assert 0 <= machine.others <= 1.5
    assert machine.wall_s > 0


def test_measurement_is_one_line_with_spread() -> None:
    measured = spark.Measurement(
        "count, 100 B", "rows/s", "≥1,000,000", [2e6, 1e6, 3e6], [0.25], [0.7]
    )
    _, line = spark.table([measured])
    assert "2,000,000  1,000,000–3,000,000" in line
    assert "25%" in line


def test_job_is_one_line_with_its_rate() -> None:
    timing = jobs.Timing("archive", "≥300,000 records/s", 1_000_000, [2.0, 4.0, 3.0])
    _, line = jobs.table([timing])
    assert "3.00   2.00–4.00       333,333  ≥300,000 records/s" in line
