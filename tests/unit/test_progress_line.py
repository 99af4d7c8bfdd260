from __future__ import annotations

import io

from barnabas.progress_line import ERASE, ErasingStream, ProgressBlock, ProgressLine, truncate


def test_long_line_is_truncated() -> None:
    assert truncate("abcdef", 5) == "abc…"
    assert truncate("abc", 5) == "abc"


class Terminal(io.StringIO):
    """Terminal that knows the text of its last line."""

    def isatty(self) -> bool:
        return True

    def last_line(self) -> str:
        return self.getvalue().rpartition("\n")[2].rpartition(ERASE)[2]


def test_output_erases_the_progress_line() -> None:
    terminal = Terminal()
    line = ProgressLine(terminal)
    out = ErasingStream(terminal, line)
    line.show("3/4 tasks")
    assert terminal.last_line() == "3/4 tasks"
    print("a row", file=out)
    assert terminal.getvalue().endswith(f"3/4 tasks{ERASE}a row\n")
    line.show("4/4 tasks")
    assert terminal.last_line() == "4/4 tasks"
    line.show("")
    assert terminal.last_line() == ""


def test_unfinished_output_line_is_not_overwritten() -> None:
    terminal = Terminal()
    line = ProgressLine(terminal)
    out = ErasingStream(terminal, line)
    print("name: ", end="", file=out)
    line.show("3/4 tasks")
    line.erase()
    assert terminal.getvalue() == "name: "
    print("x", file=out)
    line.show("3/4 tasks")
    assert terminal.last_line() == "3/4 tasks"


def test_progress_is_hidden_while_a_prompt_waits() -> None:
    terminal = Terminal()
    line = ProgressLine(terminal)
    line.show("3/4 tasks")
    with line.paused():
        assert terminal.last_line() == ""
        terminal.write(">>> ")
        line.show("3/4 tasks")
        line.show("")
        assert terminal.last_line() == ">>> "
    line.show("4/4 tasks")
    assert terminal.last_line() == "4/4 tasks"


def test_flush_erases_the_progress_line() -> None:
    terminal = Terminal()
    line = ProgressLine(terminal)
    line.show("3/4 tasks")
    out = ErasingStream(terminal, line)
    out.flush()
    assert terminal.last_line() == ""
    assert out.isatty()


def test_block_is_redrawn_in_place() -> None:
    terminal = Terminal()
    block = ProgressBlock(terminal)
    block.show(["a", "b"])
    block.show(["c\x1b[31m"])
    block.erase()
    block.erase()
    assert terminal.getvalue() == "a\nb\n\x1b[2A\r\x1b[Jc\\x1b[31m\n\x1b[1A\r\x1b[J"
