"""Report of the controller benchmark: a table, JSON, and a plot of creation time over partitions."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.kafka import KAFKA, OURS, Found
from benchmarks.report import format_value, machine, spread

LIMITS = {
    "create": 10.0,
    "delete": 10.0,
    "failover": 5.0,
    "controlled shutdown": 3.0,
    "memory": 50.0,
    "start/LocalCluster": 0.5,
}
"""Upper limits for Barnabas by start of the name, in the unit at its end."""
RATIO_LIMITS = {
    "create": 0.5,
    "delete": 0.5,
    "failover": 0.5,
    "reassign": 0.3,
    "controlled shutdown": 0.3,
}
"""Upper limits for Barnabas ÷ Kafka, by start of the name."""
GROWTH = "growth/"
COLOURS = {OURS: "tab:blue", KAFKA: "tab:orange"}


def table(found: Found) -> Iterator[str]:
    yield f"{'':45} {'ours':>8} {'spread':<14} {'Kafka':>8} {'spread':<14} {'ratio':>6}  target"
    for name, sides in found.items():
        *parts, unit = name.split("/")
        value = ratio(found, name)
        yield (
            f"{' '.join(parts) + ', ' + unit:45} {cells(sides[OURS])} {cells(sides[KAFKA])} "
            f"{'' if value is None else format(value, '.2f'):>6}  {target_text(found, name)}"
        ).rstrip()
    yield from (f"growth, {side}: {text}" for side, text in linearity(found).items())


def cells(values: list[float]) -> str:
    if not values:
        return f"{'':23}"
    low, middle, high = (format_value(value) for value in spread(values))
    return f"{middle:>8} {low + '–' + high if len(values) > 1 else '':<14}"


def ratio(found: Found, name: str) -> float | None:
    """Return Barnabas ÷ Kafka; None if a side was not measured, or Kafka's value is 0."""
    ours, kafka = found[name][OURS], found[name][KAFKA]
    base = statistics.median(kafka or [0])
    return statistics.median(ours) / base if ours and base else None


def target_text(found: Found, name: str) -> str:
    """Return both targets and whether they were met."""
    texts = []
    if (limit := find_limit(name, LIMITS)) is not None and found[name][OURS]:
        texts.append(format_target(statistics.median(found[name][OURS]), limit, "ours"))
    value = ratio(found, name)
    if (limit := find_limit(name, RATIO_LIMITS)) is not None and value is not None:
        texts.append(format_target(value, limit, "ratio"))
    return ", ".join(texts)


def find_limit(name: str, limits: dict[str, float]) -> float | None:
    return next((limit for start, limit in limits.items() if name.startswith(start)), None)


def format_target(value: float, limit: float, what: str) -> str:
    return f"{what} ≤{limit:g} {'✓' if value <= limit else '✗'}"


def curve(found: Found, side: str) -> list[tuple[int, float]]:
    """Return pairs of partitions and seconds until all of them were created."""
    return [
        (int(name.split("/")[1]), statistics.median(sides[side]))
        for name, sides in found.items()
        if name.startswith(GROWTH) and sides[side]
    ]


def linearity(found: Found) -> dict[str, str]:
    """Return the seconds per thousand partitions at the start and at the end, as text by side."""
    texts = {}
    for side in (OURS, KAFKA):
        points = [(0, 0.0), *curve(found, side)]
        paces = [
            1000 * (after[1] - before[1]) / (after[0] - before[0])
            for before, after in pairwise(points)
        ]
        if len(paces) > 1:
            texts[side] = (
                f"{paces[0]:.2f} s for the first thousand, {paces[-1]:.2f} s for the last, "
                f"{min(paces):.2f}–{max(paces):.2f} s between"
            )
    return texts


def measurements(
    found: Found, target_text: Callable[[Found, str], str]
) -> dict[str, dict[str, object]]:
    """Return for each name the values of both sides, the ratio and the target."""
    return {
        name: {
            "ratio": ratio(found, name),
            "target": target_text(found, name) or None,
            **{
                side: dict(zip(("min", "median", "max"), spread(values), strict=True))
                | {"values": values}
                for side, values in sides.items()
                if values
            },
        }
        for name, sides in found.items()
    }


def write_json(path: Path, found: Found, *, quick: bool) -> None:
    growth = linearity(found)
    write_measurements(path, measurements(found, target_text), quick=quick, growth=growth)


def write_measurements(
    path: Path, found: Mapping[str, object], *, quick: bool, **more: object
) -> None:
    content = {"machine": machine(), "quick": quick, **more, "measurements": found}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def draw(path: Path, found: Found) -> Path:
    """Plot seconds over partitions. The dotted line extrapolates the first step."""
    mpl.rcParams["svg.hashsalt"] = "barnabas"
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    panel = figure.subplots()
    for side, colour in COLOURS.items():
        points = curve(found, side)
        if not points:
            continue
        counts, seconds = zip(*points, strict=True)
        panel.plot(counts, seconds, color=colour, marker="o", label=side)
        linear = [seconds[0] * count / counts[0] for count in counts]
        panel.plot(counts, linear, color=colour, linestyle=":", alpha=0.6)
    panel.set_xlabel("partitions × 3 replicas; dotted: linear growth from the first step")
    panel.set_ylabel("seconds until every broker reports their leaders")
    panel.set_ylim(bottom=0)
    panel.grid(visible=True, alpha=0.3)
    panel.legend()
    figure.savefig(path)
    return path
