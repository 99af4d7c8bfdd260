"""Report of the replication benchmark: a table and JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks.controller_report import cells, measurements, ratio, write_measurements
from benchmarks.kafka import KAFKA, OURS, Found
from benchmarks.kafka_report import is_shown, label
from benchmarks.targets import RATIO, Targets, at_least, at_most, judge

OWN: Targets = {
    "replicas/": {"share": at_least(0.4), "p99_ms": at_most(25)},
    "idle/": {"percent_of_a_core": at_most(10)},
}
"""Targets for the numbers of Barnabas."""


def table(found: Found) -> Iterator[str]:
    yield f"{'':55} {'ours':>8} {'spread':<14} {'Kafka':>8} {'spread':<14} {'ratio':>6}  target"
    for name, sides in found.items():
        if not is_shown(name):
            continue
        value = ratio(found, name)
        yield (
            f"{label(name):55} {cells(sides[OURS])} {cells(sides[KAFKA])} "
            f"{'' if value is None else format(value, '.2f'):>6}  {target_text(found, name)}"
        ).rstrip()


def target_text(found: Found, name: str) -> str:
    """Return both targets and whether they are met."""
    texts = []
    if ours := found[name][OURS]:
        if verdict := judge(OWN, name, label(name), statistics.median(ours)):
            texts.append(f"ours {verdict}")
        value = ratio(found, name)
        if value is not None and (verdict := judge(RATIO, name, label(name), value)):
            texts.append(f"ratio {verdict}")
    return ", ".join(texts)


def write_json(path: Path, found: Found, *, quick: bool) -> None:
    write_measurements(path, measurements(found, target_text), quick=quick)
