"""The text format: escaping, numbers, families without samples; read back with Prometheus' own parser."""

from __future__ import annotations

from math import isnan

from prometheus_client.parser import text_string_to_metric_families

from barnabas.metrics.exposition import (
    Labels,
    MetricFamily,
    MetricKind,
    family_lines,
    number_text,
    summary_lines,
)
from barnabas.metrics.families import FAMILIES
from barnabas.metrics.histogram import QUANTILES, add_seconds, new_buckets, summarize

COUNTED = MetricFamily(
    "things_total", MetricKind.COUNTER, ("topic", "partition"), "Things\nand \\ more"
)
TIMED = MetricFamily("time_ms", MetricKind.SUMMARY, ("request",), "Times")


def parse(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_labels_with_any_characters_survive() -> None:
    names: list[Labels] = [('a"b\\c\nd', "0"), ("Größe {}=,", "1"), ()]
    text = "".join(family_lines(COUNTED, [(name, number) for number, name in enumerate(names)]))
    assert parse(text) == {
        ("things_total", (("topic", 'a"b\\c\nd'), ("partition", "0"))): 0,
        ("things_total", (("topic", "Größe {}=,"), ("partition", "1"))): 1,
        ("things_total", ()): 2,
    }
    (family,) = text_string_to_metric_families(text)
    assert (family.type, family.documentation) == ("counter", COUNTED.doc)


def test_family_without_samples_has_no_lines() -> None:
    assert not list(family_lines(COUNTED, []))
    assert not list(summary_lines(TIMED, []))


def test_summary_has_quantiles_sum_and_count() -> None:
    buckets = new_buckets()
    add_seconds(buckets, 0.25)
    text = "".join(
        summary_lines(
            TIMED, [(("Fetch",), summarize(buckets)), (("Metadata",), summarize(new_buckets()))]
        )
    )
    found = parse(text)
    fetch = ("request", "Fetch")
    assert found["time_ms_count", (fetch,)] == 1
    assert found["time_ms_sum", (fetch,)] == 250
    for quantile in QUANTILES:
        assert 230 <= found["time_ms", (fetch, ("quantile", quantile))] <= 270
    assert isnan(found["time_ms", (("request", "Metadata"), ("quantile", "0.99"))])


def test_large_numbers_are_exact() -> None:
    assert number_text(2**63) == "9223372036854775808"
    assert number_text(True) == "1"
    assert float(number_text(123456789.123)) == 123456789.123


def test_families_are_declared_like_their_names() -> None:
    for name, family in FAMILIES.items():
        assert (family.kind is MetricKind.COUNTER) == name.endswith("_total"), name
        assert name.startswith(("kafka_", "barnabas_"))
        assert name == name.lower()
