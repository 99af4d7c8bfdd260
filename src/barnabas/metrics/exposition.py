"""Prometheus' text format: pure functions from families and samples to lines.

# HELP kafka_server_replicamanager_leadercount Partitions that this broker leads
# TYPE kafka_server_replicamanager_leadercount gauge
kafka_server_replicamanager_leadercount 12
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from math import isnan

from msgspec import Struct

from barnabas.metrics.histogram import QUANTILES, Summary

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]
Sample = tuple[Labels, float]
"""Values of the labels, and the value. There may be fewer values than labels: the last labels are left out."""


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"


class MetricFamily(Struct, frozen=True):
    """Declaration of one metric."""

    name: str
    kind: MetricKind
    labels: Labels
    doc: str


def family_lines(family: MetricFamily, samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of a counter or gauge; none if it has no samples."""
    is_first = True
    for values, number in samples:
        if is_first:
            yield head_text(family)
            is_first = False
        labels = labels_text(family.labels, values)
        yield f"{family.name}{labels} {number_text(number)}\n"


def summary_lines(family: MetricFamily, samples: Iterable[tuple[Labels, Summary]]) -> Iterator[str]:
    """Yield the lines of a summary; none if it has no samples."""
    is_first = True
    name = family.name
    for values, summary in samples:
        if is_first:
            yield head_text(family)
            is_first = False
        for quantile, number in zip(QUANTILES, summary.quantiles, strict=True):
            labels = labels_text((*family.labels, "quantile"), (*values, quantile))
            yield f"{name}{labels} {number_text(number)}\n"
        labels = labels_text(family.labels, values)
        yield f"{name}_sum{labels} {number_text(summary.sum_ms)}\n"
        yield f"{name}_count{labels} {summary.count}\n"


def head_text(family: MetricFamily) -> str:
    doc = family.doc.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {family.name} {doc}\n# TYPE {family.name} {family.kind}\n"


def labels_text(names: Labels, values: Labels) -> str:
    """
    >>> labels_text(("topic", "partition"), ("a", "0")), labels_text(("topic",), ())
    ('{topic="a",partition="0"}', '')
    """
    if not values:
        return ""
    pairs = zip(names, values, strict=False)
    return "{" + ",".join(f'{name}="{escape_label(value)}"' for name, value in pairs) + "}"


def escape_label(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def number_text(number: int | float) -> str:
    """
    >>> number_text(3), number_text(0.25), number_text(float("nan"))
    ('3', '0.25', 'NaN')
    """
    if isinstance(number, float):
        return "NaN" if isnan(number) else repr(round(number, 6))
    return str(int(number))
