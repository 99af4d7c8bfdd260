"""Report of the comparison with Kafka: a table, JSON and a plot of the ratios."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.kafka import KAFKA, OURS, Found
from benchmarks.report import BUSY, format_value, machine, spread, unit_of
from benchmarks.targets import RATIO, Verdict, judge, summary, summary_json, verdict_json

UNITS = {
    "mb_per_s": "MB/s",
    "rows_per_s": "rows/s",
    "commits_per_s": "commits/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "latestOffset_ms": "latestOffset ms",
    "commitOffsets_ms": "commitOffsets ms",
    "cpu_s_per_gb": "CPU-s/GB",
    BUSY: "cores busy",
    "s": "s",
    "resident_mb": "MB resident",
    "share": "ratio",
    "percent_of_a_core": "% of a core",
}
COLOURS = {None: "tab:grey", True: "tab:green", False: "tab:red"}


def ratio(found: Found, name: str) -> float:
    return statistics.median(found[name][OURS]) / statistics.median(found[name][KAFKA])


def verdict_on(found: Found, name: str) -> Verdict | None:
    """Return the verdict on the ratio of a measurement, or None if it has no target."""
    busy = found.get(busy_name(name), {OURS: []})[OURS]
    busy_cores = statistics.median(busy) if busy else None
    return judge(RATIO, name, label(name), ratio(found, name), busy_cores)


def verdicts(found: Found) -> list[Verdict]:
    return [verdict for name in found if (verdict := verdict_on(found, name))]


def is_shown(name: str) -> bool:
    """Return whether a measurement has its own row. Busy cores are in the row of the speed."""
    return unit_of(name) != BUSY


def busy_name(name: str) -> str:
    return f"{name.rpartition('/')[0]}/{BUSY}"


def label(name: str) -> str:
    *parts, unit = name.split("/")
    return f"{' '.join(parts)}, {UNITS[unit]}"


def table(found: Found) -> Iterator[str]:
    """Yield a summary and one line per measurement. If a broker keeps few cores busy, the client limits the speed."""
    yield from summary(verdicts(found))
    yield ""
    yield (
        f"{'':43} {'ours':>8} {'spread':<15} {'Kafka':>8} {'spread':<15} {'ratio':>6}  "
        f"{'cores busy':<10}  target"
    )
    for name, sides in found.items():
        if is_shown(name):
            yield (
                f"{label(name):43} {cells(sides[OURS])} {cells(sides[KAFKA])} {ratio(found, name):6.2f}  "
                f"{busy_cores(found, name):<10}  {verdict_on(found, name) or ''}"
            ).rstrip()


def busy_cores(found: Found, name: str) -> str:
    """Return the CPU seconds per second of each broker under this load: Barnabas, Kafka."""
    busy = found.get(busy_name(name))
    if unit_of(name) != "mb_per_s" or busy is None:
        return ""
    return ", ".join(f"{statistics.median(busy[side]):.2f}" for side in (OURS, KAFKA))


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
            **verdict_json(verdict_on(found, name)),
            **{
                side: dict(zip(("min", "median", "max"), spread(values), strict=True))
                | {"values": values}
                for side, values in sides.items()
            },
        }
        for name, sides in found.items()
    }
    content = {
        "machine": machine(),
        "quick": quick,
        "summary": summary_json(verdicts(found)),
        "measurements": measurements,
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def plot_rows(found: Found) -> dict[str, list[str]]:
    """Return the names of the measurements by row: the loads of one kind, direction and unit."""
    rows: dict[str, list[str]] = {}
    for name in filter(is_shown, found):
        rows.setdefault(label("/".join((*name.split("/")[:2], unit_of(name)))), []).append(name)
    return rows


def draw(path: Path, found: Found) -> Path:
    """Draw one dot per ratio and one row per kind of load. Green dots meet their target, red ones do not."""
    mpl.rcParams["svg.hashsalt"] = "barnabas"
    rows = plot_rows(found)
    figure = Figure(figsize=(9, 1.2 + 0.24 * len(rows)), layout="constrained")
    panel = figure.subplots()
    for at, names in enumerate(reversed(rows.values())):
        for name in names:
            verdict = verdict_on(found, name)
            colour = COLOURS[verdict.is_met if verdict else None]
            panel.plot(ratio(found, name), at, "o", color=colour, alpha=0.7, markersize=5)
            if verdict:
                panel.plot([verdict.target.limit] * 2, [at - 0.4, at + 0.4], color="black")
    panel.set_yticks(range(len(rows)), list(reversed(rows)), fontsize=8)
    panel.set_xscale("log")
    panel.margins(x=0.1, y=0.01)
    panel.axvline(1, color="black", linewidth=0.5)
    panel.grid(visible=True, axis="x", which="both", alpha=0.3)
    panel.set_xlabel("Barnabas ÷ Kafka; the bar is the target, green dots meet it")
    figure.savefig(path)
    return path
