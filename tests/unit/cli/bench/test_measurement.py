from __future__ import annotations

import pytest

from barnabas.cli.bench.commands import bench_text
from barnabas.cli.bench.measurement import Measurement, measured_fields, percentile


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.01, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)]
)
def test_percentile_of_1_to_100(share: float, expected: float) -> None:
    assert percentile([float(n) for n in range(100, 0, -1)], share) == expected


def test_rates_and_times() -> None:
    found = measured_fields(Measurement(2000, 4_000_000, 2.0, [0.001, 0.002, 0.25]))
    assert found == {
        "records": 2000,
        "bytes": 4_000_000,
        "seconds": 2.0,
        "records_per_second": 1000.0,
        "mb_per_second": 2.0,
        "p50_ms": 2.0,
        "p99_ms": 250.0,
    }
    shape = {"benchmark": "produce", "dry_run": False, "partitions": 1, "size": 2000}
    text = bench_text({**shape, **found})
    assert "1,000 records/s, 2.0 MB/s" in text
    assert "p50 2.00 ms, p99 250.00 ms" in text


def test_nothing_measured_has_no_rates() -> None:
    found = measured_fields(Measurement())
    assert (found["records_per_second"], found["p50_ms"]) == (None, None)
