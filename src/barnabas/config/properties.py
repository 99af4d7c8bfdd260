"""Java's .properties format, in which Kafka's configuration files are written.

    # a comment, as with !
    log.dirs = /one,\
               /two
    key:value        key value        broker.rack=caf\u00e9

A key ends at the first `=`, `:` or blank; blanks around that are dropped, those at the end of a
value are kept. A backslash at the end of a line joins the next one to it without its leading
blanks, and elsewhere takes the next character as it is: so `\\:` in a key. The last of two equal
keys wins. Java reads the bytes of such a file as ISO-8859-1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from barnabas.errors import ConfigError

BLANKS = " \t\f"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
HALF_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")


def parse_properties(text: str, source: str) -> dict[str, str]:
    """What a file says; `source` is its name, for the ConfigError about a line that is not right."""
    properties = {}
    for number, line in logical_lines(text):
        if HALF_ESCAPE.search(line):
            raise ConfigError(
                f"{source}:{number}", r"\u must be followed by four hexadecimal digits"
            )
        entry = ENTRY.fullmatch(line)
        assert entry, "the pattern takes any text"
        properties[unescape(entry[1])] = unescape(entry[2])
    return properties


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line with the number it begins at, comments left out and continued lines joined."""
    joined, begun_at = "", 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = natural.lstrip(BLANKS)
        if not joined and line[:1] in ("", "#", "!"):
            continue
        begun_at = begun_at if joined else number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield begun_at, joined + line
        joined = ""
    if joined:
        yield begun_at, joined


def unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = ESCAPE.sub(lambda e: chr(int(e[1], 16)) if e[1] else ESCAPES.get(e[2], e[2]), text)
    # Characters beyond the basic plane are written as two escapes, the halves of a pair.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
