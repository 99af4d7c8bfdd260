"""Plots of CPU-seconds per GB and of MB/s over the batch size."""

from __future__ import annotations

import itertools
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.loads import format_size
from benchmarks.report import Measurements, spread
from benchmarks.suite import CLIENTS, Extent, load_name

AXES = {
    "cpu_s_per_gb": "broker CPU-seconds per GB",
    "mb_per_s": "MB/s",
}
COLOURS = {"frames": "tab:blue", "librdkafka": "tab:orange"}
STYLES = {"produce": "-", "fetch": "--"}


def draw(directory: Path, found: Measurements, extent: Extent) -> list[Path]:
    """Draw one file per unit, with one panel per record size and partition count. Returns the files."""
    mpl.rcParams["svg.hashsalt"] = "barnabas"
    return [draw_one(directory / f"{unit}.svg", found, extent, unit) for unit in AXES]


def draw_one(path: Path, found: Measurements, extent: Extent, unit: str) -> Path:
    combinations = list(itertools.product(extent.record_sizes, extent.partitions))
    figure = Figure(figsize=(1.5 + 4 * len(combinations), 4), layout="constrained")
    panels = figure.subplots(1, len(combinations), squeeze=False, sharey=True)[0]
    for panel, (record, partitions) in zip(panels, combinations, strict=True):
        for way, direction in itertools.product(CLIENTS, STYLES):
            names = [
                load_name(way, direction, record, batch, partitions) for batch in extent.batch_sizes
            ]
            lows, middles, highs = zip(
                *(spread(found[f"{name}/{unit}"]) for name in names), strict=True
            )
            panel.errorbar(
                range(len(names)),
                middles,
                yerr=[
                    [middle - low for low, middle in zip(lows, middles, strict=True)],
                    [high - middle for middle, high in zip(middles, highs, strict=True)],
                ],
                label=f"{direction}, {way}",
                color=COLOURS[way],
                linestyle=STYLES[direction],
                marker="o",
                capsize=3,
            )
        panel.set_xticks(
            range(len(extent.batch_sizes)), [format_size(batch) for batch in extent.batch_sizes]
        )
        panel.set_title(
            f"{format_size(record)} records, {partitions} partition{'s'[: partitions - 1]}"
        )
        panel.set_xlabel("batch size")
        panel.set_yscale("log")
        panel.grid(visible=True, which="both", alpha=0.3)
    panels[0].set_ylabel(AXES[unit])
    panels[-1].legend()
    figure.savefig(path)
    return path
