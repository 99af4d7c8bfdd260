"""Build a release in dist/, and try it: `python -m release [PYTHON ...]`.

    1  the source distribution
    2  a compiled wheel for each Python on this machine, and an interpreted wheel for all others
    3  checks of their metadata
    4  each wheel in an empty environment, with and without the extra `spark`: the quick start of README.md
    5  the source distribution in an environment without a C compiler

PYTHON names the programs to use instead of all that are found. `--no-spark` leaves out the environments with Spark,
which download 400 MB. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import barnabas
from release.build import (
    ROOT,
    StepFailed,
    build_sdist,
    build_wheel,
    create_environment,
    pip,
    run,
)
from release.checks import BadFile, check_file
from release.pythons import find_pythons, named_pythons
from release.quick_start import run_quick_start

DIST = ROOT / "dist"


class Progress:
    """Prints each step with the time that it took."""

    def __init__(self) -> None:
        self.last_s = time.monotonic()

    def report(self, text: str) -> None:
        now = time.monotonic()
        print(f"{now - self.last_s:6.1f} s  {text}", flush=True)
        self.last_s = now


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m release", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", help="default: all from 3.11 on")
    parser.add_argument("--no-spark", action="store_true", help="do not try the extra spark")
    arguments = parser.parse_args()
    try:
        pythons = named_pythons(arguments.pythons) if arguments.pythons else find_pythons()
        with tempfile.TemporaryDirectory(prefix="barnabas-release-") as directory:
            make_release(pythons, Path(directory), has_spark=not arguments.no_spark)
    except (BadFile, StepFailed, ValueError) as error:
        sys.exit(f"error: {error}")


def make_release(pythons: dict[str, str], directory: Path, *, has_spark: bool) -> None:
    progress = Progress()
    print(f"Barnabas {barnabas.__version__} for Python {', '.join(pythons)}", flush=True)
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    sdist = build_sdist(DIST)
    progress.report(f"built {sdist.name}")

    wheels = dict[str, Path]()
    for version, python in pythons.items():
        programs = create_environment(python, directory / f"build-{version}")
        wheels[version] = build_wheel(sdist, programs, DIST, BARNABAS_COMPILE="required")
        progress.report(f"built {wheels[version].name}")
    newest = list(pythons)[-1]
    interpreted = build_wheel(sdist, directory / f"build-{newest}/bin", DIST, BARNABAS_PURE="1")
    progress.report(f"built {interpreted.name}")

    files = [sdist, *wheels.values(), interpreted]
    for file in files:
        check_file(file, barnabas.__version__)
    progress.report(f"checked the metadata of {len(files)} files")

    for version, python in pythons.items():
        for extra in ("", "[spark]") if has_spark else ("",):
            place = directory / f"try-{version}{extra.strip('[]')}"
            seconds = try_installation(python, f"{wheels[version]}{extra}", "(compiled)", place)
            progress.report(
                f"tried Python {version} {extra or 'without extras'}: "
                f"{seconds:.1f} s from pip install to the first record"
            )
    place = directory / "try-interpreted"
    try_installation(pythons[newest], str(interpreted), "(interpreted:", place)
    progress.report(f"tried {interpreted.name}")
    place = directory / "try-sdist"
    try_installation(pythons[newest], str(sdist), "no C compiler", place, CC="no-such-compiler")
    progress.report(f"tried {sdist.name} without a C compiler")
    print(f"\nThe release is in {DIST.name}/: {len(files)} files. Nothing was uploaded.")


def try_installation(
    python: str, requirement: str, expected_mode: str, place: Path, **variables: str
) -> float:
    """Install into an empty environment and run the quick start. Returns the seconds from pip to the first record."""
    place.mkdir()
    programs = create_environment(python, place / "environment")
    empty = place / "empty"
    empty.mkdir()
    started = time.monotonic()
    run(pip(programs, "install", requirement), empty, **variables)
    first_record_at = run_quick_start(programs, empty, has_spark=requirement.endswith("[spark]"))
    mode = run([str(programs / "barnabas"), "--version"], empty)
    if expected_mode not in mode:
        raise StepFailed(f"barnabas --version: expected '{expected_mode}' in: {mode}")
    shutil.rmtree(place)
    return first_record_at - started


if __name__ == "__main__":
    main()
