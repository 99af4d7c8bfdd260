"""Python in a process of its own, with the same barnabas as the test that starts it."""

import os
import signal
import subprocess
import sys
import time
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


def halt(pid: int, seconds: float = 30.0) -> None:
    """SIGSTOP, and a wait until every thread stands still: on a busy machine some go on for a while."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + seconds
    while any(state_of(thread) != "T" for thread in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline, f"process {pid} goes on"
        time.sleep(0.001)


def state_of(thread: Path) -> str:
    """As the kernel tells it behind the name: R runs, S sleeps, T is stopped, and so is one that has ended."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "T"
