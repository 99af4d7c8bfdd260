"""Steps, targets and reports of the comparison with Kafka, from given figures; nothing is measured here."""

import json
from pathlib import Path

import pytest

from benchmarks import kafka, kafka_report, replicas, replicas_report, tls
from benchmarks.kafka import Found
from benchmarks.targets import ABSOLUTE, RATIO, find_target

FOUND: Found = {
    "start/first_record/s": {"ours": [0.2], "kafka": [2.0]},
    "frames/produce/100/16k/1p/mb_per_s": {"ours": [300.0, 320.0, 310.0], "kafka": [200.0]},
    "frames/produce/100/16k/1p/cpu_s_per_gb": {"ours": [2.0], "kafka": [5.0]},
    "frames/produce/100/16k/1p/busy_cores": {"ours": [0.3], "kafka": [0.9]},
    "varied-lz4/produce/100/16k/8p/cpu_s_per_gb": {"ours": [9.0], "kafka": [10.0]},
    "librdkafka/produce/1k/128k/1p/mb_per_s": {"ours": [90.0], "kafka": [100.0]},
    "librdkafka/produce/1k/128k/1p/busy_cores": {"ours": [0.2], "kafka": [0.3]},
    "librdkafka/fetch/1k/128k/1p/mb_per_s": {"ours": [90.0], "kafka": [100.0]},
    "librdkafka/fetch/1k/128k/1p/busy_cores": {"ours": [0.6], "kafka": [0.3]},
    "replicas/acks=all/latency/p99_ms": {"ours": [8.0], "kafka": [800.0]},
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("frames/produce/100/16k/1p/mb_per_s", "≥1.5"),
        ("varied/produce/1k/128k/8p/cpu_s_per_gb", "≤0.5"),
        ("frames-lz4/produce/100/16k/1p/mb_per_s", "≥1.2"),
        ("varied-zstd/produce/100/16k/1p/cpu_s_per_gb", "≤0.8"),
        ("frames/fetch/100/16k/1p/mb_per_s", "≥1"),
        ("varied-zstd/fetch/100/16k/8p/cpu_s_per_gb", "≤1"),
        ("librdkafka/fetch/1k/128k/1p/mb_per_s", "≥1 or <0.5 cores"),
        ("perf-test/produce/1k/16k/8p/mb_per_s", "≥1 or <0.5 cores"),
        ("perf-test/produce/1k/16k/8p/cpu_s_per_gb", "≤0.8"),
        ("replicas/acks=all/produce/mb_per_s", "≥2.5"),
        ("replicas/acks=all/produce/cpu_s_per_gb", "≤0.3"),
        ("replicas/acks=all/latency/p99_ms", "≤0.5"),
        ("latency/acks=1/acknowledged/p99_ms", "≤0.5"),
        ("latency/acks=1/acknowledged/p50_ms", "None"),
        ("frames/produce/100/16k/1p/busy_cores", "None"),
        ("replicas/acks=1, 1 replica/produce/mb_per_s", "None"),
        ("memory/after start/resident_mb", "None"),
    ],
)
def test_ratio_targets(name: str, expected: str) -> None:
    assert str(find_target(RATIO, name)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("frames/produce/1k/128k/8p/cpu_s_per_gb", "≤0.6"),
        ("frames/produce/100/16k/1p/cpu_s_per_gb", "≤1.8"),
        ("frames/produce/100/1m/1p/cpu_s_per_gb", "None"),
        ("frames/produce/100/16k/1p/mb_per_s", "None"),
        ("varied/produce/100/16k/1p/cpu_s_per_gb", "≤3"),
        ("varied/produce/1k/16k/1p/cpu_s_per_gb", "None"),
        ("varied/fetch/1k/16k/1p/cpu_s_per_gb", "≤0.2"),
        ("librdkafka/fetch/1k/16k/1p/cpu_s_per_gb", "None"),
        ("idle/0p/resident_mb", "≤40"),
        ("idle/1000p/resident_mb", "None"),
        ("start/process/s", "≤0.2"),
        ("start/local_cluster/s", "≤0.2"),
        ("start/local_cluster_imported/s", "None"),
    ],
)
def test_absolute_targets(name: str, expected: str) -> None:
    assert str(find_target(ABSOLUTE, name)) == expected


def test_table_starts_with_missed_targets() -> None:
    lines = list(kafka_report.table(FOUND))
    assert lines[:4] == [
        "4 of 6 targets met, missed:",
        "  varied-lz4 produce 100 16k 8p, CPU-s/GB: 0.90, target ≤0.8",
        "  librdkafka fetch 1k 128k 1p, MB/s: 0.90, target ≥1 or <0.5 cores",
        "",
    ]


def test_rows_show_ratio_busy_cores_and_verdict() -> None:
    rows = {line[:43].strip(): line for line in kafka_report.table(FOUND)}
    assert rows["frames produce 100 16k 1p, MB/s"].endswith("1.55  0.30, 0.90  ≥1.5 met")
    assert rows["librdkafka produce 1k 128k 1p, MB/s"].endswith("0.20, 0.30  ≥1 or <0.5 cores met")
    assert rows["librdkafka fetch 1k 128k 1p, MB/s"].endswith("0.60, 0.30  ≥1 or <0.5 cores missed")
    assert rows["start first_record, s"].endswith("0.10")
    assert not any("busy_cores" in row for row in rows)


def test_json_holds_verdicts(tmp_path: Path) -> None:
    kafka_report.write_json(tmp_path / "kafka.json", FOUND, quick=False)
    written = json.loads((tmp_path / "kafka.json").read_text())
    assert written["summary"]["met"] == 4
    assert written["summary"]["targets"] == 6
    one = written["measurements"]["frames/produce/100/16k/1p/mb_per_s"]
    assert one["ours"]["median"] == 310.0
    assert (one["target"], one["is_met"]) == ("≥1.5", True)
    assert kafka_report.draw(tmp_path / "kafka.svg", FOUND).stat().st_size > 1000


def test_replicas_report_works_with_one_side_only() -> None:
    alone: Found = {"replicas/acks=all/latency/p99_ms": {"ours": [8.0], "kafka": []}}
    assert list(replicas_report.table(alone))[1].endswith("ours ≤25 met")


def test_full_comparison_has_every_load_of_the_targets() -> None:
    names = [
        *kafka.step_names(kafka.FULL),
        *tls.step_names(tls.FULL),
        *replicas.step_names(replicas.FULL),
    ]
    assert len(names) == len(set(names)) == 1 + 48 + 4 + 4 + 1 + 6 + 3
    assert {"frames/100/16k/1p", "varied-zstd/1k/128k/8p", "perf-test/100/16k/8p"} < set(names)
