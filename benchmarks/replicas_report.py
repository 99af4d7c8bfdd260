"""Report of the replication benchmark: a table and JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks.controller_report import cells, measurements, ratio, write_measurements
from benchmarks.kafka import KAFKA, OURS, Found
from benchmarks.kafka_report import unit_of

UNITS = {
    "mb_per_s": "MB/s",
    "cpu_s_per_gb": "CPU-s/GB of three brokers",
    "share": "",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "percent_of_a_core": "% of a core",
}
LIMITS = {
    "share": (">=", 0.4),
    "p99_ms": ("<=", 25.0),
    "percent_of_a_core": ("<=", 10.0),
}
"""Targets for the numbers of Barnabas, by unit."""
RATIO_LIMITS = {"mb_per_s": (">=", 1.0), "p99_ms": ("<=", 1.0)}
"""Targets for Barnabas ÷ Kafka with acks=all, by unit."""


def table(found: Found) -> Iterator[str]:
    yield f"{'':55} {'ours':>8} {'spread':<14} {'Kafka':>8} {'spread':<14} {'ratio':>6}  target"
    for name, sides in found.items():
        value = ratio(found, name)
        yield (
            f"{label(name):55} {cells(sides[OURS])} {cells(sides[KAFKA])} "
            f"{'' if value is None else format(value, '.2f'):>6}  {target_text(found, name)}"
        ).rstrip()


def label(name: str) -> str:
    *parts, unit = name.split("/")
    return ", ".join(part for part in (" ".join(parts), UNITS[unit]) if part)


def target_text(found: Found, name: str) -> str:
    """Return both targets and whether they were met."""
    texts = []
    unit = unit_of(name)
    if unit in LIMITS and found[name][OURS]:
        texts.append(format_target(statistics.median(found[name][OURS]), *LIMITS[unit], "ours"))
    value = ratio(found, name)
    if unit in RATIO_LIMITS and "acks=all" in name and value is not None:
        texts.append(format_target(value, *RATIO_LIMITS[unit], "ratio"))
    return ", ".join(texts)


def format_target(value: float, sign: str, limit: float, what: str) -> str:
    is_reached = value >= limit if sign == ">=" else value <= limit
    return f"{what} {'≥' if sign == '>=' else '≤'}{limit:g} {'✓' if is_reached else '✗'}"


def write_json(path: Path, found: Found, *, quick: bool) -> None:
    write_measurements(path, measurements(found, target_text), quick=quick)
