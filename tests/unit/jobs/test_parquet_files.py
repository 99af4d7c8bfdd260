"""Parquet files of an archive: rows by day, and files merged by offset."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.jobs import parquet_files
from barnabas.jobs.manifest import ArchivedFile, file_order, published_path
from barnabas.jobs.parquet_files import (
    DAY_US,
    SCHEMA,
    DayFile,
    day_text,
    merge_files,
    split_by_day,
)


def rows(*offsets_and_times: tuple[int, int]) -> pa.RecordBatch:
    found = [{"offset": offset, "timestamp": time} for offset, time in offsets_and_times]
    return pa.RecordBatch.from_pylist(found, schema=SCHEMA)


def write(root: Path, day: int, offsets: list[int]) -> ArchivedFile:
    file = DayFile(str(root), day, 0)
    for offset in offsets:
        file.add(rows((offset, day * DAY_US)))
    return file.close()


def offsets_of(batch: pa.RecordBatch) -> list[int]:
    found: list[int] = batch.column("offset").to_pylist()
    return found


def test_rows_are_split_by_utc_day_in_order() -> None:
    batch = rows((0, DAY_US), (1, DAY_US - 1), (2, DAY_US + 5), (3, -1))
    found = {day_text(day): offsets_of(each) for day, each in split_by_day(batch)}
    assert found == {"1970-01-02": [0, 2], "1970-01-01": [1], "1969-12-31": [3]}


def test_file_has_its_facts(tmp_path: Path) -> None:
    file = write(tmp_path, 20_774, [7, 9, 12])
    name = "date=2026-11-17/partition=0/00000000000000000007.parquet"
    assert published_path(file.path) == name != file.path
    assert (file.first_offset, file.last_offset, file.records) == (7, 12, 3)
    assert file.bytes == (tmp_path / file.path).stat().st_size
    assert pq.ParquetFile(tmp_path / file.path).read().column("offset").to_pylist() == [7, 9, 12]
    assert [path.name for path in tmp_path.iterdir()] == ["date=2026-11-17"]


@pytest.mark.parametrize("seed", range(5))
def test_files_are_merged_by_offset(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "MERGE_ROWS", 3)
    chance = Random(seed)
    by_day: dict[int, list[int]] = {}
    for offset in range(60):
        by_day.setdefault(offset // 20 + chance.choice([0, 0, 1, 3]), []).append(offset)
    files = sorted((write(tmp_path, *each) for each in by_day.items()), key=file_order)
    found = [offset for batch in merge_files(str(tmp_path), files) for offset in offsets_of(batch)]
    assert found == list(range(60))


def test_no_files_have_no_rows(tmp_path: Path) -> None:
    assert list(merge_files(str(tmp_path), [])) == []
