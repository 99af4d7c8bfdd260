"""Runs a command on a pseudo-terminal and captures the output a user would see."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
from collections.abc import Mapping, Sequence


def on_terminal(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    typed: str = "",
    seconds: float = 60,
) -> tuple[int, str]:
    """Run the command; returns its exit code and output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    os.write(ours, typed.encode())
    seen = b""
    with contextlib.suppress(OSError):  # raised when the other side of the terminal is closed
        while piece := os.read(ours, 4096):
            seen += piece
    os.close(ours)
    return process.wait(seconds), seen.decode()
