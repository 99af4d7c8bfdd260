"""The choice between compiled and interpreted code, in a small package with the real `barnabas/compiled.py`."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

import barnabas
from barnabas import compiled

PACKAGE = Path(barnabas.__file__).parent
# Extension modules of the standard library are the compiled modules here: they can be loaded under any package.
MODULES = ("_bisect", "_heapq", "_random", "_statistics")
SOURCE = "is_source = True\n"
PROGRAM = """
import importlib
import barnabas
print(barnabas.code_mode)
for name in {names!r}:
    module = importlib.import_module(f"barnabas.batch.{{name}}")
    print("source" if hasattr(module, "is_source") else "compiled")
"""


class Outcome(NamedTuple):
    mode: str
    kinds: set[str]
    warning: str


class FakePackage:
    """The package `barnabas` in a directory, with two compiled modules and a manifest."""

    def __init__(self, parent: Path) -> None:
        self.parent = parent
        self.root = parent / "barnabas"
        self.sources = [f"batch/{name}.py" for name in self.extensions()]
        (self.root / "batch").mkdir(parents=True)
        (self.root / "batch/__init__.py").touch()
        for name in ("__init__.py", "compiled.py"):
            shutil.copy(PACKAGE / name, self.root)
        for name, file in self.extensions().items():
            (self.root / f"batch/{name}.py").write_text(SOURCE)
            shutil.copy(file, self.root / f"batch/{name}{compiled.SUFFIX}")
        (parent / f"{compiled.LIBRARY}{compiled.SUFFIX}").touch()
        self.write_manifest()

    @staticmethod
    def extensions() -> dict[str, str]:
        found = {name: importlib.import_module(name).__spec__ for name in MODULES}
        files = {name: spec.origin for name, spec in found.items() if spec is not None}
        chosen = {name: file for name, file in files.items() if file and Path(file).is_file()}
        if len(chosen) < 2:
            pytest.skip(
                "needs two standard modules that are separate files; this Python has them built in"
            )
        return dict(list(chosen.items())[:2])

    def write_manifest(self) -> None:
        lines = [f"{compiled.source_digest(str(self.root / path))} {path}" for path in self.sources]
        self.manifest.write_text("\n".join(["# build", *lines, ""]))

    @property
    def manifest(self) -> Path:
        return self.root / compiled.MANIFEST

    def run(self, path: Path | None = None, **variables: str) -> Outcome:
        names = [Path(source).stem for source in self.sources]
        inherited = {
            key: value for key, value in os.environ.items() if key != compiled.PURE_VARIABLE
        }
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(names=names)],
            env=inherited | {"PYTHONPATH": str(path or self.parent)} | variables,
            capture_output=True,
            text=True,
            check=True,
        )
        mode, *kinds = done.stdout.splitlines()
        return Outcome(mode, set(kinds), done.stderr)


@pytest.fixture
def package(tmp_path: Path) -> FakePackage:
    return FakePackage(tmp_path)


def test_compiled_modules_are_used_if_they_match_the_sources(package: FakePackage) -> None:
    assert package.run() == ("compiled", {"compiled"}, "")


def test_pure_variable_selects_interpreted_code(package: FakePackage) -> None:
    interpreted = ("interpreted: BARNABAS_PURE is set", {"source"}, "")
    assert package.run(BARNABAS_PURE="1") == interpreted
    assert package.run(BARNABAS_PURE="0").mode == "compiled"


def test_one_changed_source_makes_all_modules_interpreted_with_a_warning(
    package: FakePackage,
) -> None:
    changed = package.root / package.sources[-1]
    changed.write_text(SOURCE + "# changed\n")
    outcome = package.run()
    assert outcome.mode == f"interpreted: {changed} has changed since it was compiled"
    assert outcome.kinds == {"source"}
    assert outcome.warning == (
        f"barnabas: warning: {changed} has changed since it was compiled. "
        "All code runs interpreted. Next step: make compile, or install again\n"
    )


def test_new_time_of_a_source_is_no_change(package: FakePackage) -> None:
    os.utime(package.root / package.sources[0])
    assert package.run().mode == "compiled"


def test_one_missing_compiled_module_makes_all_modules_interpreted_with_a_warning(
    package: FakePackage,
) -> None:
    missing = package.root / compiled.compiled_files(package.sources)[-1]
    missing.unlink()
    outcome = package.run()
    assert outcome.mode == f"interpreted: {missing} is missing"
    assert outcome.kinds == {"source"}
    assert f"{missing} is missing" in outcome.warning


def test_missing_library_makes_all_modules_interpreted(package: FakePackage) -> None:
    library = package.parent / f"{compiled.LIBRARY}{compiled.SUFFIX}"
    library.unlink()
    assert package.run()[:2] == (f"interpreted: {library} is missing", {"source"})


def test_missing_source_makes_all_modules_interpreted(package: FakePackage) -> None:
    missing = package.root / "batch/deleted.py"
    package.manifest.write_text(
        package.manifest.read_text() + "0123456789abcdef batch/deleted.py\n"
    )
    outcome = package.run()
    assert outcome.mode == f"interpreted: {missing} was compiled, but is missing"
    assert outcome.kinds == {"source"}


def test_compiled_modules_without_manifest_are_ignored(package: FakePackage) -> None:
    package.manifest.unlink()
    assert package.run() == ("interpreted: not compiled for this Python", {"source"}, "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not compiled: command 'cc' failed\n", "not compiled: command 'cc' failed"),
        ("", f"{compiled.MANIFEST} is empty"),
    ],
)
def test_manifest_without_digests_gives_the_reason(
    package: FakePackage, text: str, reason: str
) -> None:
    package.manifest.write_text(text)
    assert package.run() == (f"interpreted: {reason}", {"source"}, "")


def test_damaged_manifest_makes_all_modules_interpreted(package: FakePackage) -> None:
    package.manifest.write_text("# build\n\0\n")
    outcome = package.run()
    assert outcome.kinds == {"source"}
    assert "warning" in outcome.warning


def test_stray_compiled_module_is_ignored(package: FakePackage) -> None:
    """A module that an earlier build compiled, and that is not in the manifest any more."""
    package.sources.pop()
    package.write_manifest()
    stray = f"barnabas.batch.{next(reversed(package.extensions()))}"
    program = f"import {stray} as module, barnabas; print(barnabas.code_mode, module.is_source)"
    environment = os.environ | {"PYTHONPATH": str(package.parent), "BARNABAS_PURE": ""}
    output = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
    assert output == "compiled True\n"


def test_zip_runs_interpreted(package: FakePackage, tmp_path: Path) -> None:
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in package.root.rglob("*.py"):
            file.write(path, path.relative_to(package.parent))
    outcome = package.run(archive)
    assert outcome == ("interpreted: not compiled for this Python", {"source"}, "")


def test_these_tests_run_compiled_code_in_ci() -> None:
    is_required = "CI" in os.environ and compiled.PURE_VARIABLE not in os.environ
    assert barnabas.code_mode.is_compiled or not is_required
