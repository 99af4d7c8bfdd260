"""The Python environment of the stream-processing frameworks, which `python -m interop` creates once with pip.

Like a set of jars, it is stamped with the digest of its list, and it is complete or absent.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

from interop.harness.jars import INTEROP, STAMP, exclusive_lock
from interop.harness.unavailable import FetchFailed, RegistryUnreachable

PROGRAMS = INTEROP / "frameworks"
REQUIREMENTS = PROGRAMS / "requirements.txt"
INSTALL_TIMEOUT_S = 600


def environment_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """The directory of the environment. INTEROP_FRAMEWORKS overrides it."""
    return Path(environment.get("INTEROP_FRAMEWORKS") or INTEROP / ".frameworks").absolute()


def framework_python() -> Path | None:
    """Return the Python of the environment, or None if it is not installed."""
    directory = environment_directory()
    try:
        is_installed = (directory / STAMP).read_text() == requirements_digest()
    except OSError:
        return None
    return directory / "bin" / "python" if is_installed else None


def requirements_digest() -> str:
    content = REQUIREMENTS.read_bytes() + sys.version.encode()
    return hashlib.sha256(content).hexdigest()


def install_frameworks() -> None:
    """Create the environment if it is missing. Raises RegistryUnreachable or FetchFailed."""
    directory = environment_directory()
    with exclusive_lock(directory.parent):
        if framework_python() is not None:
            return
        print("installing stream-processing frameworks with pip, once ...", file=sys.stderr)
        shutil.rmtree(directory, ignore_errors=True)
        venv.create(directory, with_pip=True)
        command = [f"{directory}/bin/pip", "install", "--quiet", "-r", str(REQUIREMENTS)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            why = f"pip did not install the frameworks within {INSTALL_TIMEOUT_S} s"
            raise RegistryUnreachable(why) from None
        if done.returncode != 0:
            if "No matching distribution" in done.stderr or "conflict" in done.stderr:
                raise FetchFailed(f"{REQUIREMENTS.name} cannot be installed")
            raise RegistryUnreachable("pip cannot reach its registry for the frameworks")
        (directory / STAMP).write_text(requirements_digest())
