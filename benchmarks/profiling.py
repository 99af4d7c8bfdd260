"""CPU profile of a broker under one load."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.broker import BenchmarkBroker
from benchmarks.frames import FrameDriver
from benchmarks.loads import TOPIC, Load

ROOT = Path(__file__).parents[1]
DUMP_TIMEOUT_S = 30
STARTED = ".started"  # the same in profiled_broker.py, whose import patches the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line or function of the profile. `count` is the number of calls or samples."""

    where: str
    function: str
    count: int
    own_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    requests: int
    rows: list[Row]

    @property
    def total_s(self) -> float:
        return sum(row.own_s for row in self.rows)

    def by_function(self) -> list[Row]:
        """Return one row per function, the most expensive first."""
        own_s: Counter[tuple[str, str]] = Counter()
        count: Counter[tuple[str, str]] = Counter()
        for row in self.rows:
            key = row.where.rpartition(":")[0], row.function
            own_s[key] += row.own_s  # type: ignore[assignment]  # seconds are counted in fractions
            count[key] += row.count
        return [
            Row(where=key[0], function=key[1], count=count[key], own_s=seconds)
            for key, seconds in own_s.most_common()
        ]


def start_profiler(broker: BenchmarkBroker, output: Path) -> None:
    os.kill(broker.pid, signal.SIGUSR1)
    wait_for_file(output.with_suffix(STARTED))


def wait_for_file(path: Path) -> None:
    deadline = time.monotonic() + DUMP_TIMEOUT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise RuntimeError("the broker does not respond to SIGUSR1")
        time.sleep(0.01)


def profile(
    direction: Literal["produce", "fetch"], load: Load, by: Literal["calls", "lines"]
) -> Profile:
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "profile.json"
        command = (sys.executable, "-m", "benchmarks.profiled_broker", by, str(output))
        with BenchmarkBroker(command=command) as broker:
            driver = FrameDriver(broker, broker.create_topic(TOPIC, load.partitions), load)
            driver.produce(load.warm_up_batches)
            if direction == "produce":
                start_profiler(broker, output)
                driver.produce(load.batches)
                requests = load.batches
            else:
                driver.produce(load.batches)
                frames, _ = driver.fetch_plan()
                start_profiler(broker, output)
                driver.fetch(frames)
                requests = len(frames)
            os.kill(broker.pid, signal.SIGUSR1)
            wait_for_file(output)
            driver.close()
            rows = json.loads(output.read_text())
    return Profile(
        requests=requests,
        rows=[
            Row(where=f"{short_path(file)}:{line}", function=function, count=count, own_s=own_s)
            for file, line, function, count, own_s in rows
        ],
    )


def short_path(file: str) -> str:
    """Return the path relative to src/barnabas or the project, or else its last two parts."""
    path = Path(file)
    for base in (ROOT / "src" / "barnabas", ROOT):
        if path.is_relative_to(base) and ".venv" not in path.parts:
            return str(path.relative_to(base))
    return "/".join(path.parts[-2:])


def profile_lines(found: Profile, by: Literal["calls", "lines"], top: int) -> list[str]:
    counted = "calls" if by == "calls" else "samples"
    out = [f"{'own s':>7} {'%':>5} {'µs/request':>10} {counted:>8}  where"]
    out += [profile_line(row, found) for row in found.by_function()[:top]]
    if by == "lines":
        out += ["", "by line"]
        out += [profile_line(row, found) for row in found.rows[:top]]
    out.append(f"{found.total_s:7.3f} s in {found.requests} requests")
    return out


def profile_line(row: Row, found: Profile) -> str:
    return (
        f"{row.own_s:7.3f} {row.own_s / found.total_s * 100:5.1f} "
        f"{row.own_s / found.requests * 1e6:10.2f} {row.count:8}  {row.where} {row.function}"
    )
