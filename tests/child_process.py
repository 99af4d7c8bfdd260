"""Python in a process of its own, with the same barnabas as the test that starts it."""

import os
import subprocess
import sys
from pathlib import Path

import barnabas

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(barnabas.__file__).parents[1])}


def start(code: str, *arguments: str) -> "subprocess.Popen[str]":
    """All three streams are pipes of text."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def run(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=60,
        check=False,
    )
