r"""Parser and writer for Java's .properties format, the format of Kafka's configuration files.

    # a comment; so is a line that starts with !
    log.dirs = /one,\
               /two
    key:value        key value        broker.rack=caf\u00e9

A key ends at the first `=`, `:` or blank. Blanks around the separator are removed; trailing blanks of a value are kept.
A backslash at the end of a line continues it on the next line, without leading blanks. Elsewhere a backslash escapes
the next character, as in `\:`. If a key is repeated, the last value applies. The caller decodes a file as ISO-8859-1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from barnabas.errors import ConfigError
from barnabas.printable import utf16_escapes

BLANKS = " \t\f"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
INVALID_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")


def parse_properties(text: str, source: str) -> dict[str, str]:
    """Parse properties. `source` is the file name for errors. Raises ConfigError for an invalid escape."""
    properties = {}
    for number, line in logical_lines(text):
        if INVALID_ESCAPE.search(line):
            raise ConfigError(
                f"{source}:{number}", r"\u must be followed by four hexadecimal digits"
            )
        entry = ENTRY.fullmatch(line)
        assert entry, "the pattern matches any text"
        properties[unescape_property(entry[1])] = unescape_property(entry[2])
    return properties


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each logical line with the number of its first line. Skips comments and joins continued lines."""
    joined, first_number = "", 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = natural.lstrip(BLANKS)
        if not joined and line[:1] in ("", "#", "!"):
            continue
        first_number = first_number if joined else number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield first_number, joined + line
        joined = ""
    if joined:
        yield first_number, joined


def unescape_property(text: str) -> str:
    if "\\" not in text:
        return text
    plain = ESCAPE.sub(lambda e: chr(int(e[1], 16)) if e[1] else ESCAPES.get(e[2], e[2]), text)
    # A character above U+FFFF is written as two escapes, a surrogate pair.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the text of a properties file. Backslashes are doubled, control and non-ASCII characters escaped."""
    return "".join(f"{key}={escape_property(value)}\n" for key, value in properties.items())


def escape_property(value: str) -> str:
    doubled = value.replace("\\", "\\\\")
    return "".join(each if " " <= each < "\x7f" else utf16_escapes(each) for each in doubled)
