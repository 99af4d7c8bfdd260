"""What a command prints: a table for people, one JSON or YAML document for programs.

A command builds one plain document (dicts, lists, strings, numbers, booleans, None) and one text; `show` prints the
one that was asked for. The document's shape is a promise, the text is not. Tables keep within 100 columns: the widest
column gives way first.

Commands print through this module only, because it escapes names from outside (see barnabas/printable.py): `show` for
results, `say` for other lines on standard output, `note` and `confirm` for standard error. JSON and YAML stay exact.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import click

from barnabas.printable import json_escapes, printable

WIDTH = 100
GAP = "  "


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


def show(output: Output, document: Any, text: Callable[[Any], str]) -> None:
    write_out(f"{render(output, document, text)}\n".encode())


def render(output: Output, document: Any, text: Callable[[Any], str]) -> str:
    """`text` gets the document with all its strings escaped: it can put them into lines of its own."""
    match output:
        case Output.TEXT:
            lines = text(printable_document(document)).split("\n")
            return "\n".join(map(printable, lines))
        case Output.JSON:
            return to_json(document, indent=2)
        case Output.YAML:
            return to_yaml(document)


def printable_document(value: Any) -> Any:
    match value:
        case str():
            return printable(value)
        case dict():
            return {
                printable_document(key): printable_document(each) for key, each in value.items()
            }
        case list() | tuple():
            return [printable_document(each) for each in value]
        case _:
            return value


def say(*lines: str, keep: str = "") -> None:
    """Lines on standard output. Each argument is one line; `keep` names control characters of the command's own."""
    write_out("".join(f"{printable(line, keep=keep)}\n" for line in lines).encode())


def write_out(data: bytes) -> None:
    """All of it, now. With PYTHONUNBUFFERED set the stream is a bare file, whose write may take a part only: printing
    to a pipe would lose the rest without a word."""
    sys.stdout.flush()
    stream = sys.stdout.buffer
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]
    stream.flush()


def note(*lines: str) -> None:
    """Lines on standard error, for the person at the terminal. Each argument is one line."""
    print(*map(printable, lines), sep="\n", file=sys.stderr, flush=True)


def confirm(question: str) -> bool:
    return click.confirm(printable(question), err=True)


def redraw(line: str, end: str = "") -> None:
    """Replace the last line of the terminal, on standard error."""
    print(f"\r{printable(line)}", end=end, file=sys.stderr, flush=True)


# ---- tables ---------------------------------------------------------------------------------------------------


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    width: int | None = WIDTH,
    null: str = "None",
) -> str:
    """Columns side by side; a column of numbers, some of which may be missing, is set to the right.

    >>> print(table(["topic", "partitions"], [["orders", 6], ["a", 12]]))
    TOPIC   PARTITIONS
    orders           6
    a               12
    """
    cells = [[null if cell is None else printable(str(cell)) for cell in row] for row in rows]
    lines = [[printable(head).upper() for head in heads], *cells]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    if width is not None:
        widths = fit(widths, width)
    present = [[row[at] for row in rows if row[at] is not None] for at in range(len(heads))]
    to_the_right = [bool(column) and all(map(is_number, column)) for column in present]
    return "\n".join(
        GAP.join(
            cut(cell, size).rjust(size) if right else cut(cell, size).ljust(size)
            for cell, size, right in zip(line, widths, to_the_right, strict=True)
        ).rstrip()
        for line in lines
    )


def fit(widths: list[int], width: int) -> list[int]:
    """The widest columns shrink until all fit, none below eight characters."""
    fitted = list(widths)
    while sum(fitted) + len(GAP) * (len(fitted) - 1) > width and max(fitted) > 8:
        fitted[fitted.index(max(fitted))] -= 1
    return fitted


def cut(cell: str, size: int) -> str:
    return cell if len(cell) <= size else cell[: size - 1] + "…"


def is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def wrapped(text: str, indent: int) -> str:
    return "\n".join(wrapped_lines(text, indent))


def wrapped_lines(text: str, indent: int) -> list[str]:
    """Lines of at most `WIDTH`, the second and later ones set in. A word that is longer stays whole, to be copied."""
    return textwrap.wrap(
        text,
        WIDTH,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def is_up(what: str, addresses: str, data: object) -> str:
    """`Barnabas is up: 1 broker at HOST:PORT, data in DIR`, on as many lines as that takes."""
    line = f"{what} at {addresses}"
    if len(line) > WIDTH:
        line = wrapped(line.replace(",", ", "), indent=2)
    return (
        f"{line}, data in {data}"
        if len(f"{line}, data in {data}") <= WIDTH
        else f"{line}\n  data in {data}"
    )


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def runs(numbers: Sequence[int]) -> str:
    """
    >>> runs([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] + 1 == number:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number])
    return ",".join("-".join(map(str, run)) for run in found)


# ---- JSON and YAML --------------------------------------------------------------------------------------------

PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*")
NOT_STRINGS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n", "~"})


def to_json(
    value: Any, indent: int | None = None, separators: tuple[str, str] | None = None
) -> str:
    return json_escapes(json.dumps(value, indent=indent, separators=separators, ensure_ascii=False))


def to_yaml(value: Any) -> str:
    """YAML of plain data: enough of the language to be read back by any YAML reader, and no more."""
    return "\n".join(yaml_lines(value))


def yaml_lines(value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        lines = []
        for key, inner in value.items():
            name = yaml_scalar(str(key))
            if is_block(inner):
                lines.append(f"{name}:")
                lines += ["  " + line for line in yaml_lines(inner)]
            else:
                lines.append(f"{name}: {yaml_scalar(inner)}")
        return lines
    if isinstance(value, list | tuple) and value:
        lines = []
        for inner in value:
            first, *rest = yaml_lines(inner)
            lines.append(f"- {first}")
            lines += ["  " + line for line in rest]
        return lines
    return [yaml_scalar(value)]


def is_block(value: Any) -> bool:
    return isinstance(value, dict | list | tuple) and bool(value)


def yaml_escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def yaml_scalar(value: Any) -> str:
    if isinstance(value, str):
        if PLAIN.fullmatch(value) and value.lower() not in NOT_STRINGS:
            return value
        quoted = json.dumps(value, ensure_ascii=False)
        if quoted.isprintable():
            return quoted
        return "".join(each if each.isprintable() else yaml_escape(each) for each in quoted)
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    return json.dumps(value)
