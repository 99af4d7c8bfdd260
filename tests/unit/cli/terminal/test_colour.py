from __future__ import annotations

import os
import sys

import pytest

from barnabas.cli.terminal.colour import Style, paint, paint_note, wants_colour, without_marks
from barnabas.cli.terminal.output import OutputFormat, format_table, render
from tests.terminal import on_terminal

COMMAND = [sys.executable, "-m", "barnabas.cli.main"]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)


def table(_: object) -> str:
    return format_table(["name", "state"], [["a", paint("offline", Style.BAD)], ["b", "ok"]])


@pytest.mark.usefixtures("terminal")
def test_painted_cells_keep_the_table_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    assert render(OutputFormat.TEXT, {}, table) == (
        "NAME  STATE\na     \x1b[31moffline\x1b[0m\nb     ok"
    )
    monkeypatch.setenv("COLUMNS", "9")
    narrow = format_table(["name", "state"], [["a" * 20, paint("under-replicated", Style.BAD)]])
    assert narrow == without_marks(narrow), "a cell that is cut loses its colour"


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_environment_disables_colours(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wants_colour(sys.stdout)
    monkeypatch.setenv(name, value)
    assert not wants_colour(sys.stdout)
    assert "\x1b" not in render(OutputFormat.TEXT, {}, table)
    assert paint_note("error: x") == "error: x"


def test_pipe_gets_no_colours() -> None:
    assert paint("offline", Style.BAD) == "offline"
    assert paint_note("error: x") == "error: x"


@pytest.mark.usefixtures("terminal")
def test_names_cannot_forge_colours() -> None:
    hostile = f"{Style.BAD}red\x1b[31m"
    shown = render(OutputFormat.TEXT, {"name": hostile}, lambda shown: str(shown["name"]))
    assert shown == "\\ue003red\\x1b[31m"


@pytest.mark.usefixtures("terminal")
def test_first_word_of_a_note_is_painted() -> None:
    assert paint_note("error: it failed") == "\x1b[31merror:\x1b[0m it failed"
    assert paint_note("an error: no") == "an error: no"


def test_real_terminal_gets_coloured_errors() -> None:
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    code, shown = on_terminal([*COMMAND, "topcs"], environment=environment)
    assert code == 2
    assert "\x1b[31merror:\x1b[0m no such command 'topcs'" in shown
    code, shown = on_terminal([*COMMAND, "topcs"], environment={**environment, "NO_COLOR": "1"})
    assert "\x1b" not in shown
