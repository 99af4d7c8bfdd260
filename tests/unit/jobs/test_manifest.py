"""Manifest of an archive: planning of a run, and what is refused."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec.structs import replace

from barnabas.jobs.archive_directory import leftovers
from barnabas.jobs.errors import JobRefused
from barnabas.jobs.manifest import (
    ArchivedFile,
    ArchivedPartition,
    Manifest,
    archived_path,
    begun_manifest,
    decode_manifest,
    encode_manifest,
    extend_manifest,
    has_gaps,
    plan_archive,
)
from barnabas.jobs.topic_state import TopicState
from barnabas.model import ZERO_ID
from barnabas.spark.planning import LogSpan

ID = UUID(int=7)


def state(*spans: tuple[int, int], name: str = "orders", topic_id: UUID = ID) -> TopicState:
    return TopicState(
        name=name,
        id=topic_id,
        settings={"retention.ms": "-1"},
        spans=tuple(LogSpan(*span) for span in spans),
    )


def file(partition: int, first: int, last: int, records: int | None = None) -> ArchivedFile:
    return ArchivedFile(
        path=archived_path("2026-11-17", partition, first),
        partition=partition,
        first_offset=first,
        last_offset=last,
        records=last - first + 1 if records is None else records,
        bytes=100,
        crc32c=1,
    )


def archived(*files: ArchivedFile, ends: tuple[int, ...] = (5, 3)) -> Manifest:
    return Manifest(
        topic="orders",
        topic_id=ID,
        partition_count=len(ends),
        settings={},
        partitions=tuple(
            ArchivedPartition(partition=number, start=0, end=end) for number, end in enumerate(ends)
        ),
        files=files or (file(0, 0, 4), file(1, 0, 2)),
    )


def test_manifest_survives_encoding() -> None:
    manifest = archived()
    assert decode_manifest(encode_manifest(manifest), "path") == manifest


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cannot be read"),
        (b'{"version": 1}', "cannot be read: Object missing required field"),
        (encode_manifest(archived())[:-40], "cannot be read"),
        (encode_manifest(replace(archived(), version=2)), "has version 2"),
        (encode_manifest(replace(archived(), partition_count=3)), "contradicts itself"),
        (encode_manifest(archived(file(2, 0, 1))), "contradicts itself"),
    ],
)
def test_damaged_manifest_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(JobRefused, match=why):
        decode_manifest(data, "dir/_manifest.json")


def test_first_run_archives_everything_and_leaves_out_empty_partitions() -> None:
    assert plan_archive(state((2, 9), (4, 4)), None) == {0: LogSpan(2, 9)}


def test_second_run_archives_only_new_offsets_and_new_partitions() -> None:
    found = plan_archive(state((0, 5), (1, 8), (0, 2)), archived())
    assert found == {1: LogSpan(3, 8), 2: LogSpan(0, 2)}


def test_first_run_after_a_killed_one_begins_at_the_current_start() -> None:
    """Retention may have removed records since."""
    begun = decode_manifest(encode_manifest(begun_manifest(state((0, 5)))), "path")
    assert plan_archive(state((3, 9)), begun) == {0: LogSpan(3, 9)}
    (partition,) = extend_manifest(begun, state((3, 9)), [file(0, 3, 8)]).partitions
    assert (partition.start, partition.end) == (3, 9)


def test_records_lost_after_a_run_without_records_are_refused() -> None:
    empty = extend_manifest(None, state((0, 0)), ())
    assert plan_archive(state((0, 4)), empty) == {0: LogSpan(0, 4)}
    with pytest.raises(JobRefused, match="orders-0 lost the offsets 0 to 2 since the last run"):
        plan_archive(state((3, 9)), empty)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (state((0, 5), (0, 3), topic_id=UUID(int=8)), "was deleted and created again"),
        (state((0, 5), (0, 3), name="payments"), "has the archive of topic orders, not payments"),
        (state((6, 9), (0, 3)), "orders-0 lost the offsets 5 to 5 since the last run"),
        (state((0, 9), (0, 3), (2, 4)), "orders-2 lost the offsets 0 to 1"),
        (state((0, 4), (0, 3)), "orders-0 ends at 4, but the archive has offsets up to 4"),
        (state((0, 5)), "has 1 partitions, but the archive has 2"),
    ],
)
def test_topic_that_does_not_continue_the_archive_is_refused(found: TopicState, why: str) -> None:
    with pytest.raises(JobRefused, match=why):
        plan_archive(found, archived())


def test_brokers_without_topic_ids_are_accepted() -> None:
    assert plan_archive(state((0, 5), (0, 3), topic_id=ZERO_ID), archived()) == {}


def test_manifest_grows_by_the_files_of_a_run() -> None:
    found = extend_manifest(
        archived(), state((0, 7), (1, 3), (0, 2)), [file(2, 0, 1), file(0, 5, 6)]
    )
    assert [each.path for each in found.files] == [
        archived_path("2026-11-17", *place) for place in ((0, 0), (0, 5), (1, 0), (2, 0))
    ]
    assert [(each.start, each.end) for each in found.partitions] == [(0, 7), (0, 3), (0, 2)]
    assert found.records_by_partition() == {0: 7, 1: 3, 2: 2}
    assert found.settings == {"retention.ms": "-1"}


def test_only_unlisted_files_with_archive_names_are_leftovers() -> None:
    listed = archived().files[0].path
    unlisted = archived_path("2026-11-17", 0, 5)
    paths = [listed, unlisted, "date=2026-11-17/partition=0/mine.parquet", "_manifest.json.new"]
    assert leftovers(paths, archived()) == [unlisted, "_manifest.json.new"]


def test_gaps_are_found() -> None:
    assert not has_gaps([file(0, 3, 4), file(0, 5, 9), file(1, 0, 0)])
    assert has_gaps([file(0, 3, 4), file(0, 6, 9)])
    assert has_gaps([file(0, 0, 9, records=8)])
