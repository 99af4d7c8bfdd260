"""Output of commands: text for people, or one JSON or YAML document for programs.

A command builds one document (dicts, lists, strings, numbers, booleans, None) and a text from it. `show` prints the one
that `--output` selects. The keys of the document are stable, the text is not. Tables fit the width of the terminal: the
widest column is cut first. In a pipe nothing is cut. `paint` of cli/terminal/colour.py colours parts of a text.

Commands print through this module only: it escapes control characters in untrusted text (see barnabas/printable.py).
`show` prints results, `print_lines` prints other lines on standard output. `print_note` and `confirm_deletion` write to
standard error. JSON and YAML have the escapes of their format instead.
"""

from __future__ import annotations

import json
import re
import select
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from math import isfinite, isnan
from typing import Any

import click

from barnabas.cli.terminal.colour import MARKS, paint_note, with_sequences, without_marks
from barnabas.errors import ConfigError
from barnabas.printable import json_escapes, printable

WIDTH = 100
MIN_WIDTH = 40
FIT = -1
"""Stands for the width of the terminal."""
UNBROKEN_SPACE = "\ue000"
"""Stands for a space at which a text is not wrapped."""
GAP = "  "
WATCH_INTERVAL_S = 2.0
CLEAR_SCREEN = "\x1b[2J\x1b[H"


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


def show(output: OutputFormat, document: Any, to_text: Callable[[Any], str]) -> None:
    write_out(f"{render(output, document, to_text)}\n".encode())


def render(output: OutputFormat, document: Any, to_text: Callable[[Any], str]) -> str:
    """Return the output. `to_text` gets the document with all strings escaped."""
    match output:
        case OutputFormat.TEXT:
            lines = to_text(printable_document(document)).split("\n")
            return with_sequences("\n".join(printable(line, keep=MARKS) for line in lines))
        case OutputFormat.JSON:
            return to_json(document, indent=2)
        case OutputFormat.YAML:
            return to_yaml(document)


def show_or_watch(
    watch: bool, output: OutputFormat, load: Callable[[], Any], to_text: Callable[[Any], str]
) -> None:
    """Print a document once, or every two seconds: in place on a terminal, one after the other in a pipe.

    In a pipe, each JSON document is one line.
    """
    while True:
        document = load()
        page = render(output, document, to_text)
        if watch and sys.stdout.isatty():
            page = clear_screen_text() + page
        elif watch and output is OutputFormat.JSON:
            page = to_json(document)
        elif watch and output is OutputFormat.YAML:
            page = "---\n" + page
        write_out(f"{page}\n".encode())
        if not watch:
            return
        time.sleep(WATCH_INTERVAL_S)


def clear_screen_text() -> str:
    """Return the escape sequence that clears a terminal; empty if standard output is none."""
    return CLEAR_SCREEN if sys.stdout.isatty() else ""


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


def print_lines(*lines: str, keep: str = "") -> None:
    """Print lines on standard output. Each argument is one line; `keep` are control characters not to escape."""
    write_out("".join(f"{printable(line, keep=keep)}\n" for line in lines).encode())


def write_out(data: bytes) -> None:
    """Write all bytes and flush.

    With PYTHONUNBUFFERED the stream is a raw file, whose write may be partial: `print` to a pipe would lose the rest.
    """
    try:
        sys.stdout.flush()
        stream = sys.stdout.buffer
        rest = memoryview(data)
        while rest:
            rest = rest[stream.write(rest) :]
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise click.ClickException(f"standard output: {error.strerror}") from None


def raise_if_reader_gone() -> None:
    """Raise BrokenPipeError if the reader closed standard output. For commands that wait for data, like `tail -f`."""
    if hasattr(select, "poll"):
        reader = select.poll()
        reader.register(sys.stdout.fileno(), 0)
        if any(event & select.POLLERR for _, event in reader.poll(0)):
            raise BrokenPipeError


def print_note(*lines: str) -> None:
    """Print lines on standard error. Each argument is one line."""
    shown = [paint_note(printable(line)) for line in lines]
    print(*shown, sep="\n", file=sys.stderr, flush=True)


def print_warning(text: str) -> None:
    print_note(*wrap(f"warning: {text}", indent=9).split("\n"))


def confirm_deletion(question: str, *, yes: bool) -> None:
    """Ask before a deletion, unless `--yes` was given. Exits with 1 if the answer is no, fails without a terminal."""
    confirm(question, yes=yes, purpose="to delete", if_refused="nothing was deleted")


def confirm(question: str, *, yes: bool, purpose: str, if_refused: str) -> None:
    """Ask before something that cannot be undone, unless `--yes` was given.

    Exits with 1 if the answer is no. Raises ConfigError without a terminal; `purpose` completes its text.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("--yes", f"required {purpose} without a terminal for the prompt")
    if not click.confirm(printable(question), err=True):
        print_note(if_refused)
        raise click.exceptions.Exit(1)


def answers_yes() -> bool:
    """Read a line from standard input, and return whether it is `y`. For Kafka's commands, which print the question."""
    return sys.stdin.readline().strip().lower() == "y"


def prompt_password(question: str) -> str:
    """Ask for a new password twice, without showing it. Raises ConfigError without a terminal."""
    if not sys.stdin.isatty():
        why = "cannot be asked for without a terminal; use --password-file or --generate"
        raise ConfigError("password", why)
    answer = click.prompt(printable(question), hide_input=True, confirmation_prompt=True, err=True)
    return str(answer)


# ---- tables ---------------------------------------------------------------------------------------------------


def format_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    width: int | None = FIT,
    null: str = "None",
) -> str:
    """Return a table. Columns of numbers are right-aligned, even if some are None.

    `width` is the maximum width, by default that of the terminal; None cuts nothing.

    >>> print(format_table(["topic", "partitions"], [["orders", 6], ["a", 12]]))
    TOPIC   PARTITIONS
    orders           6
    a               12
    """
    if width == FIT:
        width = table_width()
    cells = [
        [null if cell is None else printable(str(cell), keep=MARKS) for cell in row] for row in rows
    ]
    lines = [[printable(head).upper() for head in heads], *cells]
    widths = [max(visible_length(line[at]) for line in lines) for at in range(len(heads))]
    if width is not None:
        shrink_columns(widths, width)
    present = [[row[at] for row in rows if row[at] is not None] for at in range(len(heads))]
    are_numbers = [bool(found) and all(map(is_number, found)) for found in present]
    return "\n".join(
        GAP.join(
            align_cell(cell, size, to_right=to_right)
            for cell, size, to_right in zip(line, widths, are_numbers, strict=True)
        ).rstrip()
        for line in lines
    )


def table_width() -> int | None:
    """Return the width of the terminal, or None if standard output is none: programs get whole cells."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else None


def text_width() -> int:
    """Return the width of sentences: at most WIDTH, and at most the width of the terminal."""
    return max(MIN_WIDTH, min(WIDTH, table_width() or WIDTH))


def visible_length(cell: str) -> int:
    return len(without_marks(cell))


def align_cell(cell: str, size: int, *, to_right: bool) -> str:
    cell = cut_cell(cell, size)
    padding = " " * (size - visible_length(cell))
    return padding + cell if to_right else cell + padding


def shrink_columns(widths: list[int], width: int) -> None:
    """Shrink the widest columns, in place, until the table fits. No column gets narrower than eight characters."""
    while sum(widths) + len(GAP) * (len(widths) - 1) > width and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1


def cut_cell(cell: str, size: int) -> str:
    """Cut a cell to `size` characters. A cell that is cut loses its colour."""
    if visible_length(cell) <= size:
        return cell
    return without_marks(cell)[: size - 1] + "…"


def is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def wrap(text: str, indent: int) -> str:
    """Wrap at `text_width`, with the second and later lines indented. Words are never broken, so that they can be
    copied."""
    return textwrap.fill(
        text,
        text_width(),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def wrap_around_commands(text: str, indent: int) -> str:
    """Wrap a text, but no command in backquotes, so that it can be copied."""
    parts = text.split("`")
    parts[1::2] = [part.replace(" ", UNBROKEN_SPACE) for part in parts[1::2]]
    return wrap("`".join(parts), indent).replace(UNBROKEN_SPACE, " ")


def up_line(title: str, addresses: str, data: object) -> str:
    """Return `Barnabas is up: 1 broker at HOST:PORT, data in DIR`, on as many lines as needed."""
    line = f"{title} at {addresses}"
    if len(line) > WIDTH:
        line = wrap(line.replace(",", ", "), indent=2)
    whole = f"{line}, data in {data}"
    return whole if len(whole) <= WIDTH else f"{line}\n  data in {data}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def join_numbers(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def number_ranges(numbers: Sequence[int]) -> str:
    """Shorten sorted numbers to ranges.

    >>> number_ranges([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][-1] + 1 == number:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    return ",".join("-".join(map(str, run)) for run in ranges)


# ---- JSON and YAML --------------------------------------------------------------------------------------------

UNQUOTED_YAML = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*")
YAML_KEYWORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n", "~"})


def to_json(
    value: Any, indent: int | None = None, separators: tuple[str, str] | None = None
) -> str:
    """Return JSON. It has no NaN and no infinity: they become strings."""
    try:
        text = json.dumps(
            value, indent=indent, separators=separators, ensure_ascii=False, allow_nan=False
        )
    except ValueError:
        return to_json(with_finite_numbers(value), indent, separators)
    return json_escapes(text)


def with_finite_numbers(value: Any) -> Any:
    match value:
        case float() if not isfinite(value):
            return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {key: with_finite_numbers(each) for key, each in value.items()}
        case list() | tuple():
            return [with_finite_numbers(each) for each in value]
        case _:
            return value


def to_yaml(value: Any) -> str:
    """Return plain data as YAML. PyYAML would be a dependency for these few lines."""
    if isinstance(value, dict) and value:
        return "\n".join(yaml_entry(str(key), inner) for key, inner in value.items())
    if isinstance(value, list | tuple) and value:
        return "\n".join(f"- {indented_yaml(inner)}" for inner in value)
    return yaml_scalar(value)


def yaml_entry(key: str, value: Any) -> str:
    between = "\n  " if isinstance(value, dict | list | tuple) and value else " "
    return f"{yaml_scalar(key)}:{between}{indented_yaml(value)}"


def indented_yaml(value: Any) -> str:
    return to_yaml(value).replace("\n", "\n  ")


def yaml_scalar(value: Any) -> str:
    """Return a value without items: a string, a number, a boolean, None, or an empty dict or list."""
    if not isinstance(value, str):
        return json.dumps(with_finite_numbers(value))
    if UNQUOTED_YAML.fullmatch(value) and value.lower() not in YAML_KEYWORDS:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    if quoted.isprintable():
        return quoted
    return "".join(each if each.isprintable() else yaml_escape(each) for each in quoted)


def yaml_escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
