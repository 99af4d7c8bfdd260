"""Report of the measurements: a table, and JSON with a description of the machine."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

import barnabas
from benchmarks.loads import format_size
from benchmarks.suite import Extent, floor_name, load_name
from benchmarks.targets import ABSOLUTE, Verdict, judge, summary, summary_json, verdict_json

Measurements = Mapping[str, list[float]]

NAMES = {
    "start/process/s": "process start to first record, s",
    "start/local_cluster/s": "LocalCluster to first record, with imports, s",
    "start/local_cluster_imported/s": "LocalCluster to first record, imports done, s",
}
BUSY = "busy_cores"
UNITS = {
    "mb_per_s": "MB/s",
    "cpu_s_per_gb": "CPU-s/GB",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "resident_mb": "resident MB",
    "percent_of_a_core": "% of a core",
    "s": "start after kill -9, s",
    BUSY: "cores busy",
    "s_per_gb": "s per GB more than after a clean stop",
}


def table(found: Measurements, extent: Extent) -> Iterator[str]:
    yield from summary(verdicts(found))
    yield ""
    for direction in ("produce", "fetch"):
        yield from direction_table(found, extent, direction)
        yield ""
    yield f"{'':50} {'median':>8}  {'spread':<15} {'target':<8}".rstrip()
    for name, values in found.items():
        if name.split("/")[0] in ("frames", "librdkafka", "floor") or unit_of(name) == BUSY:
            continue
        low, middle, high = (format_value(value) for value in spread(values))
        row = (
            f"{label(name):50} {middle:>8}  {low + '–' + high:<15} {verdict_on(name, values) or ''}"
        )
        yield row.rstrip()


def direction_table(found: Measurements, extent: Extent, direction: str) -> Iterator[str]:
    """Yield the throughput of the loads. The floor is the cost of the kernel alone (see floor.py)."""
    yield f"{direction:15}|{' prebuilt frames':48}|{' floor':14}| librdkafka"
    columns = f"{'MB/s':>6} {'spread':10}{'CPU-s/GB':>8} {'spread':9}"
    yield f"record batch p.|{columns} {'target':11} |{'MB/s':>5}{'CPU-s/GB':>9}|{columns}".rstrip()
    for record in extent.record_sizes:
        for partitions in extent.partitions:
            for batch in extent.batch_sizes:
                ours = load_name("frames", direction, record, batch, partitions)
                theirs = load_name("librdkafka", direction, record, batch, partitions)
                cpu = f"{ours}/cpu_s_per_gb"
                yield (
                    f"{format_size(record):>6} {format_size(batch):>5} {partitions:2}|{throughput_cells(found, ours)} "
                    f"{verdict_on(cpu, found[cpu]) or ''!s:11} |{floor_cells(found, floor_name(direction, batch))}"
                    f"|{throughput_cells(found, theirs)}"
                ).rstrip()


def throughput_cells(found: Measurements, name: str) -> str:
    low, middle, high = spread(found[f"{name}/mb_per_s"])
    cpu_low, cpu_middle, cpu_high = spread(found[f"{name}/cpu_s_per_gb"])
    return (
        f"{middle:6.0f} {f'{low:.0f}–{high:.0f}':10}"
        f"{cpu_middle:8.2f} {f'{cpu_low:.2f}–{cpu_high:.2f}':9}"
    )


def floor_cells(found: Measurements, name: str) -> str:
    speed, cpu = (
        statistics.median(found[f"{name}/{unit}"]) for unit in ("mb_per_s", "cpu_s_per_gb")
    )
    return f"{speed:5.0f}{cpu:9.2f}"


def verdicts(found: Measurements) -> list[Verdict]:
    return [verdict for name, values in found.items() if (verdict := verdict_on(name, values))]


def verdict_on(name: str, values: list[float]) -> Verdict | None:
    """Return the verdict on a measurement, or None if it has no target."""
    return judge(ABSOLUTE, name, label(name), statistics.median(values))


def unit_of(name: str) -> str:
    return name.rpartition("/")[2]


def label(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    *parts, unit = name.split("/")
    return f"{' '.join(parts)}, {UNITS[unit]}"


def spread(values: list[float]) -> tuple[float, float, float]:
    return min(values), statistics.median(values), max(values)


def format_value(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def write_json(path: Path, found: Measurements, *, quick: bool, repeat: int) -> None:
    measurements: dict[str, dict[str, object]] = {}
    for name, values in found.items():
        low, middle, high = spread(values)
        measurements[name] = {
            "median": middle,
            "min": low,
            "max": high,
            "values": values,
            **verdict_json(verdict_on(name, values)),
        }
    content = {
        "machine": machine(),
        "quick": quick,
        "repeat": repeat,
        "summary": summary_json(verdicts(found)),
        "measurements": measurements,
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def machine() -> dict[str, str | int | float | None]:
    """Describe the machine by what affects the numbers. Contains nothing that identifies its owner."""
    return {
        "cores": os.cpu_count(),
        "cpu": cpu_model(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": platform.system(),
        "python": platform.python_version(),
        "code": str(barnabas.code_mode),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
    }


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def commit() -> str | None:
    """Return the current commit, with a + if files in src differ from it."""
    directory = Path(__file__).parent

    def git(*arguments: str) -> str:
        run = subprocess.run(
            ["git", *arguments], cwd=directory, capture_output=True, text=True, check=True
        )
        return run.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "../src")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
