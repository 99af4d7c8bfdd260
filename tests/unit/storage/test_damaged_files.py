"""Damaged auxiliary files: each kind of damage to each file, with real logs on a real disk."""

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
    CLEAN_MARK,
    MOVED,
    TEXT_DAMAGE,
    TEXTS,
    build,
    check,
    make_sparse,
    matching,
    open_manager,
)

FUZZ_ROUNDS = 150
OPEN_SECONDS = 5.0


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("good") / "data"
    build(directory)
    return directory


def stopped(good: Path, tmp_path: Path, *, clean: bool) -> Path:
    """A copy of the good data directory, after a clean stop or a crash."""
    directory = tmp_path / "data"
    shutil.copytree(good, directory)
    if not clean:
        (directory / CLEAN_MARK).unlink()
    return directory


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])
def test_undamaged_directory_passes_the_checks(good: Path, tmp_path: Path, clean: bool) -> None:
    directory = stopped(good, tmp_path, clean=clean)
    check(directory, what="undamaged")


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
    good: Path, tmp_path: Path, name: str, kind: str, clean: bool
) -> None:
    damage: Callable[[bytes], bytes] = {**TEXT_DAMAGE, **ANY_DAMAGE}[kind]
    directory = stopped(good, tmp_path, clean=clean)
    for path in matching(directory, name):
        path.write_bytes(damage(path.read_bytes()))
    check(directory, what=f"{name} {kind}")


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])
@pytest.mark.parametrize("zeros", [True, False], ids=["all zeros", "zeros at the end"])
@pytest.mark.parametrize("name", [*TEXTS, *BINARIES])
def test_sparse_file_of_8_gib_is_not_read_whole(
    good: Path, tmp_path: Path, name: str, zeros: bool, clean: bool
) -> None:
    directory = stopped(good, tmp_path, clean=clean)
    for path in matching(directory, name):
        make_sparse(path, zeros=zeros)
    begun = time.process_time()
    check(directory, what=f"{name} sparse")
    assert time.process_time() - begun < OPEN_SECONDS
    if name in (".index", ".timeindex"):
        assert all(path.stat().st_size < 4096 for path in matching(directory, name))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_out_of_range_value_is_one_warning_per_partition(
    good: Path, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory = stopped(good, tmp_path, clean=False)
    path = directory / name
    path.write_bytes(b"0\n1\norders 1 90000075\n")
    with caplog.at_level(logging.WARNING):
        check(directory, what=name)
    (line,) = [text for text in caplog.messages if "90000075" in text]
    assert f"file={name} log={directory}/orders-1 value=90000075" in line
    assert "using=" in line


def test_damaged_line_keeps_the_log_start_of_other_partitions(good: Path, tmp_path: Path) -> None:
    directory = stopped(good, tmp_path, clean=True)
    path = directory / "log-start-offset-checkpoint"
    assert path.read_bytes() == b"0\n1\norders 1 13\n"
    path.write_bytes(b"0\n2\norders 0 -7\norders 1 13\n")
    manager = open_manager(directory)
    assert manager.logs[MOVED].log_start_offset == 13
    manager.shutdown()


def test_random_damage_to_one_file_loses_no_record(good: Path, tmp_path: Path) -> None:
    """The same damage in every run, unless BARNABAS_SEED chooses another. A broker does not start on a damaged
    meta.properties, so that file is left alone."""
    random = Random(int(os.environ.get("BARNABAS_SEED") or 1))
    left_alone = (".lock", CLEAN_MARK, "meta.properties")
    for number in range(FUZZ_ROUNDS):
        directory = stopped(good, tmp_path, clean=random.random() < 0.5)
        files = [
            path
            for path in sorted(directory.rglob("*"))
            if path.is_file() and path.suffix != ".log" and path.name not in left_alone
        ]
        what = damage_at_random(random.choice(files), random)
        try:
            check(directory, what=what)
        except Exception as error:
            error.add_note(f"round {number}: {what}")
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
