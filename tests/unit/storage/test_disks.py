"""Contract of RealDisk and ForgetfulDisk. They differ only after a power loss."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import psutil
import pytest

from barnabas.errors import DirectoryLocked, OutOfSpace, StorageError
from barnabas.world import disk as real
from barnabas.world.disk import DUPLICATES_MAX, LARGE_BYTES, THREADS, RealDisk
from barnabas.world.ports import Disk
from simulator.disk import ForgetfulDisk


@pytest.fixture(params=["real", "forgetful"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Disk, str]]:
    if request.param == "real":
        disk = RealDisk()
        yield disk, str(tmp_path)
        disk.close()
    else:
        simulated = ForgetfulDisk()
        simulated.make_directory("/root")
        yield simulated, "/root"


def test_file_append_read_and_truncate(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/file", create=True)
    file.append([b"one"])
    file.append([b"two", bytearray(b"three"), memoryview(b"four")])
    assert file.size() == 15
    assert file.read(3, 8) == b"twothree"
    assert file.read(11, 100) == b"four"
    assert file.read(99, 5) == b""
    file.truncate(6)
    file.append([b"!"])
    file.close()
    assert disk.read_bytes(f"{root}/file") == b"onetwo!"
    assert disk.open(f"{root}/file").size() == 7


def test_open_file_follows_its_rename(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/before", create=True)
    file.append([b"a"])
    file.rename(f"{root}/after")
    assert file.path == f"{root}/after"
    file.append([b"b"])
    assert file.read(0, 9) == b"ab"
    assert disk.list(root) == ["after"]


def test_names_are_sorted_and_missing_paths_are_errors(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.make_directory(f"{root}/x/y")
    disk.make_directory(f"{root}/x/y")
    for name in ("b", "c", "a"):
        disk.replace_bytes(f"{root}/x/{name}", name.encode())
    assert disk.list(f"{root}/x") == ["a", "b", "c", "y"]
    assert disk.is_directory(f"{root}/x")
    assert not disk.is_directory(f"{root}/x/a")
    assert not disk.is_directory(f"{root}/nothing")
    assert disk.size(f"{root}/x/a") == 1
    assert not disk.exists(f"{root}/nothing")
    disk.remove(f"{root}/x/nothing")
    for act in (disk.open, disk.read_bytes, disk.list, disk.size, disk.modified_ms):
        with pytest.raises(StorageError):
            act(f"{root}/nothing")
    disk.rename(f"{root}/x", f"{root}/z")
    assert disk.read_bytes(f"{root}/z/b") == b"b"
    disk.remove_tree(f"{root}/z")
    assert disk.list(root) == []


def test_late_replacement_does_not_overwrite_newer_data(place: tuple[Disk, str]) -> None:
    disk, root = place
    path = f"{root}/file"
    disk.prepare_replace(path)(b"first")
    assert disk.read_bytes(path) == b"first"
    late, newer = disk.prepare_replace(path), disk.prepare_replace(path)
    late(b"late")
    assert disk.read_bytes(path) == b"first"
    disk.replace_bytes(path, b"now")
    newer(b"also late")
    assert disk.read_bytes(path) == b"now"


def test_replace_waits_for_replacement_in_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    path = f"{tmp_path}/file"
    has_started, may_write = threading.Event(), threading.Event()
    write_and_rename = disk.write_and_rename

    def slow_write(path: str, data: bytes, *, sync: bool) -> None:
        if data == b"old":
            has_started.set()
            assert may_write.wait(30)
        write_and_rename(path, data, sync=sync)

    monkeypatch.setattr(disk, "write_and_rename", slow_write)
    with ThreadPoolExecutor() as threads:
        old = threads.submit(disk.prepare_replace(path), b"old")
        assert has_started.wait(30)
        new = threads.submit(disk.replace_bytes, path, b"new")
        may_write.set()
        old.result(30)
        new.result(30)
    assert disk.read_bytes(path) == b"new"


def test_closed_file_stays_closed(place: tuple[Disk, str]) -> None:
    """Its name may belong to the log of another topic by now."""
    disk, root = place
    file = disk.open(f"{root}/file", create=True)
    file.append([b"old"])
    file.close()
    disk.remove(f"{root}/file")
    disk.replace_bytes(f"{root}/file", b"new")
    for act in (lambda: file.read(0, 3), lambda: file.append([b"x"]), lambda: file.truncate(0)):
        with pytest.raises(StorageError, match="closed"):
            act()
    assert disk.read_bytes(f"{root}/file") == b"new"


def test_lock_has_one_holder(place: tuple[Disk, str]) -> None:
    disk, root = place
    lock = disk.lock(f"{root}/.lock")
    with pytest.raises(DirectoryLocked) as caught:
        disk.lock(f"{root}/.lock")
    assert "another broker" in str(caught.value)
    lock.release()
    disk.lock(f"{root}/.lock").release()


def test_space_is_reported(place: tuple[Disk, str]) -> None:
    disk, root = place
    total, usable = disk.space(root)
    assert total >= usable > 0


async def test_sync_on_and_off_the_event_loop(place: tuple[Disk, str]) -> None:
    disk, root = place
    files = [disk.open(f"{root}/{name}", create=True) for name in "abc"]
    for file in files:
        file.append([b"x"])
    await disk.sync(files, [root])
    disk.sync_now(files, [root])
    assert [file.read(0, 1) for file in files] == [b"x"] * 3


# ---- RealDisk


def test_more_files_than_descriptors(tmp_path: Path) -> None:
    disk = RealDisk(descriptors=16)
    files = [disk.open(str(tmp_path / str(at)), create=True) for at in range(100)]
    for round_ in range(3):
        for at, file in enumerate(files):
            file.append([b"%d:%d " % (round_, at)])
            assert len(disk.open_files) <= 16
    for at, file in enumerate(files):
        assert file.read(0, 99) == b"0:%d 1:%d 2:%d " % (at, at, at)
    disk.close()


def test_busy_file_keeps_its_descriptor(tmp_path: Path) -> None:
    disk = RealDisk(descriptors=16)
    busy = disk.open(str(tmp_path / "busy"), create=True)
    descriptor = busy.fileno()
    for at in range(64):
        busy.append([b"x"])
        disk.open(str(tmp_path / str(at)), create=True)
    assert busy.fileno() == descriptor
    disk.close()


def test_failed_write_is_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up during a write takes a part of it before the error."""
    disk = RealDisk()
    file = disk.open(str(tmp_path / "file"), create=True)
    file.append([b"before"])
    write = os.pwrite
    calls = 0

    def short_then_full(descriptor: int, data: bytes, position: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            return write(descriptor, bytes(data)[:3], position)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", short_then_full)
    with pytest.raises(OutOfSpace):
        file.append([b"does not fit"])
    monkeypatch.undo()
    assert disk.read_bytes(file.path) == b"before"
    file.append([b" after"])
    assert disk.read_bytes(file.path) == b"before after"
    disk.close()


def test_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RealDisk()
    file = disk.open(str(tmp_path / "file"), create=True)
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, bytes(data)[:4], at))
    file.append([b"0123456789"])
    file.append([b"abcdefghij"])
    assert disk.read_bytes(file.path) == b"0123456789abcdefghij"
    disk.close()


def test_replacement_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RealDisk()
    path = str(tmp_path / "file")
    disk.replace_bytes(path, b"old")

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.EDQUOT, "Quota exceeded")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OutOfSpace):
        disk.replace_bytes(path, b"new")
    monkeypatch.undo()
    assert disk.list(str(tmp_path)) == ["file"]
    assert disk.read_bytes(path) == b"old"


async def test_failed_sync_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    file = disk.open(str(tmp_path / "file"), create=True)

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(real, "sync_data", broken)
    with pytest.raises(StorageError, match="Input/output error"):
        await disk.sync([file])
    disk.close()


async def test_waiting_syncs_use_few_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_continue = threading.Event()
    synced: list[int] = []

    def slow_sync(descriptor: int) -> None:
        assert may_continue.wait(30)
        synced.append(descriptor)

    monkeypatch.setattr(real, "sync_data", slow_sync)
    disk = RealDisk()
    files = [disk.open(f"{tmp_path}/{number}", create=True) for number in range(40)]
    before = psutil.Process().num_fds()
    waiting = [asyncio.create_task(disk.sync([file], [str(tmp_path)])) for file in files]
    while not disk.duplicates.locked():
        await asyncio.sleep(0)
    assert psutil.Process().num_fds() - before <= DUPLICATES_MAX
    # A file that is removed in the meantime need not be synced.
    disk.remove(f"{tmp_path}/39")
    may_continue.set()
    await asyncio.gather(*waiting)
    assert len(synced) == 39
    disk.close()


# ---- ForgetfulDisk


def test_crash_loses_unsynced_data() -> None:
    disk = ForgetfulDisk()
    disk.make_directory("/d")
    disk.sync_now([], [""])
    file = disk.open("/d/file", create=True)
    file.append([b"synced"])
    disk.sync_now([file], ["/d"])
    file.append([b" lost"])
    disk.replace_bytes("/d/other", b"lost", sync=False)
    after = disk.crash()
    assert after.list("/d") == ["file"]
    assert after.read_bytes("/d/file") == b"synced"
    assert disk.read_bytes("/d/file") == b"synced lost", "the running disk is unchanged"


def test_file_name_survives_only_with_synced_directory() -> None:
    disk = ForgetfulDisk()
    disk.make_directory("/d")
    disk.sync_now([], [""])
    file = disk.open("/d/a", create=True)
    file.append([b"x"])
    disk.sync_now([file])
    assert disk.crash().list("/d") == []
    disk.sync_now([], ["/d"])
    disk.rename("/d/a", "/d/b")
    assert disk.crash().list("/d") == ["a"]
    disk.sync_now([], ["/d"])
    assert disk.crash().list("/d") == ["b"]
    disk.remove("/d/b")
    assert disk.crash().list("/d") == ["b"]
    disk.sync_now([], ["/d"])
    assert disk.crash().list("/d") == []


def test_random_crash_keeps_a_prefix_of_unsynced_data() -> None:
    disk = ForgetfulDisk()
    disk.make_directory("/d")
    disk.sync_now([], [""])
    file = disk.open("/d/file", create=True)
    file.append([b"synced"])
    disk.sync_now([file], ["/d"])
    file.append([b"0123456789"])
    seen = {disk.crash(Random(seed)).read_bytes("/d/file").rstrip(b"\0") for seed in range(200)}
    assert all(b"synced0123456789".startswith(found) for found in seen)
    assert all(found.startswith(b"synced") for found in seen)
    assert len(seen) > 5
    assert disk.crash(Random(5)).read_bytes("/d/file") == disk.crash(Random(5)).read_bytes(
        "/d/file"
    )


def test_unsynced_truncation_may_be_undone() -> None:
    disk = ForgetfulDisk()
    disk.make_directory("/d")
    disk.sync_now([], [""])
    file = disk.open("/d/file", create=True)
    file.append([b"0123456789"])
    disk.sync_now([file], ["/d"])
    file.truncate(4)
    file.append([b"new"])
    assert disk.crash().read_bytes("/d/file") == b"0123456789"
    disk.sync_now([file])
    assert disk.crash().read_bytes("/d/file") == b"0123new"


def is_deleted_but_open(path: Path) -> bool:
    links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
    return any(str(link.readlink()) == f"{path} (deleted)" for link in links if link.is_symlink())


def test_large_file_is_freed_by_a_thread(tmp_path: Path) -> None:
    disk = RealDisk()
    may_close = threading.Event()
    for _ in range(THREADS):
        disk.pool().submit(may_close.wait, 10)
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(bytes(LARGE_BYTES))
    small.write_bytes(b"x")
    disk.remove(str(large))
    disk.remove(str(small))
    assert list(tmp_path.iterdir()) == []
    assert is_deleted_but_open(large)
    assert not is_deleted_but_open(small)
    may_close.set()
    disk.close()
    assert not is_deleted_but_open(large)
