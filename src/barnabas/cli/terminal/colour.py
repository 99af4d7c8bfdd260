"""Colours on a terminal. `NO_COLOR` and `TERM=dumb` disable them, and output that is not a terminal has none.

`paint` puts a text between marks, which are private characters. Escaping of untrusted text removes them (see
barnabas/printable.py), so no name can forge a colour. cli/terminal/output.py replaces the marks at the end.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Any, TextIO


class Style(StrEnum):
    """A mark. The value stands before a painted text."""

    GOOD = "\ue001"
    WARNING = "\ue002"
    BAD = "\ue003"
    FAINT = "\ue004"


END = "\ue00f"
MARKS = "".join(Style) + END

SEQUENCES = str.maketrans(
    {
        Style.GOOD: "\x1b[32m",
        Style.WARNING: "\x1b[33m",
        Style.BAD: "\x1b[31m",
        Style.FAINT: "\x1b[2m",
        END: "\x1b[0m",
    }
)
NO_MARKS = str.maketrans(dict.fromkeys(MARKS, ""))

NOTE_STYLES = {"error:": Style.BAD, "warning:": Style.WARNING, "hint:": Style.FAINT}


def wants_colour(stream: TextIO | Any) -> bool:
    is_allowed = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return is_allowed and bool(stream.isatty())


def paint(text: str, style: Style | None) -> str:
    """Return the text with marks, or the text itself if standard output gets no colours."""
    return f"{style}{text}{END}" if style and text and wants_colour(sys.stdout) else text


def without_marks(text: str) -> str:
    return text.translate(NO_MARKS)


def with_sequences(text: str) -> str:
    """Replace the marks with the escape sequences of terminals."""
    return text.translate(SEQUENCES)


def paint_note(line: str) -> str:
    """Colour the first word of an escaped line for standard error, if it is `error:`, `warning:` or `hint:`."""
    word, space, rest = line.partition(" ")
    style = NOTE_STYLES.get(word)
    if style is None or not wants_colour(sys.stderr):
        return line
    return with_sequences(f"{style}{word}{END}{space}{rest}")
