"""Report of the comparison with Kafka: a table, JSON and a plot of the ratios."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.kafka import KAFKA, OURS, Found
from benchmarks.report import format_value, machine, spread

TARGETS = {
    "mb_per_s": (">=", 1.0),
    "rows_per_s": (">=", 1.0),
    "p99_ms": ("<=", 1.0),
    "cpu_s_per_gb": ("<=", 1.0),
    "s": ("<=", 0.15),
    "resident_mb": ("<=", 0.2),
}
"""Targets for Barnabas ÷ Kafka, by unit."""
UNITS = {
    "mb_per_s": "MB/s",
    "rows_per_s": "rows/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "cpu_s_per_gb": "CPU-s/GB",
    "s": "s",
    "resident_mb": "MB resident",
}


def ratio(found: Found, name: str) -> float:
    return statistics.median(found[name][OURS]) / statistics.median(found[name][KAFKA])


def meets_target(name: str, value: float) -> bool | None:
    target = TARGETS.get(unit_of(name))
    if target is None:
        return None
    return value >= target[1] if target[0] == ">=" else value <= target[1]


def unit_of(name: str) -> str:
    return name.rpartition("/")[2]


def label(name: str) -> str:
    *parts, unit = name.split("/")
    return f"{' '.join(parts)}, {UNITS[unit]}"


def target_text(name: str) -> str:
    """Return the target, such as ≥1, or an empty text."""
    target = TARGETS.get(unit_of(name))
    return f"{'≥' if target[0] == '>=' else '≤'}{target[1]:g}" if target else ""


def table(found: Found) -> Iterator[str]:
    """Yield the lines. Throughput has the busy cores of both brokers: if few, the client is the limit."""
    yield (
        f"{'':47} {'ours':>8} {'spread':<15} {'Kafka':>8} {'spread':<15} {'ratio':>6}  {'target':<7} "
        "cores busy"
    )
    for name, sides in found.items():
        value = ratio(found, name)
        mark = {None: "", True: "✓", False: "✗"}[meets_target(name, value)]
        yield (
            f"{label(name):47} {cells(sides[OURS])} {cells(sides[KAFKA])} {value:6.2f}  "
            f"{target_text(name) + ' ' + mark:<7} {busy_cores(found, name)}"
        ).rstrip()


def busy_cores(found: Found, name: str) -> str:
    """Return the CPU seconds per second of each broker under this load: Barnabas, Kafka."""
    load, _, unit = name.rpartition("/")
    cost = found.get(f"{load}/cpu_s_per_gb")
    if unit != "mb_per_s" or cost is None:
        return ""
    middle = statistics.median
    shares = (middle(found[name][side]) / 1e3 * middle(cost[side]) for side in (OURS, KAFKA))
    return ", ".join(f"{share:.2f}" for share in shares)


def cells(values: list[float]) -> str:
    low, middle, high = (format_figure(value) for value in spread(values))
    return f"{middle:>8} {low + '–' + high:<15}"


def format_figure(value: float) -> str:
    """Format with three significant digits, or in thousands from 100,000 on."""
    return f"{value / 1e3:,.0f}k" if value >= 1e5 else format_value(value)


def write_json(path: Path, found: Found, *, quick: bool) -> None:
    measurements = {
        name: {
            "ratio": ratio(found, name),
            "target": target_text(name) or None,
            **{
                side: dict(zip(("min", "median", "max"), spread(values), strict=True))
                | {"values": values}
                for side, values in sides.items()
            },
        }
        for name, sides in found.items()
    }
    content = {"machine": machine(), "quick": quick, "measurements": measurements}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def draw(path: Path, found: Found) -> Path:
    """Draw one bar per ratio, starting at 1. Green bars meet their target, red ones do not."""
    mpl.rcParams["svg.hashsalt"] = "barnabas"
    names = list(found)[::-1]
    values = [ratio(found, name) for name in names]
    better = {None: "tab:grey", True: "tab:green", False: "tab:red"}
    figure = Figure(figsize=(9, 1.2 + 0.24 * len(names)), layout="constrained")
    panel = figure.subplots()
    panel.barh(
        range(len(names)),
        [value - 1 for value in values],
        left=1,
        color=[
            better[meets_target(name, value)] for name, value in zip(names, values, strict=True)
        ],
    )
    for at, (name, value) in enumerate(zip(names, values, strict=True)):
        panel.text(value, at, f" {value:.2f} ", va="center", ha="left" if value > 1 else "right")
        if (target := TARGETS.get(unit_of(name))) and target[1] != 1:
            panel.plot([target[1]] * 2, [at - 0.4, at + 0.4], color="black")
    panel.set_yticks(range(len(names)), [label(name) for name in names], fontsize=8)
    panel.set_xscale("log")
    panel.margins(x=0.15, y=0.01)
    panel.axvline(1, color="black")
    panel.grid(visible=True, axis="x", which="both", alpha=0.3)
    panel.set_xlabel("Barnabas ÷ Kafka; green: the target is met")
    figure.savefig(path)
    return path
