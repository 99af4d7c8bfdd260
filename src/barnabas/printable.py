r"""Escaping of untrusted names and texts, so that they print as one line.

Topic names, group ids, member ids, client ids, host names, header names and error messages come over the wire or from
the registry. They may contain newlines, terminal escape sequences or bidirectional controls. Logs, terminals and the
HTML report show them through `printable`, so that no name can forge a line, a colour or a reading direction.

    newline → \n    ESC → \x1b    U+202E → \u202e    U+E0001 → \U000e0001    byte FF that is not UTF-8 → \xff

Letters, digits, marks, punctuation and symbols of every script stay as they are. All other characters are escaped as
in Python: control and format characters, surrogates, private and unassigned code points, and spaces other than U+0020.

A backslash stays a single backslash. This keeps the function idempotent: a name can be escaped where a line is
composed and again where the line is written. The price is an ambiguity: backslash and `n` look like a newline. JSON
and YAML output is exact where the difference matters; Kafka allows no backslash in a topic name.
"""

from __future__ import annotations

import re
from collections.abc import Callable

NAME_MAX = 256
"""Maximum characters of a name in a log line. A topic name has at most 249."""
LINE_MAX = 4_000
"""Maximum characters of a log line or an error message."""

# Letters, digits and ASCII are the common case; `isprintable` decides about the rest.
CANDIDATE = re.compile(r"[^\w\x20-\x7e]")
SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str | bytes, limit: int | None = None, *, keep: str = "") -> str:
    r"""Return the text as one printable line: `isprintable()` holds, except for characters in `keep`.

    A text of more than `limit` characters is cut before it is escaped. The number of removed characters follows it.

    >>> print(printable("a\x1b[31m\nb"), printable("größe 数量"), printable("x" * 32_000, limit=3))
    a\x1b[31m\nb größe 数量 xxx…(+31997)
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    if limit is not None and len(text) > limit:
        return f"{printable(text[:limit], keep=keep)}…(+{len(text) - limit})"
    return escape_unprintable(text, keep, escape_character)


def escape_unprintable(text: str, keep: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return CANDIDATE.sub(
        lambda found: found[0] if found[0].isprintable() or found[0] in keep else escape(found[0]),
        text,
    )


def escape_character(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        # Python's `surrogateescape`: a byte that is not UTF-8, in decoded bytes and in command-line arguments.
        return f"\\x{code - 0xDC00:02x}"
    if code <= 0xFF:
        return SHORT.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def json_escapes(text: str) -> str:
    """Escape every unprintable character inside the strings of a JSON text. It still decodes to the same data.

    `json.dumps` with `ensure_ascii=False` escapes only C0 controls. Newlines between tokens stay.
    """
    return escape_unprintable(text, "\n", utf16_escapes)


def utf16_escapes(character: str) -> str:
    """Return `\\uXXXX` for each UTF-16 code unit of a character: one, or a surrogate pair."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
