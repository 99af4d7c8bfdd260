"""`barnabas topics profile` on topics of known content: every figure is exact."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from barnabas.cli.main import cli
from barnabas.cli.terminal.failure import CommandError, ErrorWithHint
from barnabas.cli.topics.profile import read_profile
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from barnabas.errors import BarnabasError, ConfigError, ErrorCode
from barnabas.jobs.profile import (
    count_by_key,
    group_by_count,
    key_class,
    range_summary,
    summarize_ranges,
)
from barnabas.jobs.topic_profile import (
    KeyClass,
    RateBucket,
    SizeProfile,
    TopicProfile,
    merge_ranges,
    profile_document,
)
from barnabas.jobs.topic_range import TopicRange, look_up_range
from barnabas.model import TopicPartition
from support.process import ENVIRONMENT
from tests.spark.topics import Topics

Content = Sequence[tuple[bytes | None, bytes | None, int]]
T = 1_777_600_800_000  # 2026-05-01 02:00 UTC


def write(topics: Topics, topic: str, partition: int, content: Content) -> None:
    with topics.client() as cluster, Producer(cluster) as producer:
        for key, value, ms in content:
            producer.send(topic, value, key=key, partition=partition, timestamp=ms)


@pytest.fixture(scope="module")
def topic(topics: Topics) -> str:
    """Four partitions: one whose first two records are deleted, one with duplicates, one out of order, one empty."""
    name = topics.create("orders", partitions=4)
    write(topics, name, 0, [(b"a", b"value-%d" % number, T + number) for number in range(10)])
    same: Content = [(b"b", b"same", T + 500)] * 4 + [(None, b"same", T + 1500)] * 2
    write(topics, name, 1, same)
    long = (b"c" * 120, b"x" * 2000, T + 4000)
    write(topics, name, 2, [(b"a", None, T + 9000), long, (b"a", b"value-2", T + 9999)])
    topics.delete_records({TopicPartition(name, 0): 2})
    return name


def range_of(topics: Topics, topic: str, **bounds: int) -> TopicRange:
    with topics.client() as cluster:
        return look_up_range(cluster, cluster.topic(topic), **bounds)


def profile_of(topics: Topics, topic: str) -> TopicProfile:
    return read_profile(topics.spark, Cluster(topics.servers), range_of(topics, topic))


def test_profile_has_exact_figures(topics: Topics, topic: str) -> None:
    found = profile_of(topics, topic)
    assert (found.records, found.key_bytes, found.value_bytes) == (17, 134, 2087)
    assert (found.first_ms, found.last_ms, found.bucket_ms) == (T + 2, T + 9999, 1000)
    assert (found.tombstones, found.duplicates, found.without_timestamp) == (1, 5, 0)
    assert (found.missing_offsets, found.out_of_order, found.step_back_ms) == (0, 1, 5000)
    assert found.imbalance == 8 * 4 / 17
    parts = [(each.records, each.first_offset, each.last_offset) for each in found.partitions]
    assert parts == [(8, 2, 9), (6, 0, 5), (3, 0, 2), (0, None, None)]
    assert [each.out_of_order for each in found.partitions] == [0, 0, 1, 0]
    assert [each.records for each in found.rates] == [12, 2, 0, 0, 1, 0, 0, 0, 0, 2]
    assert found.rates[4] == RateBucket(
        start_ms=T + 4000, records=1, bytes=2120, records_per_s=1.0, bytes_per_s=2120.0
    )
    sizes = found.sizes
    assert sizes is not None
    assert sizes == SizeProfile(
        min=4, median=7, p95=2000, p99=2000, max=2000, histogram=sizes.histogram
    )
    assert sum(bar.records for bar in sizes.histogram) == 16
    assert (found.keys.without_key, found.keys.distinct, found.keys.keys_for_half) == (2, 3, 1)
    shown = [(each.key, each.records) for each in found.keys.top]
    assert shown == [("a", 10), ("b", 4), ("c" * 99 + "…", 1)]
    assert found.keys.top[0].share == 10 / 17
    assert found.deleted_meanwhile == 0


def test_duplicates_are_found_across_partitions(spark: SparkSession) -> None:
    """Equal keys need equal values, and a missing key or value differs from an empty one."""
    rows = [
        (b"k", b"v"), (b"k", b"v"), (b"k", b"w"), (b"", b"v"), (None, b"v"), (None, b"v"),
        (None, None), (None, b""), (b"t", None), (b"t", None), (b"t", b""),
    ]  # fmt: skip
    records = spark.createDataFrame(rows, "key binary, value binary").repartition(3)
    classes = [key_class(row) for row in group_by_count(count_by_key(records, 2)).collect()]
    assert sorted(classes, key=lambda each: (each.keyless, each.records)) == [
        KeyClass(keyless=False, records=1, keys=1, repeats=0, examples=[b""]),
        KeyClass(keyless=False, records=3, keys=2, repeats=2, examples=[b"k", b"t"]),
        KeyClass(keyless=True, records=1, keys=2, repeats=0),
        KeyClass(keyless=True, records=2, keys=1, repeats=1),
    ]


def test_gaps_are_counted_within_and_between_tasks(spark: SparkSession) -> None:
    offsets = [number for number in range(100) if number not in (17, 18, 19, 50)]
    rows = spark.createDataFrame([(3, number) for number in offsets], "partition int, offset long")
    records = rows.selectExpr(
        "binary('k') key", "binary('v') value", "*", "timestamp_millis(1000000 + offset) timestamp"
    )
    split = records.repartitionByRange(2, "offset").sortWithinPartitions("offset")
    for frame, tasks in ((records.coalesce(1).sortWithinPartitions("offset"), 1), (split, 2)):
        summaries = [range_summary(row) for row in summarize_ranges(frame, 1000).collect()]
        assert len(summaries) == tasks
        (found,) = merge_ranges([3], summaries)
        assert (found.records, found.first_offset, found.last_offset) == (96, 0, 99)
        assert (found.gaps, found.missing_offsets, found.out_of_order) == (2, 4, 0)


def test_deleted_topic_is_reported(topics: Topics) -> None:
    for again in (False, True):
        name = topics.create("short-lived")
        topics.write(name, ["a", "b", "c"])
        wanted = range_of(topics, name)
        if again:
            topics.recreate(name)
        else:
            topics.delete(name)
        what = "was deleted and created again" if again else "was deleted"
        with pytest.raises(
            ErrorWithHint, match=f"topic '{name}' {what} while it was read"
        ) as error:
            read_profile(topics.spark, Cluster(topics.servers), wanted)
        assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert error.value.hint.startswith(f"`barnabas topics history {name}")


def test_records_deleted_meanwhile_are_missing(topics: Topics) -> None:
    name = topics.create()
    topics.write(name, ["a", "b", "c"])
    wanted = range_of(topics, name)
    topics.delete_records({TopicPartition(name, 0): 2})
    assert read_profile(topics.spark, Cluster(topics.servers), wanted).records == 1


def test_time_bounds_select_offsets(topics: Topics, topic: str) -> None:
    wanted = range_of(topics, topic, from_ms=T + 5, to_ms=T + 1000)
    assert wanted.starts == {0: 5, 1: 0, 2: 0, 3: 0}
    assert wanted.ends == {0: 10, 1: 4, 2: 0, 3: 0}
    assert wanted.offsets == 9


# ---- the command --------------------------------------------------------------------------------------------------


def run(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["topics", "profile", *arguments], catch_exceptions=False)
    return done.output


def test_command_writes_json_and_page(topics: Topics, topic: str, tmp_path: Path) -> None:
    page = tmp_path / "orders.html"
    command = [sys.executable, "-m", "barnabas.cli.main", "topics", "profile", topic]
    done = subprocess.run(
        [*command, "-b", topics.servers, "--master", "local[2]", "-o", "json", "--html", str(page)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert "key 'a' alone makes 58.8 % of the records" in document.pop("findings")
    assert document == profile_document(profile_of(topics, topic))
    assert f"written to {page}" in done.stderr
    assert "58.8 %" in page.read_text("utf-8")


def test_dry_run_shows_offsets_without_spark(topics: Topics, topic: str) -> None:
    shown = run(topic, "-b", topics.servers, "--dry-run")
    assert f"would read up to 17 records of {topic}, twice" in shown
    assert shown.split("\n")[2].split() == ["0", "2", "10", "8"]
    bounds = ["--from", str(T + 5), "--to", str(T + 1000)]
    document = json.loads(run(topic, "-b", topics.servers, "--dry-run", "-o", "json", *bounds))
    assert document["records_at_most"] == 9
    assert document["partitions"][0] == {
        "partition": 0,
        "first_offset": 5,
        "end_offset": 10,
        "records_at_most": 5,
    }


def test_bad_input_is_rejected_before_spark_starts(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    servers = topics.servers
    with pytest.raises(BarnabasError, match=f"there is no topic '{topic}x'"):
        run(f"{topic}x", "-b", servers)
    with pytest.raises(CommandError, match=r"has no records$"):
        run(topics.create(), "-b", servers)
    with pytest.raises(CommandError, match="has no records in this time span"):
        run(topic, "-b", servers, "--from", str(T + 20_000))
    with pytest.raises(ConfigError, match="--from: 'noon' is not a time; try -1h"):
        run(topic, "-b", servers, "--from", "noon")
    with pytest.raises(ConfigError, match="--to: '-2h' is not after --from '-1h'"):
        run(topic, "-b", servers, "--from", "-1h", "--to", "-2h")
    with pytest.raises(ConfigError, match="--html: there is no directory"):
        run(topic, "-b", servers, "--html", str(tmp_path / "no" / "page.html"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(BarnabasError):
            run(topic, "-b", f"127.0.0.1:{taken.getsockname()[1]}", "--timeout", "0.5")
