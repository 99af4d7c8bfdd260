r"""Formats and filters of consumed records, with kcat's format letters.

    %s value   %S its size      %k key   %K its size      %h headers as a=1,b=2      %T timestamp in ms
    %t topic   %p partition     %o offset                 %% a percent sign          \n \r \t \\ \0 \x41

The size of a missing key or value is -1. A pipe gets the raw bytes, as with kcat. On a terminal, control characters are
escaped, because records are untrusted input. Keys, values and header values keep newlines and tabs; names do not.
`contents.py` has the formats of keys and values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import click

from barnabas.cli.terminal.contents import Content, TextContent
from barnabas.client.consumer import ConsumedRecord
from barnabas.errors import ConfigError
from barnabas.formats.problems import DecodeError
from barnabas.printable import printable

delimiter_option = click.option(
    "-D", "--delimiter", default="\\n", show_default=True, metavar="TEXT", help="Record delimiter."
)

Formatter = Callable[[ConsumedRecord], bytes]
Filter = Callable[[ConsumedRecord], bool]

TEMPLATE_PART = re.compile(r"%(.?)|((?:[^%\\]|\\.|\\$)+)", re.DOTALL)
"""A format letter, or text in which a backslash may escape the next character."""
ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}
UNESCAPED = "\n\t" + "".join(map(chr, range(0xDCA0, 0xDD00)))
"""Not escaped in keys and values: newlines, tabs, and invalid UTF-8 bytes A0 to FF, which surrogateescape decodes to
U+DCA0 to U+DCFF. Bytes 80 to 9F are escaped, because a terminal may interpret them as C1 control characters."""


class RecordContents(NamedTuple):
    """The formats of the keys and the values of a topic."""

    key: Content
    value: Content


TEXT_CONTENTS = RecordContents(TextContent(), TextContent())


def compile_format(
    template: str, contents: RecordContents = TEXT_CONTENTS, *, for_terminal: bool = False
) -> Formatter:
    """Return a function that formats a record as bytes. Raises ConfigError for an unknown letter.

    The function raises ConfigError if a key or a value does not have the chosen format.
    """
    encode_content = escape_content if for_terminal else raw_content
    encode_name: Callable[[str], bytes] = escape_name if for_terminal else str.encode
    letters: dict[str, Formatter] = {
        "s": lambda record: encode_content(printed_value(record, contents.value)),
        "S": lambda record: size_text(record.value),
        "k": lambda record: encode_content(printed_key(record, contents.key)),
        "K": lambda record: size_text(record.key),
        "h": lambda record: b",".join(
            encode_name(name) + b"=" + encode_content(value) for name, value in record.headers
        ),
        "T": lambda record: b"%d" % record.timestamp,
        "t": lambda record: encode_name(record.topic),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "%": lambda record: b"%",
    }
    pieces: list[Formatter] = []
    for letter, text in TEMPLATE_PART.findall(template):
        if text:
            pieces.append(constant(unescape_bytes(text)))
        elif letter in letters:
            pieces.append(letters[letter])
        else:
            known = " ".join("%" + name for name in letters)
            raise ConfigError("--format", f"unknown format %{letter}; use one of {known}")
    return lambda record: b"".join([piece(record) for piece in pieces])


def printed_key(record: ConsumedRecord, content: Content) -> bytes | None:
    try:
        return None if record.key is None else content.to_text(record.key)
    except DecodeError as error:
        raise wrong_format("--key-format", record, error) from None


def printed_value(record: ConsumedRecord, content: Content) -> bytes | None:
    try:
        return None if record.value is None else content.to_text(record.value)
    except DecodeError as error:
        raise wrong_format("--value-format", record, error) from None


def wrong_format(option: str, record: ConsumedRecord, error: DecodeError) -> ConfigError:
    where = f"offset {record.offset} of {record.topic}-{record.partition}"
    return ConfigError(option, f"{where}: {error}; with -o json, such records are shown as text")


def constant(content: bytes) -> Formatter:
    return lambda record: content


def unescape_bytes(text: str) -> bytes:
    r"""Replace the escapes \n \r \t \0 \\ and \x1f in a delimiter or format. Return the result as UTF-8.

    Bytes of an argument that are not UTF-8 stay unchanged.
    """
    return re.sub(
        rb"\\(x[0-9a-fA-F]{1,2}|[nrt0\\])",
        lambda found: ESCAPES.get(found[1]) or bytes([int(found[1][1:], 16)]),
        text.encode("utf-8", "surrogateescape"),
    )


def raw_content(content: bytes | None) -> bytes:
    return content or b""


def escape_content(content: bytes | None) -> bytes:
    return printable(content or b"", keep=UNESCAPED).encode("utf-8", "surrogateescape")


def escape_name(name: str) -> bytes:
    return printable(name).encode()


def size_text(content: bytes | None) -> bytes:
    return b"-1" if content is None else b"%d" % len(content)


def record_document(
    record: ConsumedRecord, contents: RecordContents = TEXT_CONTENTS
) -> dict[str, Any]:
    """Return a record for JSON or YAML.

    A key, value or header in hex or base64 has a field that says so: `value_encoding`. `value_error` is there if the
    value does not have the chosen format.
    """
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **content_fields("key", record.key, contents.key),
        **content_fields("value", record.value, contents.value),
        "headers": [
            {"name": name, **content_fields("value", value, TextContent())}
            for name, value in record.headers
        ],
    }


def content_fields(name: str, data: bytes | None, content: Content) -> dict[str, Any]:
    if data is None:
        return {name: None}
    shown = content.to_document(data)
    encoding = {} if shown.encoding is None else {f"{name}_encoding": str(shown.encoding)}
    error = {} if shown.error is None else {f"{name}_error": shown.error}
    return {name: shown.content, **encoding, **error}


def compile_filter(expression: str) -> Filter:
    """Parse a filter: `value:refund` searches for a substring, `value~^\\{.*"id": *7` for a regular expression."""
    found = re.fullmatch(r"(key|value)([:~])(.+)", expression, re.DOTALL)
    if found is None:
        why = f"{expression!r} is not a filter; try value:TEXT, key:TEXT, value~REGEX or key~REGEX"
        raise ConfigError("--filter", why)
    field, kind, wanted = found.groups()
    read = attrgetter(field)
    if kind == ":":
        needle = wanted.encode("utf-8", "surrogateescape")
        return lambda record: needle in (read(record) or b"")
    try:
        pattern = re.compile(wanted.encode("utf-8", "surrogateescape"))
    except re.error as error:
        raise ConfigError("--filter", f"{wanted!r} is not a regular expression: {error}") from None
    return lambda record: pattern.search(read(record) or b"") is not None
