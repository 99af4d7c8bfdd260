"""Archive and restore: the records of a topic as Parquet files, and back."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from barnabas.batch.compression import Compression
from barnabas.client.producer import Producer
from barnabas.jobs.archive import ArchiveRun, run_archive
from barnabas.jobs.archive_directory import ArchiveDirectory
from barnabas.jobs.errors import JobRefused
from barnabas.model import TopicPartition
from tests.spark.topics import Topics, numbered

MIDNIGHT_MS = 1_763_337_600_000
"""2025-11-17, 00:00 UTC."""


def archive(topics: Topics, topic: str, root: Path, **options: bool) -> ArchiveRun:
    with topics.client() as cluster:
        return run_archive(
            lambda: nullcontext(topics.spark),
            cluster,
            topics.servers,
            topic,
            ArchiveDirectory(root / topic),
            **options,
        )


def write_sample(topics: Topics, topic: str) -> None:
    """Two partitions with null and empty keys and values, headers, compression, and dates out of order."""
    with topics.client() as cluster:
        for compression in (Compression.NONE, Compression.ZSTD):
            with Producer(cluster, compression=compression) as producer:
                for number in range(40):
                    producer.send(
                        topic,
                        [None, b"", b"value %d" % number][number % 3],
                        key=[b"", b"key", None][number % 5 % 3],
                        partition=number % 2,
                        timestamp=MIDNIGHT_MS + (-1 if number % 7 == 0 else number),
                        headers=[("one", b"1"), ("none", None), ("", b"")]
                        if number % 4 == 1
                        else (),
                    )


def file_names(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_archive_has_every_field_of_every_record_by_utc_day(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("orders", partitions=3)
    write_sample(topics, topic)
    root = tmp_path / "with [odd] name"
    run = archive(topics, topic, root)
    assert run.is_verified
    expected = {
        (record.partition, record.offset): (
            record.key,
            record.value,
            record.headers,
            record.timestamp,
        )
        for records in topics.records(topic).values()
        for record in records
    }
    assert len(expected) == 80
    found = {}
    for path in sorted((root / topic).rglob("*.parquet")):
        table = pq.ParquetFile(path).read()
        assert table.column_names == [
            "key",
            "value",
            "headers",
            "timestamp",
            "timestampType",
            "offset",
        ]
        offsets = table.column("offset").to_pylist()
        assert offsets == sorted(offsets)
        date, partition = (each.partition("=")[2] for each in path.parts[-3:-1])
        for row in table.to_pylist():
            assert row["timestamp"].date().isoformat() == date
            headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
            time_ms = round(row["timestamp"].timestamp() * 1000)
            found[int(partition), row["offset"]] = (row["key"], row["value"], headers, time_ms)
    assert found == expected
    assert {path.name for path in (root / topic).glob("date=*")} == {
        "date=2025-11-16",
        "date=2025-11-17",
    }
    assert file_names(root / topic) == {
        "_lock",
        "_manifest.json",
        *(file.path for file in run.files),
    }


def test_second_run_adds_only_new_offsets(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("orders", partitions=2)
    topics.write(topic, numbered(5), partition=0)
    topics.delete_records({TopicPartition(topic, 0): 2})
    first = archive(topics, topic, tmp_path)
    assert [(file.first_offset, file.last_offset) for file in first.files] == [(2, 4)]
    assert archive(topics, topic, tmp_path).files == []

    topics.write(topic, numbered(4), partition=0)
    topics.write(topic, numbered(1), partition=1)
    planned = archive(topics, topic, tmp_path, dry_run=True)
    assert {number: tuple(span) for number, span in planned.spans.items()} == {0: (5, 9), 1: (0, 1)}
    assert planned.files == []
    second = archive(topics, topic, tmp_path, verify=False)
    assert [(file.partition, file.first_offset) for file in second.files] == [(0, 5), (1, 0)]
    manifest = ArchiveDirectory(tmp_path / topic).manifest()
    assert manifest == second.manifest and manifest is not None
    assert manifest.records_by_partition() == {0: 7, 1: 1}

    topics.write(topic, numbered(3), partition=0)
    topics.delete_records({TopicPartition(topic, 0): 11})
    with pytest.raises(JobRefused, match="lost the offsets 9 to 10"):
        archive(topics, topic, tmp_path)
    topics.recreate(topic)
    with pytest.raises(JobRefused, match="was deleted and created again"):
        archive(topics, topic, tmp_path)
    assert ArchiveDirectory(tmp_path / topic).manifest() == manifest
