"""`python -m release`: its checks, and the quick start of README.md with the working tree."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from release.build import ROOT, StepFailed
from release.checks import BadFile, check_file
from release.pythons import candidates, find_pythons, minor_of, named_pythons, version_of
from release.quick_start import CONSUME, SPARK_STEP, STEPS, UP, readme_line, run_quick_start

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
METADATA = """Metadata-Version: 2.4
Name: barnabas
Version: {version}
Description-Content-Type: text/markdown

{description}
"""


def wheel(
    directory: Path,
    tag: str = "py3-none-any",
    version: str = "1.0",
    description: str = "[docs](https://example.org)",
) -> Path:
    path = directory / f"barnabas-1.0-{tag}.whl"
    metadata = METADATA.format(version=version, description=description)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("barnabas-1.0.dist-info/METADATA", metadata)
    return path


def test_check_accepts_complete_wheel(tmp_path: Path) -> None:
    check_file(wheel(tmp_path), "1.0")
    check_file(wheel(tmp_path, tag="cp311-cp311-manylinux_2_17_x86_64"), "1.0")


def test_check_rejects_wheels_that_an_index_would_reject(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="use a manylinux tag"):
        check_file(wheel(tmp_path, tag="cp311-cp311-linux_x86_64"), "1.0")
    with pytest.raises(BadFile, match=r"its version is 2\.0"):
        check_file(wheel(tmp_path, version="2.0"), "1.0")
    with pytest.raises(BadFile, match=r"relative links in its description: docs/a\.md"):
        check_file(wheel(tmp_path, description="[a](docs/a.md)"), "1.0")
    with pytest.raises(BadFile, match="no description"):
        check_file(wheel(tmp_path, description=""), "1.0")
    with pytest.raises(BadFile, match="'not a version' is invalid"):
        check_file(wheel(tmp_path, version="not a version"), "1.0")


def test_pythons_of_this_machine_are_found() -> None:
    assert version_of(sys.executable) == VERSION
    assert version_of("/no/such/python") is None
    found = find_pythons()
    assert list(found) == sorted(found, key=minor_of)
    assert set(found.values()) <= set(candidates())
    assert named_pythons([sys.executable]) == {VERSION: sys.executable}
    with pytest.raises(ValueError, match=r"'/bin/true' is not a Python 3\.11"):
        named_pythons(["/bin/true"])


def test_readme_has_every_command_of_the_quick_start() -> None:
    for start in (UP, *STEPS, CONSUME, SPARK_STEP):
        assert readme_line(start).startswith(start)
        assert "  #" not in readme_line(start)
    with pytest.raises(
        StepFailed, match=r"README.md has no command that starts with 'barnabas xyz'"
    ):
        readme_line("barnabas xyz")


def test_quick_start_of_readme_runs(tmp_path: Path) -> None:
    program = tmp_path / "bin/barnabas"
    program.parent.mkdir()
    path = f"PYTHONPATH={ROOT / 'src'}"
    program.write_text(f'#!/bin/sh\n{path} exec {sys.executable} -m barnabas "$@"\n')
    program.chmod(0o755)
    empty = tmp_path / "empty"
    empty.mkdir()
    run_quick_start(program.parent, empty, has_spark=False)
    assert {path.name for path in empty.iterdir()} == {"barnabas-data", "up.log"}
