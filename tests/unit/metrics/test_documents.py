"""docs/metrics.md, the Grafana dashboard and the alert rules: up to date, and no metric in them is unknown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from barnabas.metrics.exposition import MetricKind
from barnabas.metrics.families import FAMILIES
from barnabas.metrics.histogram import QUANTILES
from barnabas.metrics.page import metrics_document

DOCS = Path(__file__).parents[3] / "docs"
SELECTOR = re.compile(r"\b((?:kafka|barnabas)_\w+)(\{[^}]*\})?")
LABEL = re.compile(r'(\w+)(?:=|!=|=~|!~)"([^"]*)"')
TARGET_LABELS = {"job", "instance", "quantile"}
"""Labels that are not declared: Prometheus adds the first two, summaries have the third."""


def dashboard_expressions() -> list[str]:
    dashboard = json.loads((DOCS / "monitoring" / "dashboard.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def alert_rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DOCS / "monitoring" / "alerts.yml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


EXPRESSIONS = [*dashboard_expressions(), *(rule["expr"] for rule in alert_rules())]


def test_metrics_page_is_up_to_date() -> None:
    """If this fails: python -m barnabas.metrics > docs/metrics.md"""
    assert (DOCS / "metrics.md").read_text(encoding="utf-8") == metrics_document()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_metrics_and_labels_of_dashboard_and_alerts_exist(expression: str) -> None:
    for name, labels in SELECTOR.findall(expression):
        family = FAMILIES[name.removesuffix("_count") if name not in FAMILIES else name]
        for label, value in LABEL.findall(labels):
            assert label in TARGET_LABELS | set(family.labels), f"{name} has no label {label}"
            if label == "quantile":
                assert family.kind is MetricKind.SUMMARY
                assert value in QUANTILES
    for grouped in re.findall(r"by \(([^)]*)\)", expression):
        declared = {
            label for name, _ in SELECTOR.findall(expression) for label in FAMILIES[name].labels
        }
        assert set(re.findall(r"\w+", grouped)) <= TARGET_LABELS | declared


def test_every_expression_is_balanced_and_counters_are_rated() -> None:
    for expression in EXPRESSIONS:
        assert expression.count("(") == expression.count(")"), expression
        for name in re.findall(r"\w+_total\b", expression):
            assert re.search(rf"(rate|increase)\({name}", expression), expression


def test_alerts_have_a_severity_a_summary_and_an_action() -> None:
    rules = alert_rules()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "action"}


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    panels = json.loads((DOCS / "monitoring" / "dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
