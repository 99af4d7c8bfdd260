"""The source distribution: its files, an installation from it, and its tests."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.packaging.test_build import ROOT, clean_environment

BUILD = "from setuptools import build_meta; build_meta.build_sdist({!r})"
NEEDED = {
    *("LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "ARCHITECTURE.md"),
    *("pyproject.toml", "setup.py", "constraints.txt", "Makefile", "release/links.py"),
    *("Dockerfile", "compose.yaml", "deploy/systemd/barnabas.service", "docs/conf.py"),
    *("src/barnabas/__init__.py", "src/barnabas/py.typed", "src/barnabas/history/page.js"),
    *("src/pyspark_barnabas/__init__.py", "docs/spark.md", "docs/lifecycle.png"),
    *("docs/monitoring/alerts.yml", "tests/conftest.py", "support/broker.py"),
    *("tests/unit/wire/test_headers.py", "tests/packaging/test_sdist.py"),
    *("interop/artifacts/kafka-3.9.xml", "benchmarks/results/README.md", ".ci/run"),
}
UNWANTED_DIRECTORIES = {
    *("__pycache__", ".venv", "venv", "build", "dist", "site", ".git", "node_modules"),
    *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".jars", ".frameworks"),
    *("barnabas-data", "spark-warehouse"),
}
UNWANTED_SUFFIXES = (".so", ".pyc", ".jar", ".whl", ".class", ".log")
SIZE_MAX = 5 << 20


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sdist")
    settings = directory / "setup.cfg"
    settings.write_text(f"[egg_info]\negg_base={directory}\n")
    done = subprocess.run(
        [sys.executable, "-c", BUILD.format(str(directory))],
        cwd=ROOT,
        env=clean_environment() | {"BARNABAS_PURE": "1", "DIST_EXTRA_CONFIG": str(settings)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (found,) = directory.glob("barnabas-*.tar.gz")
    return found


@pytest.fixture(scope="module")
def unpacked(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")
    (root,) = directory.iterdir()
    return root


def files_in(directory: Path) -> set[str]:
    paths = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix() for path in paths}


def tracked_files() -> set[str] | None:
    """Return the files that git tracks. None outside a clone, for example in an unpacked sdist."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    return set(done.stdout.splitlines()) if done.returncode == 0 and done.stdout else None


def test_sdist_has_sources_tests_and_documentation(unpacked: Path) -> None:
    assert files_in(unpacked) >= NEEDED


def test_sdist_has_no_caches_builds_or_downloads(archive: Path, unpacked: Path) -> None:
    files = files_in(unpacked)
    assert not [file for file in files if UNWANTED_DIRECTORIES & set(file.split("/")[:-1])]
    assert not [file for file in files if file.endswith(UNWANTED_SUFFIXES)]
    assert archive.stat().st_size < SIZE_MAX


def test_sdist_has_every_tracked_file(unpacked: Path) -> None:
    tracked = tracked_files()
    if tracked is None:
        pytest.skip("needs a git clone, which knows the tracked files; this is an unpacked archive")
    existing = {file for file in tracked if (ROOT / file).is_file()}
    assert not existing - files_in(unpacked)


def test_unpacked_sdist_installs_and_its_unit_tests_pass(unpacked: Path, tmp_path: Path) -> None:
    """Without network: the build requirements and dependencies are those of this environment."""
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(target), "."]
    run([*pip, *offline], unpacked, BARNABAS_PURE="1")
    shown = run([sys.executable, "-m", "barnabas", "--version"], tmp_path, PYTHONPATH=str(target))
    assert shown.startswith("barnabas, version ")
    pytest_run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    passed = run([*pytest_run, "tests/unit/wire/test_headers.py"], unpacked)
    assert " passed" in passed


def run(command: list[str], directory: Path, **variables: str) -> str:
    done = subprocess.run(
        command,
        cwd=directory,
        env=clean_environment() | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
