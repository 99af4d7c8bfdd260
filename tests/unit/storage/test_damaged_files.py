"""Each kind of damage to each auxiliary file, with real logs on a real disk."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.unit.storage.damage import (
    ANY_DAMAGE,
    BINARIES,
    CHECKPOINTS,
    CLEAN_SHUTDOWN_MARKER,
    TEXT_DAMAGE,
    TEXTS,
    TRIMMED,
    build_directory,
    check_directory,
    make_sparse,
    matching,
    open_manager,
)

FUZZ_ROUNDS = 150
OPEN_SECONDS = 5.0


@pytest.fixture(scope="module")
def good_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("good") / "data"
    build_directory(directory)
    return directory


def copy_directory(good_directory: Path, tmp_path: Path, *, clean: bool) -> Path:
    """Copy the good data directory, as after a clean shutdown or a crash."""
    directory = tmp_path / "data"
    shutil.copytree(good_directory, directory)
    if not clean:
        (directory / CLEAN_SHUTDOWN_MARKER).unlink()
    return directory


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])
def test_undamaged_directory_passes_the_checks(
    good_directory: Path, tmp_path: Path, clean: bool
) -> None:
    directory = copy_directory(good_directory, tmp_path, clean=clean)
    check_directory(directory, label="undamaged")


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            (name, kind)
            for name in (*CHECKPOINTS, "leader-epoch-checkpoint")
            for kind in TEXT_DAMAGE
        ),
        *((name, kind) for name in (*TEXTS, *BINARIES) for kind in ANY_DAMAGE),
    ],
)
def test_damage_loses_no_record(
    good_directory: Path, tmp_path: Path, name: str, kind: str, clean: bool
) -> None:
    damage: Callable[[bytes], bytes] = {**TEXT_DAMAGE, **ANY_DAMAGE}[kind]
    directory = copy_directory(good_directory, tmp_path, clean=clean)
    for path in matching(directory, name):
        path.write_bytes(damage(path.read_bytes()))
    check_directory(directory, label=f"{name} {kind}")


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])
@pytest.mark.parametrize("zeros", [True, False], ids=["all zeros", "zeros at the end"])
@pytest.mark.parametrize("name", [*TEXTS, *BINARIES])
def test_sparse_file_of_8_gib_is_not_read_whole(
    good_directory: Path, tmp_path: Path, name: str, zeros: bool, clean: bool
) -> None:
    directory = copy_directory(good_directory, tmp_path, clean=clean)
    for path in matching(directory, name):
        make_sparse(path, zeros=zeros)
    started = time.process_time()
    check_directory(directory, label=f"{name} sparse")
    assert time.process_time() - started < OPEN_SECONDS
    if name in (".index", ".timeindex"):
        assert all(path.stat().st_size < 4096 for path in matching(directory, name))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_out_of_range_value_is_one_warning_per_partition(
    good_directory: Path, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory = copy_directory(good_directory, tmp_path, clean=False)
    path = directory / name
    path.write_bytes(b"0\n1\norders 1 90000075\n")
    with caplog.at_level(logging.WARNING):
        check_directory(directory, label=name)
    (line,) = [text for text in caplog.messages if "90000075" in text]
    assert f"log={directory}/orders-1 file={name} value=90000075" in line
    assert "used=" in line


def test_damaged_line_keeps_the_log_start_of_other_partitions(
    good_directory: Path, tmp_path: Path
) -> None:
    directory = copy_directory(good_directory, tmp_path, clean=True)
    path = directory / "log-start-offset-checkpoint"
    assert path.read_bytes() == b"0\n1\norders 1 13\n"
    path.write_bytes(b"0\n2\norders 0 -7\norders 1 13\n")
    manager = open_manager(directory)
    assert manager.logs[TRIMMED].log_start_offset == 13
    manager.shutdown()


def test_random_damage_to_one_file_loses_no_record(good_directory: Path, tmp_path: Path) -> None:
    """The damage is the same in every run, unless BARNABAS_SEED is set.

    A broker does not start with a damaged meta.properties, so that file is excluded.
    """
    random = Random(int(os.environ.get("BARNABAS_SEED") or 1))
    excluded = (".lock", CLEAN_SHUTDOWN_MARKER, "meta.properties")
    for number in range(FUZZ_ROUNDS):
        directory = copy_directory(good_directory, tmp_path, clean=random.random() < 0.5)
        files = [
            path
            for path in sorted(directory.rglob("*"))
            if path.is_file() and path.suffix != ".log" and path.name not in excluded
        ]
        label = damage_at_random(random.choice(files), random)
        try:
            check_directory(directory, label=label)
        except Exception as error:
            error.add_note(f"round {number}: {label}")
            raise
        shutil.rmtree(directory)


def damage_at_random(path: Path, random: Random) -> str:
    data = path.read_bytes()
    kind = random.choice(("flip", "truncate", "zero", "duplicate", "huge"))
    at = random.randrange(len(data)) if data else 0
    if kind == "flip" and data:
        bit = random.randrange(8)
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
        kind = f"flip bit {bit}"
    elif kind == "truncate":
        os.truncate(path, at)
    elif kind == "zero":
        path.write_bytes(data[:at] + bytes(len(data) - at))
    elif kind == "duplicate":
        path.write_bytes(data + data[at:])
    else:
        make_sparse(path, zeros=random.random() < 0.5)
    return f"{path.parent.name}/{path.name} {kind} at {at} of {len(data)}"
