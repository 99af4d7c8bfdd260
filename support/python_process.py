"""Python code in a child process, which imports the same `barnabas` package as this process."""

from __future__ import annotations

import subprocess
import sys

from support.process import ENVIRONMENT

RUN_SECONDS = 60


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start Python with `code`. Its standard streams are text pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with `code` to its end."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=RUN_SECONDS,
        check=False,
    )
