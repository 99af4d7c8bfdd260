"""Targets of `make bench` and `make bench-kafka`, by the name of the measurement, and the verdict on a run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Target:
    """Limit for a value. A speed below it is no miss if the broker keeps fewer than `busy_cores_min` cores busy:
    then the client is the limit."""

    sign: Literal["≥", "≤"]
    limit: float
    busy_cores_min: float | None = None

    def is_met(self, value: float, busy_cores: float | None = None) -> bool:
        if value >= self.limit if self.sign == "≥" else value <= self.limit:
            return True
        if self.busy_cores_min is None or busy_cores is None:
            return False
        return busy_cores < self.busy_cores_min

    def __str__(self) -> str:
        text = f"{self.sign}{self.limit:g}"
        if self.busy_cores_min is None:
            return text
        return f"{text} or <{self.busy_cores_min:g} cores"


def at_least(limit: float, *, busy_cores_min: float | None = None) -> Target:
    return Target("≥", limit, busy_cores_min)


def at_most(limit: float) -> Target:
    return Target("≤", limit)


Targets = Mapping[str, Mapping[str, Target]]
"""Targets by regular expression for the start of the name, and by unit. The first expression that matches counts."""

ABSOLUTE: Targets = {
    r"frames/produce/\w+/128k/": {"cpu_s_per_gb": at_most(0.6)},
    r"frames/produce/\w+/16k/": {"cpu_s_per_gb": at_most(1.8)},
    r"varied/produce/100/16k/": {"cpu_s_per_gb": at_most(3.0)},
    r"(frames|varied)/fetch/": {"cpu_s_per_gb": at_most(0.2)},
    r"idle/0p/": {"resident_mb": at_most(40)},
    r"start/(process|local_cluster)/": {"s": at_most(0.2)},
}
"""Targets for the numbers of Barnabas."""

RATIO: Targets = {
    r"(frames|varied)/produce/": {"mb_per_s": at_least(1.5), "cpu_s_per_gb": at_most(0.5)},
    r"(frames|varied)-\w+/produce/": {"mb_per_s": at_least(1.2), "cpu_s_per_gb": at_most(0.8)},
    r"(frames|varied)(-\w+)?/fetch/": {"mb_per_s": at_least(1.0), "cpu_s_per_gb": at_most(1.0)},
    r"tls-frames/": {"mb_per_s": at_least(1.0), "cpu_s_per_gb": at_most(1.0)},
    r"tls-librdkafka/": {
        "mb_per_s": at_least(1.0, busy_cores_min=0.5),
        "cpu_s_per_gb": at_most(1.0),
    },
    r"(librdkafka|perf-test)/": {
        "mb_per_s": at_least(1.0, busy_cores_min=0.5),
        "cpu_s_per_gb": at_most(0.8),
    },
    r"replicas/acks=all/": {
        "mb_per_s": at_least(2.5),
        "cpu_s_per_gb": at_most(0.3),
        "p99_ms": at_most(0.5),
    },
    r"replicas/transactions/": {"commits_per_s": at_least(1.0)},
    r"latency/acks=1/": {"p99_ms": at_most(0.5)},
    r"spark/count/": {"rows_per_s": at_least(2.5)},
    r"spark/write/": {"rows_per_s": at_least(2.0)},
    r"spark/(parquet|copy)/": {"rows_per_s": at_least(1.5)},
    r"spark/latency/": {
        "p50_ms": at_most(0.8),
        "p99_ms": at_most(0.7),
        "latestOffset_ms": at_most(1.0),
        "commitOffsets_ms": at_most(1.0),
    },
}
"""Targets for Barnabas ÷ Kafka."""


def find_target(targets: Targets, name: str) -> Target | None:
    """Return the target of a measurement such as frames/produce/1k/128k/1p/cpu_s_per_gb."""
    units = next((units for start, units in targets.items() if re.match(start, name)), {})
    return units.get(name.rpartition("/")[2])


@dataclass(frozen=True, slots=True)
class Verdict:
    """A value with its target. `label` is the name for readers."""

    label: str
    value: float
    target: Target
    is_met: bool

    def __str__(self) -> str:
        return f"{self.target} {'met' if self.is_met else 'missed'}"


def judge(
    targets: Targets, name: str, label: str, value: float, busy_cores: float | None = None
) -> Verdict | None:
    """Return the verdict on a value, or None if it has no target."""
    target = find_target(targets, name)
    if target is None:
        return None
    return Verdict(label, value, target, target.is_met(value, busy_cores))


def summary(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield a line with the number of targets that are met, and one line per missed target."""
    missed = [verdict for verdict in verdicts if not verdict.is_met]
    yield f"{len(verdicts) - len(missed)} of {len(verdicts)} targets met{', missed:' if missed else ''}"
    for verdict in missed:
        yield f"  {verdict.label}: {verdict.value:.2f}, target {verdict.target}"


def summary_json(verdicts: Sequence[Verdict]) -> dict[str, object]:
    return {
        "targets": len(verdicts),
        "met": sum(verdict.is_met for verdict in verdicts),
        "missed": [verdict.label for verdict in verdicts if not verdict.is_met],
    }


def verdict_json(verdict: Verdict | None) -> dict[str, object]:
    """Return the target and whether it is met, for a measurement; both are null without a target."""
    return {
        "target": str(verdict.target) if verdict else None,
        "is_met": verdict.is_met if verdict else None,
    }
