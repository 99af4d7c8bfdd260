"""`topics archive`, `restore` and `resize`: their documents, texts and errors before Spark starts."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner

from barnabas.cli.main import cli
from barnabas.cli.topics.archive import archive_document, archive_text
from barnabas.cli.topics.resize import (
    raise_if_incomplete,
    resize_document,
    resize_text,
    swap_document,
    swap_text,
)
from barnabas.cli.topics.restore import restore_document, restore_text
from barnabas.errors import ConfigError
from barnabas.jobs.archive import ArchiveRun
from barnabas.jobs.archive_directory import ArchiveDirectory
from barnabas.jobs.copy_topic import CopiedPartition, NewCopy
from barnabas.jobs.errors import JobRefused
from barnabas.jobs.manifest import ArchivedFile, archived_path, extend_manifest
from barnabas.jobs.moved_groups import MovedGroup
from barnabas.jobs.resize import ResizeRun
from barnabas.jobs.restore import RestoreRun
from barnabas.jobs.swap import SwapRun
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


def test_swap_shows_groups_and_next_steps() -> None:
    resized = ResizeRun(dict(enumerate(STATE.spans)), True, COPIED)
    new = NewCopy(name="small", partition_count=2, settings={})
    groups = [
        MovedGroup("billing", "moved", 0, 12, 3),
        MovedGroup("search", "active", 2, 0),
        MovedGroup("audit", "kept", 0, 0),
    ]
    run = SwapRun(resized, groups)
    document = resize_document("orders", new, resized, verify=True, dry_run=False)
    lines = swap_text({**document, **swap_document(run)}).splitlines()
    assert lines[4:] == [
        "GROUP    STATUS  MEMBERS  LAG  REDELIVERED",
        "billing  moved         0   12            3",
        "search   active        2    0            -",
        "audit    kept          0    0            -",
        "kept: the group has offsets of its own in small, which were not changed",
        "next steps:",
        "  1. point the producers at small",
        "  2. subscribe the consumers to small",
        "  3. delete topic orders when no client uses it any more",
    ]
    planned = swap_text({**document, **swap_document(run), "dry_run": True})
    assert planned.startswith("would continue topic small with 2 partitions")
    assert "next steps" not in planned
    without = swap_text({**document, **swap_document(SwapRun(resized, []))})
    assert "no consumer group has committed offsets in topic orders" in without


def test_swap_fails_until_everything_has_moved() -> None:
    resized = ResizeRun({}, True, [])
    moved, one, two = (
        MovedGroup("billing", "moved", 0, 0, 0),
        MovedGroup("search", "active", 1, 0),
        MovedGroup("audit", "active", 1, 0),
    )
    raise_if_incomplete("orders", SwapRun(resized, [moved]))
    for run, why in (
        (SwapRun(resized, [moved, one]), "group search has active members and did not move; stop"),
        (SwapRun(resized, [one, two]), "groups search, audit have active members"),
        (SwapRun(resized, [moved], 2), "orders has 2 offsets that were not copied"),
    ):
        with pytest.raises(JobRefused, match=why):
            raise_if_incomplete("orders", run)


def test_errors_need_no_cluster(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["topics", "archive", "orders", "--to", "s3://bucket"])
    assert isinstance(result.exception, ConfigError)
    assert "s3 is not supported" in str(result.exception)
    result = CliRunner().invoke(cli, ["topics", "restore", str(tmp_path), "--to", "copy"])
    assert isinstance(result.exception, JobRefused)
    with pytest.raises(JobRefused, match="has no archive"):
        raise result.exception
