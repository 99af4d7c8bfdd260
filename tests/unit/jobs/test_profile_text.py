from __future__ import annotations

from msgspec.structs import replace

from barnabas.cli.topics.profile_table import profile_text
from barnabas.jobs.profile_text import findings
from barnabas.jobs.range_summary import RangeSummary
from barnabas.jobs.topic_profile import KeyClass, TopicProfile, build_profile
from tests.sample_profile import sample_profile


def calm_profile() -> TopicProfile:
    summaries = [
        RangeSummary(
            partition=partition,
            records=10,
            first_offset=0,
            last_offset=9,
            first_ms=1000,
            last_ms=1900,
            value_bytes_min=7,
            value_bytes_max=7,
            buckets={1: (10, 70)},
            size_slots={7: 10},
        )
        for partition in (0, 1)
    ]
    classes = [KeyClass(keyless=False, records=1, keys=20, repeats=0, examples=[b"a"])]
    return build_profile("calm", [0, 1], summaries, classes, span_ms=(1000, 1900), bucket_ms=1000)


def test_every_finding_is_reported() -> None:
    assert findings(replace(sample_profile(), deleted_meanwhile=1, without_timestamp=2)) == [
        "1 record was deleted while the topic was read",
        "partition 1 has 78 % of the records, 3.1 times the mean of 25 %",
        "partition 3 has no records",
        "key 'user-7' alone makes 38 % of the records",
        "7 of 102 keys have half of the records with a key",
        "50 records (5 %) have no key",
        "40 records (4 %) repeat the key and value of another record",
        "25 offsets of partition 2 have no record: compaction or transactions",
        "7 records are older than the record before them in the partition, by up to 2.5 s",
        "2 records have no timestamp",
        "the largest value has 64 KB, 474 times the median of 135 B",
        "the busiest 30 s had 22.2 records/s, 26 times the mean of 0.84",
        "10 records (1 %) are tombstones",
    ]


def test_calm_topic_has_no_findings() -> None:
    profile = calm_profile()
    assert findings(profile) == []
    assert "findings" not in profile_text(profile)


def test_text_has_summary_partitions_and_keys() -> None:
    text = profile_text(sample_profile())
    lines = text.split("\n")
    assert lines[0] == (
        "topic orders: 1,000 records in 4 partitions, 6.0 KB of keys, 120 KB of values"
    )
    assert "  time    2026-05-01 02:00:00 to 2026-05-01 02:19:50 UTC (19 min 50 s)" in lines
    assert "  rate    0.84 records/s on average, up to 22.2 in 30 s" in lines
    assert "  values  min 80 B, median 135 B, 95 % 190 B, 99 % 195 B, max 64 KB" in lines
    (largest,) = [line for line in lines if "78.0 %" in line]
    assert largest.split() == ["1", "780", "78.0", "%", "█" * 16, "98", "KB", "1000", "1779", "0", "7"]  # fmt: skip
    assert "102 distinct keys; 7 keys for half of the records with a key" in lines
    assert "a\\n\\x1b[31m" in text
    assert text.isascii() is False
    assert all(line.isprintable() for line in lines)
