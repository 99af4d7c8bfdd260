"""Builds of wheels by `setup.py`: compiled, interpreted, and with compilers that fail.

Each build takes place in a copy of the sources. To be quick, it compiles only one module.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas import compiled

ROOT = Path(__file__).parents[2]
MODULE = "barnabas/batch/checksum"
COMPILED_LIST = re.compile(r"^compiled = \[.*?^\]$", re.MULTILINE | re.DOTALL)
COMPILED_FILES = {
    f"{MODULE}{compiled.SUFFIX}",
    f"{compiled.LIBRARY}{compiled.SUFFIX}",
    f"barnabas/{compiled.MANIFEST}",
}
BUILD = "from setuptools import build_meta; build_meta.build_wheel('dist')"
USE_A_BROKER = """
from barnabas import LocalCluster
from barnabas.cli.main import run_command
with LocalCluster() as cluster:
    servers = ["-b", cluster.bootstrap_servers]
    assert run_command(["topics", "create", "letters", *servers]) == 0
    assert run_command(["produce", "letters", __file__, *servers]) == 0
    assert run_command(["consume", "letters", "-e", *servers]) == 0
"""


class Build(NamedTuple):
    exit_code: int
    output: str
    directory: Path

    @property
    def wheel(self) -> Path:
        (wheel,) = (self.directory / "dist").glob("*.whl")
        return wheel

    @property
    def files(self) -> set[str]:
        return set(zipfile.ZipFile(self.wheel).namelist())

    @property
    def version(self) -> str:
        return self.run("-m", "barnabas.cli.main", "--version").stdout

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python with the contents of the wheel."""
        unpacked = self.directory / "unpacked"
        zipfile.ZipFile(self.wheel).extractall(unpacked)
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.directory,
            env=clean_environment() | {"PYTHONPATH": str(unpacked)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )


def clean_environment() -> dict[str, str]:
    ours = ("BARNABAS_PURE", "BARNABAS_COMPILE", "CC", "PYTHONPATH")
    return {key: value for key, value in os.environ.items() if key not in ours}


@pytest.fixture(scope="module", autouse=True)
def mypy_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """All builds share what mypy knows of the standard library."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPY_CACHE_DIR", str(tmp_path_factory.mktemp("mypy")))
        yield


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of everything that a build needs."""
    directory = tmp_path / "sources"
    shutil.copytree(
        ROOT / "src",
        directory / "src",
        ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__", "compiled.*.txt"),
    )
    (directory / "release").mkdir()
    for name in ("setup.py", "README.md", "LICENSE", "release/links.py"):
        shutil.copy(ROOT / name, directory / name)
    project = (ROOT / "pyproject.toml").read_text()
    project, count = COMPILED_LIST.subn(f'compiled = ["src/{MODULE}.py"]', project)
    assert count == 1
    (directory / "pyproject.toml").write_text(project)
    return directory


def build_wheel(sources: Path, **variables: str) -> Build:
    done = subprocess.run(
        [sys.executable, "-c", BUILD],
        cwd=sources,
        env=clean_environment() | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    return Build(done.returncode, done.stdout, sources)


def has_compiled_modules(build: Build) -> bool:
    return any(name.endswith(".so") for name in build.files)


def test_wheel_contains_compiled_modules_and_their_sources(sources: Path) -> None:
    build = build_wheel(sources, BARNABAS_COMPILE="required")
    assert build.exit_code == 0, build.output
    assert build.files >= COMPILED_FILES | {f"{MODULE}.py"}
    assert not build.wheel.name.endswith("-any.whl")
    assert build.version.endswith("(compiled)\n")
    program = "import barnabas.batch.checksum as module; print(module.__file__)"
    assert build.run("-c", program).stdout.endswith(f"{MODULE}{compiled.SUFFIX}\n")


def test_failing_compiler_gives_interpreted_wheel_with_a_working_broker(sources: Path) -> None:
    build = build_wheel(sources, CC="false")
    assert build.exit_code == 0, build.output
    assert "Barnabas was not compiled: the C compiler 'false' failed. " in build.output
    assert not has_compiled_modules(build)
    assert build.version.endswith("(interpreted: not compiled: the C compiler 'false' failed)\n")
    program = sources / "use_a_broker.py"
    program.write_text(USE_A_BROKER)
    assert "from barnabas import LocalCluster" in build.run(str(program)).stdout


def test_missing_compiler_gives_interpreted_wheel(sources: Path) -> None:
    build = build_wheel(sources, CC="no-such-compiler")
    assert build.exit_code == 0, build.output
    reason = "not compiled: there is no C compiler 'no-such-compiler'"
    assert f"Barnabas was {reason}. The same sources run interpreted. To compile" in build.output
    assert not has_compiled_modules(build)
    assert build.version.endswith(f"(interpreted: {reason})\n")


def test_code_that_mypyc_rejects_gives_interpreted_wheel(sources: Path) -> None:
    """A failure after the test of the compiler. Nothing that was compiled before remains."""
    with (sources / f"src/{MODULE}.py").open("a") as file:
        file.write('\nwrong: int = "text"\n')
    build = build_wheel(sources)
    assert build.exit_code == 0, build.output
    assert "Barnabas was not compiled: mypyc found errors" in build.output
    assert not has_compiled_modules(build)


def test_required_compilation_fails_the_build(sources: Path) -> None:
    build = build_wheel(sources, CC="false", BARNABAS_COMPILE="required")
    assert build.exit_code != 0
    assert not list(sources.glob("dist/*.whl"))


def test_pure_build_gives_wheel_for_every_platform(sources: Path) -> None:
    build = build_wheel(sources, BARNABAS_PURE="1", CC="false")
    assert build.wheel.name.endswith("-py3-none-any.whl")
    assert not has_compiled_modules(build)
    assert "interpreted: not compiled for this Python" in build.version


def test_compile_runs_again_only_if_sources_changed(sources: Path) -> None:
    def compile_in_place(**variables: str) -> str:
        return subprocess.check_output(
            [sys.executable, "setup.py", "--quiet", "compile"],
            cwd=sources,
            env=clean_environment() | variables,
            stderr=subprocess.STDOUT,
            text=True,
        )

    compile_in_place()
    library = sources / f"src/{compiled.LIBRARY}{compiled.SUFFIX}"
    first = library.stat()
    (sources / f"src/{MODULE}.py").touch()
    assert compile_in_place(CC="false") == ""
    assert library.stat() == first
    with (sources / f"src/{MODULE}.py").open("a") as file:
        file.write("\nadded = 1\n")
    assert "Barnabas was not compiled" in compile_in_place(CC="false")
    assert not library.exists()
