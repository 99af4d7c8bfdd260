"""Real mounts: a small volume that can be filled, and a directory that turns read-only while in use.

Without root, mounts are tried with sudo. Where mounting is not possible, the test is skipped, but fails in CI: it must
run at least there.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

WAYS: tuple[tuple[str, ...], ...] = ((), ("sudo", "-n"))


@contextmanager
def small_volume(path: Path, size: str) -> Iterator[Path]:
    path.mkdir()
    way = mount_or_skip("mount", "-t", "tmpfs", "-o", f"size={size},mode=1777", "tmpfs", str(path))
    try:
        yield path
    finally:
        subprocess.run([*way, "umount", "-l", str(path)], check=True)


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Make a directory read-only: opening files for writing fails (EROFS), as after file system errors. Files that are
    already open can still be written."""
    way = mount_or_skip("mount", "--bind", str(path), str(path))
    try:
        subprocess.run([*way, "mount", "-o", "remount,ro,bind", str(path)], check=True)
        yield
    finally:
        subprocess.run([*way, "umount", "-l", str(path)], check=True)


def mount_or_skip(*command: str) -> tuple[str, ...]:
    """Run the command; returns the prefix that made it work."""
    why = ""
    for way in WAYS:
        try:
            done = subprocess.run([*way, *command], capture_output=True, check=False)
        except OSError as error:
            why = str(error)
            continue
        if done.returncode == 0:
            return way
        why = done.stderr.decode().strip()
    reason = f"cannot mount volumes: {why}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
