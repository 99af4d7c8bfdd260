"""Files of an archive: the lock, leftovers of killed runs, and damaged files."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

from barnabas.errors import ConfigError
from barnabas.jobs.archive import escape_glob
from barnabas.jobs.archive_directory import (
    ArchiveDirectory,
    check_file,
    checksum,
    find_archive,
    parse_directory,
    raise_if_damaged,
    report_disk_errors,
)
from barnabas.jobs.errors import DamagedArchive, JobRefused
from barnabas.jobs.manifest import ArchivedFile, Manifest, empty_manifest, extend_manifest
from barnabas.jobs.parquet_files import SCHEMA, DayFile
from barnabas.jobs.topic_state import TopicState
from barnabas.spark.planning import LogSpan

STATE = TopicState(name="orders", id=UUID(int=7), settings={}, spans=(LogSpan(0, 3),))


def write_staged(archive: ArchiveDirectory) -> tuple[Path, list[ArchivedFile]]:
    """Write a file with the offsets 4, 6 and 7 into a staging directory."""
    staging = archive.new_staging()
    file = DayFile(str(staging), 20_774, 0)
    columns = [{"offset": offset, "headers": [{"key": "h"}]} for offset in (4, 6, 7)]
    file.add(pa.RecordBatch.from_pylist(columns, schema=SCHEMA))
    return staging, [file.close()]


@pytest.fixture
def archive(tmp_path: Path) -> ArchiveDirectory:
    return ArchiveDirectory(tmp_path / "orders")


@pytest.fixture
def manifest(archive: ArchiveDirectory) -> Manifest:
    """The manifest of an archive with one file."""
    staging, files = write_staged(archive)
    manifest = extend_manifest(None, STATE, archive.publish(staging, files))
    archive.write_manifest(manifest)
    return manifest


def test_published_file_has_its_facts(archive: ArchiveDirectory, manifest: Manifest) -> None:
    (file,) = manifest.files
    assert file.path == "date=2026-11-17/partition=0/00000000000000000004.parquet"
    assert (file.first_offset, file.last_offset, file.records) == (4, 7, 3)
    assert archive.manifest() == manifest
    assert check_file(str(archive.path), file) is None


def test_damaged_files_are_found(archive: ArchiveDirectory, manifest: Manifest) -> None:
    (file,) = manifest.files
    path, root = archive.path / file.path, str(archive.path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert (
        check_file(root, file)
        == f"{path} has {len(whole) - 1} bytes, but the manifest says {len(whole)}"
    )
    path.write_bytes(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
    assert "was changed" in str(check_file(root, file))
    path.unlink()
    problem = check_file(root, file)
    assert problem == f"{path} is missing"
    with pytest.raises(DamagedArchive, match="is missing; restore the archive from a backup"):
        raise_if_damaged([None, problem])
    with pytest.raises(DamagedArchive, match=r"\(and 1 more files are damaged\)"):
        raise_if_damaged([problem, problem])


def test_leftovers_of_a_killed_run_are_removed(
    archive: ArchiveDirectory, manifest: Manifest
) -> None:
    write_staged(archive)
    for path in ("date=2026-11-18/partition=0", "date=2026-11-17/partition=0"):
        (archive.path / path).mkdir(parents=True, exist_ok=True)
        (archive.path / path / "00000000000000000008.parquet").touch()
    (archive.path / "_manifest.json.new").touch()
    (archive.path / "notes.txt").touch()
    assert archive.remove_leftovers(archive.manifest()) == 3
    left = {
        path.relative_to(archive.path).as_posix()
        for path in archive.path.rglob("*")
        if path.is_file()
    }
    assert left == {"_manifest.json", manifest.files[0].path, "notes.txt"}
    assert not (archive.path / "date=2026-11-18").exists()


def test_task_that_outlives_its_run_creates_nothing(archive: ArchiveDirectory) -> None:
    staging = archive.new_staging()
    open_file = DayFile(str(staging), 20_774, 0)
    open_file.add(pa.RecordBatch.from_pylist([{"offset": 4}], schema=SCHEMA))
    archive.remove_leftovers(None)
    with pytest.raises(FileNotFoundError):
        open_file.close()
    with pytest.raises(JobRefused, match=r"does not exist on .*; use a directory that all workers"):
        DayFile(str(staging), 20_774, 0)
    assert list(archive.path.iterdir()) == []


def test_two_attempts_of_a_task_write_different_files(archive: ArchiveDirectory) -> None:
    """An attempt that Spark has given up may end after the next one, and read the records in other portions."""
    staging = archive.new_staging()
    given_up, repeated = (DayFile(str(staging), 20_774, 0) for _ in range(2))
    rows = [pa.RecordBatch.from_pylist([{"offset": each}], schema=SCHEMA) for each in (4, 5)]
    for each in rows:
        given_up.add(each)
        given_up.write()
        repeated.add(each)
    file = repeated.close()
    assert given_up.close().bytes != file.bytes
    (published,) = archive.publish(staging, [file])
    assert published.path == "date=2026-11-17/partition=0/00000000000000000004.parquet"
    assert check_file(str(archive.path), published) is None


def test_files_without_a_manifest_are_refused(
    archive: ArchiveDirectory, manifest: Manifest
) -> None:
    """They may be an archive that lost its manifest. A first run writes an empty manifest before its files."""
    (archive.path / "_manifest.json").unlink()
    with pytest.raises(
        JobRefused, match=r"has no _manifest.json, but other files \(date=2026-11-17\)"
    ):
        archive.manifest()


def test_killed_first_run_is_no_archive_yet(archive: ArchiveDirectory) -> None:
    write_staged(archive)
    with archive.locked():
        assert archive.manifest() is None


def test_lock_excludes_another_run(archive: ArchiveDirectory) -> None:
    with (
        archive.locked(),
        pytest.raises(JobRefused, match="another run archives into"),
        archive.locked(),
    ):
        raise AssertionError
    with archive.locked():
        pass


def test_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "orders").touch()
    with pytest.raises(JobRefused, match="cannot be"):
        ArchiveDirectory(tmp_path / "orders").manifest()
    with (
        pytest.raises(JobRefused, match="cannot be written"),
        ArchiveDirectory(tmp_path / "orders").locked(),
    ):
        raise AssertionError


@contextmanager
def small_files(bytes_max: int) -> Iterator[None]:
    """Let writes beyond this size fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_leaves_the_archive_as_it_was(
    archive: ArchiveDirectory, manifest: Manifest
) -> None:
    full = f"{archive.path} cannot be written: File too large; make room, and run the command aga"
    with pytest.raises(JobRefused, match=full), report_disk_errors(archive.path), small_files(100):
        write_staged(archive)
    with pytest.raises(JobRefused, match=full), report_disk_errors(archive.path), small_files(100):
        archive.write_manifest(extend_manifest(manifest, STATE, ()))
    assert archive.manifest() == manifest
    archive.remove_leftovers(manifest)
    assert {path.name for path in archive.path.iterdir()} == {"_manifest.json", "date=2026-11-17"}
    assert check_file(str(archive.path), manifest.files[0]) is None


def test_archive_is_found_in_its_directory_or_the_one_above(tmp_path: Path) -> None:
    with pytest.raises(JobRefused, match="has no archive"):
        find_archive(tmp_path)
    for name in ("orders", "payments"):
        (tmp_path / name).mkdir()
        ArchiveDirectory(tmp_path / name).write_manifest(empty_manifest(STATE))
        if name == "orders":
            assert find_archive(tmp_path).path == tmp_path / "orders"
    assert find_archive(tmp_path / "payments").path == tmp_path / "payments"
    with pytest.raises(JobRefused, match=r"several topics \(orders, payments\)"):
        find_archive(tmp_path)


def test_directory_is_a_local_path_or_a_file_url() -> None:
    assert parse_directory("--to", "a/b") == Path("a/b")
    assert parse_directory("--to", "file:///a/b%20c") == Path("/a/b c")
    with pytest.raises(ConfigError, match="s3 is not supported"):
        parse_directory("--to", "s3://bucket/a")


def test_checksum_is_that_of_the_standard(tmp_path: Path) -> None:
    """The check value of CRC-32C, as in RFC 3720."""
    (tmp_path / "file").write_bytes(b"123456789")
    assert checksum(str(tmp_path / "file")) == (9, 0xE3069283)


def test_patterns_in_paths_are_escaped() -> None:
    assert escape_glob("file:/a[1]/b*c") == r"file:/a\[1\]/b\*c"
