"""Compile the modules that pyproject.toml lists, with mypyc. Provide the version and the text for the package index.

Everything else about the package is in pyproject.toml.

    pip install .              compiles. If that fails, the same sources are installed, and they run interpreted
    python setup.py compile    compiles in place, if the sources have changed (`make compile`)

    BARNABAS_PURE=1            do not compile
    BARNABAS_COMPILE=required  fail if compiling fails (`make wheel`)

All modules are in one shared library, so that they call each other without Python's calling convention. src/barnabas/
compiled.py describes the manifest that a build writes, and what happens at import.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
import tempfile
import textwrap
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, source_hash, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from setuptools import Command, Extension, setup
from setuptools.command.build_ext import build_ext

SRC = Path("src")
PACKAGE = "barnabas"
IS_PURE = os.environ.get("BARNABAS_PURE", "") not in ("", "0")
IS_REQUIRED = os.environ.get("BARNABAS_COMPILE") == "required"
# For the loops over records. Vectors of two numbers are slower here: each number is needed at once.
LOOP_FLAGS = ["-O2", "-fno-tree-slp-vectorize"]
# The project's own settings of mypy are stricter. Here it only has to find the types.
MYPY_OPTIONS = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
NEXT_STEP = (
    "The same sources run interpreted. To compile them, install a C compiler and Python's headers "
    "(on Debian: apt-get install gcc python3-dev), and install Barnabas again (in a clone: make compile)."
)


def load_module(path: Path) -> ModuleType:
    """Load a module without its package, whose dependencies may be missing here."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


control = load_module(SRC / PACKAGE / "compiled.py")
LIBRARY_FILE = control.LIBRARY + control.SUFFIX
project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))


def read_version() -> str:
    """Return `barnabas.__version__`, without an import of the package."""
    text = (SRC / PACKAGE / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


def read_long_description() -> str:
    """Return README.md with absolute links."""
    links = load_module(Path("release/links.py"))
    readme = Path("README.md").read_text(encoding="utf-8")
    source = project["project"]["urls"]["Source"]
    return str(links.long_description(readme, source, read_version()))


def compiled_sources() -> list[str]:
    """Return the paths of all sources to compile, relative to the package."""
    patterns = project["tool"]["barnabas"]["compiled"]
    found = {path for pattern in patterns for path in Path().glob(pattern)}
    package = SRC / PACKAGE
    return sorted(
        path.relative_to(package).as_posix() for path in found if path.name != "__init__.py"
    )


def manifest_of(sources: list[str]) -> str:
    """Return the manifest: a comment that identifies the build, then the digest of each source."""
    recipe = Path("setup.py").read_bytes() + repr(project["build-system"]["requires"]).encode()
    digests = {path: control.source_digest(str(SRC / PACKAGE / path)) for path in sources}
    return "".join(
        [f"# build {source_hash(recipe).hex()}\n"]
        + [f"{digest} {path}\n" for path, digest in digests.items()]
    )


def is_up_to_date(directory: Path) -> bool:
    sources = compiled_sources()
    files = [directory / file for file in control.compiled_files(sources)]
    manifest = directory / control.MANIFEST
    return (
        manifest.is_file()
        and manifest.read_text(encoding="utf-8") == manifest_of(sources)
        and all(file.is_file() for file in files)
    )


def remove_results(directory: Path) -> None:
    """Remove the manifest and the compiled modules of this version of Python. The manifest is the first to go."""
    (directory / control.MANIFEST).unlink(missing_ok=True)
    for file in [*directory.rglob(f"*{control.SUFFIX}"), directory.parent / LIBRARY_FILE]:
        file.unlink(missing_ok=True)


def write_manifest(directory: Path, text: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = directory / f"{control.MANIFEST}.new"
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(directory / control.MANIFEST)


def is_newer(path: str, inputs: list[str]) -> bool:
    newest = max(Path(each).stat().st_mtime for each in inputs)
    return Path(path).is_file() and Path(path).stat().st_mtime > newest


class NoCompiler(Exception):
    """There is no C compiler, or it cannot compile anything."""


def failure_of(error: BaseException) -> str:
    """Return one line. mypyc prints its errors itself, and exits."""
    if isinstance(error, SystemExit):
        return "mypyc found errors in the sources"
    return textwrap.shorten(f"{error}", 160) or type(error).__name__


def declare_extensions() -> list[Extension]:
    """Return the extensions by name, without their C sources: mypyc generates these only if a build needs them."""
    modules = (path.removesuffix(".py").replace("/", ".") for path in compiled_sources())
    names = [control.LIBRARY, *(f"{PACKAGE}.{module}" for module in modules)]
    return [Extension(name, sources=[]) for name in names]


class BuildCompiled(build_ext):  # type: ignore[misc]  # setuptools has no types
    """Compiles all modules, or none of them."""

    def run(self) -> None:
        directory = (SRC if self.inplace else Path(self.build_lib)) / PACKAGE
        remove_results(Path(self.build_lib) / PACKAGE)
        manifest = manifest_of(compiled_sources())
        try:
            self.require_compiler()
            self.generate_sources()
            super().run()
        except (Exception, SystemExit) as error:
            if IS_REQUIRED:
                raise
            remove_results(directory)
            self.extensions = list[Extension]()
            manifest = f"not compiled: {failure_of(error)}\n"
            print(f"Barnabas was {manifest.strip()}. {NEXT_STEP}", file=sys.stderr)
        write_manifest(directory, manifest)

    def require_compiler(self) -> None:
        """Raise NoCompiler at once if not even an empty extension can be compiled."""
        from distutils.ccompiler import new_compiler
        from distutils.sysconfig import customize_compiler

        compiler: Any = new_compiler()
        customize_compiler(compiler)
        command = compiler.compiler_so[0]
        if shutil.which(command) is None:
            raise NoCompiler(f"there is no C compiler '{command}'")
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory, "empty.c")
            source.write_text("#include <Python.h>\n")
            include = sysconfig.get_path("include")
            try:
                compiler.compile([str(source)], output_dir=directory, include_dirs=[include])
            except Exception as error:
                raise NoCompiler(f"the C compiler '{command}' failed") from error

    def generate_sources(self) -> None:
        from mypyc.build import mypycify

        paths = [str(SRC / PACKAGE / path) for path in compiled_sources()]
        generated = mypycify(
            [*MYPY_OPTIONS, *paths],
            opt_level="1",  # 3 takes twice as long to compile, and most code is not faster
            debug_level="0",
            multi_file=True,
            group_name=control.LIBRARY.removesuffix("__mypyc"),
        )
        by_name: dict[str, Any] = {extension.name: extension for extension in generated}
        for extension in self.extensions:
            found = by_name[extension.name]
            extension.sources = found.sources
            extension.depends = found.depends
            extension.include_dirs += found.include_dirs
            # A new version of a compiler may have new warnings. They must not stop an installation.
            flags = [flag for flag in found.extra_compile_args if flag != "-Werror"]
            extension.extra_compile_args = [*flags, "-fvisibility=hidden"]

    def build_extensions(self) -> None:
        """Run one compiler process per core, for changed files only. setuptools would compile all, one by one."""
        compile_in_order = self.compiler.compile

        def compile_if_changed(source: str, options: dict[str, Any]) -> list[str]:
            objects = self.compiler.object_filenames([source], output_dir=options["output_dir"])
            inputs = [source, "setup.py", "pyproject.toml", *options["depends"]]
            if not self.force and is_newer(objects[0], inputs):
                return list(objects)
            if "___batch___" in source:
                options = options | {"extra_postargs": [*options["extra_postargs"], *LOOP_FLAGS]}
            return list(compile_in_order([source], **options))

        def compile_in_parallel(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                compiled = pool.map(lambda source: compile_if_changed(source, options), sources)
                return [path for paths in compiled for path in paths]

        self.compiler.compile = compile_in_parallel
        super().build_extensions()

    def copy_extensions_to_source(self) -> None:
        remove_results(SRC / PACKAGE)
        super().copy_extensions_to_source()


class Compile(Command):  # type: ignore[misc]
    """Compile in place, unless the compiled modules match the sources."""

    user_options: ClassVar[list[tuple[str, str | None, str]]] = [
        ("force", "f", "compile even if the sources are unchanged")
    ]
    boolean_options: ClassVar[list[str]] = ["force"]

    def initialize_options(self) -> None:
        self.force = False

    def finalize_options(self) -> None:
        pass

    def run(self) -> None:
        if not IS_PURE and (self.force or not is_up_to_date(SRC / PACKAGE)):
            print(f"Compiling {len(compiled_sources())} modules with mypyc", flush=True)
            command: Any = self.reinitialize_command("build_ext", inplace=True, force=self.force)
            command.ensure_finalized()
            command.run()


setup(
    version=read_version(),
    long_description=read_long_description(),
    long_description_content_type="text/markdown",
    cmdclass={"build_ext": BuildCompiled, "compile": Compile},
    ext_modules=[] if IS_PURE else declare_extensions(),
)
