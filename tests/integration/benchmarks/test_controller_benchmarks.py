"""Reports of the controller comparison, made from given figures; nothing is measured here."""

import json
from pathlib import Path

from benchmarks import controller_report
from benchmarks.controller_cluster import split_topics
from benchmarks.kafka import Found

FOUND: Found = {
    "start/LocalCluster of 3, with imports/s": {"ours": [0.4, 0.6, 0.5], "kafka": []},
    "create/1,000 topics of 1 × 3/s": {"ours": [2.0, 3.0], "kafka": [4.0, 6.0]},
    "delete/1,000 topics of 1 × 3/s": {"ours": [11.0], "kafka": [44.0]},
    "failover/10,000 partitions/s": {"ours": [6.0], "kafka": [8.0]},
    "growth/1000/s": {"ours": [1.0], "kafka": [5.0]},
    "growth/2000/s": {"ours": [3.0], "kafka": [10.0]},
}


def test_targets_are_marked_as_reached_or_missed() -> None:
    rows = {line[:46].strip(): line for line in controller_report.table(FOUND)}
    assert rows["create 1,000 topics of 1 × 3, s"].endswith("0.50  ours ≤10 ✓, ratio ≤0.5 ✓")
    assert rows["delete 1,000 topics of 1 × 3, s"].endswith("0.25  ours ≤10 ✗, ratio ≤0.5 ✓")
    assert rows["failover 10,000 partitions, s"].endswith("0.75  ours ≤5 ✗, ratio ≤0.5 ✗")
    assert rows["start LocalCluster of 3, with imports, s"].endswith("ours ≤0.5 ✓")
    assert not rows["growth 1000, s"].endswith(("✓", "✗"))


def test_growth_compares_first_and_last_thousand() -> None:
    summary = controller_report.linearity(FOUND)
    assert summary["ours"].startswith("1.00 s for the first thousand, 2.00 s for the last")
    assert summary["kafka"].startswith("5.00 s for the first thousand, 5.00 s for the last")


def test_report_works_with_one_side_only(tmp_path: Path) -> None:
    alone: Found = {name: {"ours": sides["ours"], "kafka": []} for name, sides in FOUND.items()}
    controller_report.write_json(tmp_path / "controller.json", alone, quick=True)
    written = json.loads((tmp_path / "controller.json").read_text())["measurements"]
    assert written["growth/2000/s"]["ours"]["values"] == [3.0]
    assert "kafka" not in written["growth/2000/s"]
    assert controller_report.draw(tmp_path / "controller.svg", alone).stat().st_size > 1000


def test_portions_limit_partitions_per_request() -> None:
    topics = {"a": 100, "b": 150, "c": 1, "d": 2000, "e": 1}
    assert list(split_topics(topics)) == [["a", "b"], ["c"], ["d"], ["e"]]
