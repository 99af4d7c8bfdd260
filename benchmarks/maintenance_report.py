"""Report of the maintenance benchmark: a table and JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks.controller_report import cells, format_target, measurements, write_measurements
from benchmarks.kafka import KAFKA, OURS, Found

LIMITS = {
    "controlled shutdown": 3.0,
    "longest without a leader": 1.0,
    "failed records": 0.0,
    "copy rate ÷ throttle": 1.1,
    "p99 during ÷ before": 1.5,
}
"""Upper limits for Barnabas, by a part of the name."""


def table(found: Found) -> Iterator[str]:
    yield f"{'':62} {'ours':>8} {'spread':<14} {'Kafka':>8} {'spread':<14} target"
    for name, sides in found.items():
        what, _, unit = name.replace("/", ": ", 1).rpartition("/")
        label = what if unit in ("share", "count") else f"{what}, {unit.replace('_', ' ')}"
        yield f"{label:62} {cells(sides[OURS])} {cells(sides[KAFKA])} {target_text(found, name)}".rstrip()


def target_text(found: Found, name: str) -> str:
    """Return the target and whether it was met."""
    ours = found[name][OURS]
    limit = next((limit for part, limit in LIMITS.items() if part in name), None)
    return (
        format_target(statistics.median(ours), limit, "ours") if ours and limit is not None else ""
    )


def write_json(path: Path, found: Found, *, quick: bool) -> None:
    write_measurements(path, measurements(found, target_text), quick=quick)
