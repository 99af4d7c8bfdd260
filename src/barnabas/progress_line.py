"""A line at the end of the terminal that shows progress. It is erased before other output.

Written to standard error, and only if that is a terminal. Spark sessions draw it in any program, not only in the
commands of `barnabas`.
"""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TextIO, cast

from barnabas.printable import printable

ERASE = "\r\x1b[K"


class ProgressLine:
    """One line of text at the end of the terminal, redrawn in place."""

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal
        self.lock = threading.RLock()
        self.is_shown = False
        self.pauses = 0
        """Number of blocks that run in `paused`."""
        self.is_within_line = False
        """Other output has not ended with a newline yet. The progress line would overwrite it."""

    def show(self, text: str) -> None:
        """Draw the line, cut to the width of the terminal. An empty text erases it."""
        with self.lock:
            if self.pauses or self.is_within_line:
                return
            if text:
                self.terminal.write(
                    ERASE + truncate(printable(text), shutil.get_terminal_size().columns)
                )
                self.terminal.flush()
                self.is_shown = True
            else:
                self.erase()

    def erase(self) -> None:
        with self.lock:
            if self.is_shown:
                self.terminal.write(ERASE)
                self.terminal.flush()
                self.is_shown = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        # The block runs without the lock: a prompt that waits for input must not block other output.
        with self.lock:
            self.pauses += 1
            self.erase()
        try:
            yield
        finally:
            with self.lock:
                self.pauses -= 1


class ProgressBlock:
    """Several lines of text at the end of the terminal, redrawn in place. Not for use by several threads."""

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal
        self.height = 0

    def show(self, lines: Sequence[str]) -> None:
        """Replace the lines. Each is cut to the width of the terminal."""
        columns = shutil.get_terminal_size().columns
        shown = [truncate(printable(line), columns) for line in lines]
        self.terminal.write(self.start_over() + "".join(f"{line}\n" for line in shown))
        self.terminal.flush()
        self.height = len(shown)

    def erase(self) -> None:
        if self.height:
            self.terminal.write(self.start_over())
            self.terminal.flush()
            self.height = 0

    def start_over(self) -> str:
        """Return the escape sequence that moves to the first line and erases everything below it."""
        return f"\x1b[{self.height}A\r\x1b[J" if self.height else ""


class ErasingStream:
    """Wrapper of standard output that erases the progress line before each write."""

    def __init__(self, stream: TextIO, line: ProgressLine) -> None:
        self.stream = stream
        self.line = line

    def write(self, text: str) -> int:
        with self.line.paused():
            if text:
                self.line.is_within_line = not text.endswith("\n")
            return self.stream.write(text)

    def flush(self) -> None:
        """Erase the line. Python flushes before it writes a prompt directly to the terminal."""
        self.line.erase()
        self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


lines: list[ProgressLine] = []
"""The progress line of this process, if there is one."""


def progress_paused() -> AbstractContextManager[None]:
    """Erase the line and keep it erased until the block ends."""
    return lines[0].paused() if lines else nullcontext()


def stop_progress() -> None:
    """Erase the line permanently, before the process prints its last lines."""
    for line in lines:
        with line.lock:
            line.pauses += 1
            line.erase()


def shared_line(stream: TextIO = sys.stderr) -> ProgressLine | None:
    """Return the progress line of this process, or None if `stream` is no terminal."""
    if not stream.isatty():
        return None
    if not lines:
        lines.append(ProgressLine(stream))
        if sys.stdout.isatty():
            sys.stdout = cast("TextIO", ErasingStream(sys.stdout, lines[0]))
    return lines[0]


def truncate(line: str, columns: int) -> str:
    return line if len(line) < columns else line[: max(0, columns - 2)] + "…"
