"""Choice between compiled and interpreted code, made once per process.

`setup.py` compiles the modules that `pyproject.toml` lists. Each compiled module lies beside its source. Python itself
would prefer it, even if the source has changed since. So `barnabas/__init__.py` calls `control_imports` before any
other module is imported. All modules then run compiled, or all run interpreted:

    BARNABAS_PURE=1 is set                           interpreted
    there is no manifest for this Python             interpreted
    a source differs from the manifest               interpreted, with a warning
    a compiled module is missing                     interpreted, with a warning
    otherwise                                        compiled

The manifest is the last file that a build writes. Its first line identifies the build. Each other line has the digest
of a compiled source, and its path in the package. If the build could not compile, there is only a line with the reason.

This module must not import other modules of Barnabas: they would be loaded before the choice, and `setup.py` uses it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import source_hash, spec_from_file_location
from types import ModuleType

PURE_VARIABLE = "BARNABAS_PURE"
SUFFIX = EXTENSION_SUFFIXES[0]
"""End of the name of a compiled module. It names the Python version and the platform."""
MANIFEST = f"compiled{SUFFIX.removesuffix('.so')}.txt"
LIBRARY = "barnabas__mypyc"
"""The shared library with the code of all compiled modules, beside the package: mypyc expects it there."""


class Mode:
    """Whether a process runs compiled or interpreted code, and why."""

    def __init__(
        self, *, modules: frozenset[str] = frozenset(), reason: str = "", is_stale: bool = False
    ) -> None:
        self.modules = modules
        """Full names of the compiled modules. Empty if all code is interpreted."""
        self.reason = reason
        """Why the code is interpreted."""
        self.is_stale = is_stale
        """Whether there are compiled modules that do not match the sources."""

    @property
    def is_compiled(self) -> bool:
        return bool(self.modules)

    def __str__(self) -> str:
        return "compiled" if self.is_compiled else f"interpreted: {self.reason}"


class SingleModeFinder:
    """Finds the modules of Barnabas: those in `compiled` as extension modules only, all others as sources only."""

    def __init__(self, directory: str, compiled: frozenset[str]) -> None:
        self.library_directory = os.path.dirname(directory)
        self.compiled = compiled
        self.source_finders: dict[str, FileFinder] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == LIBRARY:
            return find_compiled(name, self.library_directory)
        if not name.startswith("barnabas."):
            return None
        for directory in path or ():
            if name in self.compiled:
                return find_compiled(name, directory)
            spec = self.source_finder(directory).find_spec(name)
            if spec is not None and spec.loader is not None:
                return spec
        return None

    def source_finder(self, directory: str) -> FileFinder:
        finder = self.source_finders.get(directory)
        if finder is None:
            finder = FileFinder(directory, (SourceFileLoader, SOURCE_SUFFIXES))
            self.source_finders[directory] = finder
        return finder

    def invalidate_caches(self) -> None:
        self.source_finders.clear()


def find_compiled(name: str, directory: str) -> ModuleSpec | None:
    file = os.path.join(directory, name.rpartition(".")[2] + SUFFIX)
    return spec_from_file_location(name, file, loader=ExtensionFileLoader(name, file))


def control_imports(directory: str) -> Mode:
    """Choose the mode of the package in `directory`, and make sure that all its modules are loaded in this mode."""
    mode = choose_mode(directory, os.environ)
    if mode.is_stale and sys.stderr is not None:
        sys.stderr.write(
            f"barnabas: warning: {mode.reason}. All code runs interpreted. Next step: make compile, or install again\n"
        )
    if os.path.isdir(directory):  # not in a zip file, from which Python loads no compiled modules
        sys.meta_path.insert(0, SingleModeFinder(directory, mode.modules))
    return mode


def choose_mode(directory: str, environment: Mapping[str, str]) -> Mode:
    """Return the mode of the package in `directory`. Reads the manifest and the sources in it."""
    if environment.get(PURE_VARIABLE, "") not in ("", "0"):
        return Mode(reason=f"{PURE_VARIABLE} is set")
    try:
        with open(os.path.join(directory, MANIFEST), encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return Mode(reason="not compiled for this Python")
    if len(lines) < 2:
        return Mode(reason=lines[0] if lines else f"{MANIFEST} is empty")
    entries = (line.partition(" ") for line in lines[1:])
    digests = {path: digest for digest, _, path in entries}
    problem = find_mismatch(directory, digests)
    if problem:
        return Mode(reason=problem, is_stale=True)
    modules = (path.removesuffix(".py").replace("/", ".") for path in digests)
    return Mode(modules=frozenset(f"barnabas.{module}" for module in modules))


def find_mismatch(directory: str, digests: Mapping[str, str]) -> str:
    """Return why the compiled modules of these sources cannot be used, or an empty string."""
    for path, digest in digests.items():
        source = os.path.join(directory, path)
        try:
            if source_digest(source) != digest:
                return f"{source} has changed since it was compiled"
        except OSError:
            return f"{source} was compiled, but is missing"
    for path in compiled_files(digests):
        file = os.path.normpath(os.path.join(directory, path))
        if not os.path.exists(file):
            return f"{file} is missing"
    return ""


def compiled_files(sources: Iterable[str]) -> list[str]:
    """Return the files that the build writes for these sources. All paths are relative to the package."""
    return [f"../{LIBRARY}{SUFFIX}", *(path.removesuffix(".py") + SUFFIX for path in sources)]


def source_digest(path: str) -> str:
    """Digest of a source, for this version of Python. It detects changes; it is not cryptographic."""
    with open(path, "rb") as file:
        return source_hash(file.read()).hex()
