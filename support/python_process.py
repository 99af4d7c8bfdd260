"""Python code in a child process, with the package that this process imports."""

from __future__ import annotations

import subprocess
import sys

from support.process import ENVIRONMENT

RUN_SECONDS = 60


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    """All three streams are text pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=RUN_SECONDS,
        check=False,
    )
