"""Real mounts: a volume of its own that is soon full, a directory that turns read-only under who uses it.

Whoever is not root tries it with sudo. Where nobody may mount anything such a test is skipped, but fails in CI: what
only a real file system shows must be shown somewhere.
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
    way = must("mount", "-t", "tmpfs", "-o", f"size={size},mode=1777", "tmpfs", str(path))
    try:
        yield path
    finally:
        subprocess.run([*way, "umount", "-l", str(path)], check=True)


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """From now on nothing below can be opened for writing (EROFS), as after the system has met errors there. What is
    open already can still be written to."""
    way = must("mount", "--bind", str(path), str(path))
    try:
        subprocess.run([*way, "mount", "-o", "remount,ro,bind", str(path)], check=True)
        yield
    finally:
        subprocess.run([*way, "umount", "-l", str(path)], check=True)


def must(*command: str) -> tuple[str, ...]:
    """Run it; how that was possible."""
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
    told = f"nothing can be mounted here: {why}"
    if os.environ.get("CI"):
        pytest.fail(told)
    pytest.skip(told)
