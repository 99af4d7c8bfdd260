"""Compilation of .proto files to descriptors, with the compiler in the package `grpcio-tools`.

It runs where a column is defined, on the driver. A worker compiles only if a registry sends a schema as text.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from barnabas.errors import ConfigError
from barnabas.formats.problems import require
from barnabas.printable import printable

TIMEOUT_S = 60
MAIN_FILE = "schema.proto"
WARNING = re.compile(r"^[IW]\d{4} |^WARNING: |: warning:")


def compile_file(path: Path) -> bytes:
    """Compile a file. Imports are searched in its directory. Returns a FileDescriptorSet. Raises ConfigError."""
    return run_protoc(path.resolve().parent, path.name)


def compile_text(text: str, imports: Mapping[str, str]) -> bytes:
    """Compile the text of a file and the files that it imports. Returns a FileDescriptorSet. Raises ConfigError."""
    with TemporaryDirectory(prefix="barnabas-proto-") as directory:
        for name, content in {**imports, MAIN_FILE: text}.items():
            path = Path(directory, name)
            if not path.resolve().is_relative_to(Path(directory).resolve()):
                raise ConfigError("schema", f"imports {printable(name)}, which is not a file name")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return run_protoc(Path(directory), MAIN_FILE)


def run_protoc(directory: Path, name: str) -> bytes:
    require("grpc_tools.protoc", "grpcio-tools")
    with TemporaryDirectory(prefix="barnabas-proto-") as scratch:
        output = Path(scratch, "descriptors")
        command = [
            *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={directory}"),
            *("--include_imports", f"--descriptor_set_out={output}", str(directory / name)),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError("schema", f"cannot run the Protobuf compiler: {error}") from None
        if done.returncode:
            raise ConfigError(
                "schema", f"is not a valid .proto file: {errors_in(done.stderr, directory)}"
            )
        return output.read_bytes()


def errors_in(report: str, directory: Path) -> str:
    """Return the first errors of the compiler, without warnings and without the directory of the file."""
    lines = [line.replace(f"{directory}/", "") for line in report.splitlines()]
    errors = [line for line in lines if line and not WARNING.search(line)]
    return printable("; ".join(errors[:3]), limit=600) or "the compiler reported no reason"
