"""A command on a terminal of its own: what a person would see."""

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
    """Its exit code and everything it showed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    os.write(ours, typed.encode())
    seen = b""
    with contextlib.suppress(OSError):  # how a terminal says that its other side is closed
        while piece := os.read(ours, 4096):
            seen += piece
    os.close(ours)
    return process.wait(seconds), seen.decode()
