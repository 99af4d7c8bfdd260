"""`topics archive`, `restore` and `resize`: their documents, texts and errors before Spark starts."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner

from barnabas.cli.main import cli
from barnabas.cli.topics.archive import archive_document, archive_text
from barnabas.cli.topics.resize import resize_document, resize_text
from barnabas.cli.topics.restore import restore_document, restore_text
from barnabas.errors import ConfigError
from barnabas.jobs.archive import ArchiveRun
from barnabas.jobs.archive_directory import ArchiveDirectory
from barnabas.jobs.copy_topic import CopiedPartition, NewCopy
from barnabas.jobs.errors import JobRefused
from barnabas.jobs.manifest import ArchivedFile, archived_path, extend_manifest
from barnabas.jobs.resize import ResizeRun
from barnabas.jobs.restore import RestoreRun
from barnabas.jobs.topic_state import TopicState
from barnabas.spark.planning import LogSpan

STATE = TopicState(
    name="orders", id=UUID(int=7), settings={}, spans=(LogSpan(0, 1200), LogSpan(5, 5))
)
FILE = ArchivedFile(
    path=archived_path("2026-11-17", 0, 0),
    partition=0,
    first_offset=0,
    last_offset=1199,
    records=1200,
    bytes=34567,
    crc32c=1,
)
MANIFEST = extend_manifest(None, STATE, [FILE])
COPIED = [CopiedPartition(0, 200, 1000), CopiedPartition(1, 0, 0)]


def archived(run: ArchiveRun, *, dry_run: bool = False) -> str:
    document = archive_document(ArchiveDirectory(Path("/backup/orders")), run)
    return archive_text({**document, "dry_run": dry_run})


def test_archive_shows_each_partition() -> None:
    run = ArchiveRun(STATE, MANIFEST, {0: LogSpan(0, 1200)}, [FILE], True)
    assert archived(run).splitlines() == [
        "archived 1,200 records of topic orders to /backup/orders: 1 file, 34,567 bytes, verified",
        "PARTITION  START   END  RECORDS",
        "        0      0  1200     1200",
        "        1      5     5        0",
    ]
    assert archived(run, dry_run=True).startswith("would archive 1,200 offsets of topic orders")
    nothing = ArchiveRun(STATE, MANIFEST, {}, [], False)
    assert archived(nothing) == "topic orders: no new records; /backup/orders has 1,200 records"


def test_restore_shows_what_an_earlier_run_wrote() -> None:
    run = RestoreRun(MANIFEST, True, COPIED)
    path = Path("/backup/orders")
    done = restore_text(restore_document(path, "copy", run, verify=True, dry_run=False))
    assert done.splitlines()[0] == (
        "copied 1,000 records from /backup/orders to topic copy, "
        "200 records were there from an earlier run; verified"
    )
    planned = restore_text(restore_document(path, "copy", run, verify=True, dry_run=True))
    assert planned == (
        "would continue topic copy with 1,200 records in 2 partitions from /backup/orders"
    )


def test_resize_shows_both_topics() -> None:
    run = ResizeRun(dict(enumerate(STATE.spans)), False, COPIED)
    new = NewCopy(name="small", partition_count=2, settings={})
    planned = resize_text(resize_document("orders", new, run, verify=True, dry_run=True))
    assert planned == (
        "would create topic small with 2 partitions and copy 1,200 offsets of topic orders, "
        "which has 2 partitions"
    )
    done = resize_text(resize_document("orders", new, run, verify=False, dry_run=False))
    assert done.startswith("copied 1,000 records from topic orders to topic small")
    assert "not verified" in done


def test_errors_need_no_cluster(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["topics", "archive", "orders", "--to", "s3://bucket"])
    assert isinstance(result.exception, ConfigError)
    assert "s3 is not supported" in str(result.exception)
    result = CliRunner().invoke(cli, ["topics", "restore", str(tmp_path), "--to", "copy"])
    assert isinstance(result.exception, JobRefused)
    with pytest.raises(JobRefused, match="has no archive"):
        raise result.exception
