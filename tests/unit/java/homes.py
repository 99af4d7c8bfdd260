"""Directories that look like a Java installation."""

from __future__ import annotations

from pathlib import Path


def java_home(
    path: Path, version: str | None = "17.0.15", *, script: str = 'echo "$@"', modules: str = ""
) -> Path:
    """Create a Java home whose `java` is a shell script with the body `script`."""
    (path / "bin").mkdir(parents=True)
    binary = path / "bin" / "java"
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(0o755)
    if version is not None:
        (path / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return path
