"""Processes that a test did not start itself and that must end, for example children of its children."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil

POLL_S = 0.02


def assert_ended(processes: Iterable[psutil.Process], seconds: float = 30.0) -> None:
    """Wait until all processes have ended. AssertionError at the deadline."""
    deadline = time.monotonic() + seconds
    left = list(processes)
    while left := [process for process in left if not has_ended(process)]:
        assert time.monotonic() < deadline, f"still running after {seconds} s: {left}"
        time.sleep(POLL_S)


def has_ended(process: psutil.Process) -> bool:
    """Also true for a zombie, a process that has ended and whose parent has not collected its exit code. The parent of
    an orphan is process 1, which may take a while. The process may disappear between two calls."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def is_java(process: psutil.Process) -> bool:
    """Also works for a process that ends during the call, for example a start script."""
    try:
        return "java" in process.name()
    except psutil.NoSuchProcess:
        return False


def command_line(process: psutil.Process) -> list[str]:
    """Return the command line, or an empty list if the process has ended."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []
