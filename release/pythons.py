"""The versions of Python on this machine that a release supports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

FIRST_MINOR = 11
LAST_MINOR = 30


def find_pythons() -> dict[str, str]:
    """Return version → program, such as 3.12 → /usr/bin/python3.12, from PATH and from pyenv."""
    found = dict[str, str]()
    for program in candidates():
        version = version_of(program)
        if version is not None and is_supported(version):
            found.setdefault(version, program)
    return dict(sorted(found.items(), key=lambda item: minor_of(item[0])))


def named_pythons(programs: list[str]) -> dict[str, str]:
    """Return version → program for programs that the user named. ValueError if one does not fit."""
    found = dict[str, str]()
    for program in programs:
        version = version_of(program)
        if version is None or not is_supported(version):
            raise ValueError(f"'{program}' is not a Python 3.{FIRST_MINOR} or newer")
        found[version] = program
    return found


def candidates() -> Iterator[str]:
    names = [f"python3.{minor}" for minor in range(FIRST_MINOR, LAST_MINOR)]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for directory in sorted(root.glob("versions/*/bin"), reverse=True):
        yield from (str(directory / name) for name in names if (directory / name).exists())
    yield from (path for name in names if (path := shutil.which(name)) is not None)


def version_of(program: str) -> str | None:
    """Return the version of a Python with venv, such as 3.12. None if it cannot be run."""
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([program, "-c", code], capture_output=True, text=True, timeout=30)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def minor_of(version: str) -> int:
    return int(version.partition(".")[2])


def is_supported(version: str) -> bool:
    return re.fullmatch(r"3\.\d+", version) is not None and minor_of(version) >= FIRST_MINOR
