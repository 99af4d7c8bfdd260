"""A process that leaves nothing behind: one session of its own, one log file, an end by its id.

It is killed as a group, and by the kernel where whoever started it dies without a goodbye.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from interop.harness.unavailable import StartFailed

START_SECONDS = 90.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.02
TAIL_LINES = 25
PR_SET_PDEATHSIG = 1
# Loaded before any fork: a child must not load libraries between fork and exec.
LIBC = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")

THROWN = re.compile(
    r"^(?:Exception in thread \S+ )?((?:[\w$]+\.)+[\w$]*(?:Exception|Error)\b.*)$", re.MULTILINE
)
CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
COMPLAINT = re.compile(r"^.*\b(?:ERROR|FATAL)\b.*$", re.MULTILINE)


def die_with_parent() -> None:
    """Runs in the child. It follows the thread that started it, so processes are started from the main one."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """Started at once. `name` is what error messages call it."""

    def __init__(self, name: str, command: Sequence[str], *, directory: Path, log: Path) -> None:
        self.name = name
        self.log_path = log
        with log.open("ab") as output:
            self.running = subprocess.Popen(
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    @property
    def pid(self) -> int:
        return self.running.pid

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def is_running(self) -> bool:
        return self.running.poll() is None

    def wait_for(self, probe: Callable[[], T | None], seconds: float = START_SECONDS) -> T:
        """The probe's first answer that is not None. StartFailed if the process ends before, or the time."""
        deadline = time.monotonic() + seconds
        while True:
            self.must_run()
            if (found := probe()) is not None:
                return found
            if time.monotonic() > deadline:
                raise self.failed(fault_in(self.log()) or f"no sign of it within {seconds:.0f} s")
            time.sleep(POLL_SECONDS)

    def must_run(self) -> None:
        if not self.is_running():
            raise self.failed(fault_in(self.log()) or f"exit code {self.running.returncode}")

    def failed(self, why: str) -> StartFailed:
        return StartFailed(f"{self.name} did not start: {why}\n{tail(self.log())}")

    def kill(self) -> None:
        """At once, with everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.running.wait()

    def stop(self) -> int:
        """Ask it to end, and wait for it; its exit code. One that does not listen is killed."""
        self.running.terminate()
        try:
            return self.running.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            self.kill()


def fault_in(log: str) -> str:
    """What went wrong, in one line: the exception and, where it says more, its deepest cause.

    The one told as an error, that is; those told as warnings before it were survived.
    """
    complaint = COMPLAINT.search(log)
    thrown = (complaint and THROWN.search(log, complaint.start())) or THROWN.search(log)
    if thrown is None:
        return complaint[0] if complaint else ""
    trace = log[thrown.end() :]
    if after := THROWN.search(trace):
        trace = trace[: after.start()]
    causes = CAUSE.findall(trace)
    if causes and causes[-1].partition(": ")[2] not in thrown[1]:
        return f"{thrown[1]} ({causes[-1]})"
    return thrown[1]


def tail(log: str) -> str:
    return "\n".join(f"  | {line}" for line in log.splitlines()[-TAIL_LINES:])
