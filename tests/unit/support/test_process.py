from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from support.ports import free_port
from support.process import ChildProcess, StartFailed, wait_for

ECHO = "import sys\nfor line in sys.stdin: print('got', line, end='', flush=True)"


def start(directory: Path, code: str, *, is_piped: bool = False) -> ChildProcess:
    command = [sys.executable, "-c", code]
    return ChildProcess("it", command, log=directory / "log", is_piped=is_piped)


def test_lines_are_exchanged(tmp_path: Path) -> None:
    process = start(tmp_path, ECHO, is_piped=True)
    for word in ("one", "two"):
        process.send(word)
        assert process.read_line(30) == f"got {word}"
    assert process.stop() == -signal.SIGTERM


def test_missing_line_fails_at_the_deadline(tmp_path: Path) -> None:
    process = start(tmp_path, ECHO, is_piped=True)
    with pytest.raises(AssertionError, match=r"no line within 0\.1 s: it is running"):
        process.read_line(0.1)
    process.kill()


def test_end_of_output_reports_the_log(tmp_path: Path) -> None:
    process = start(tmp_path, "raise SystemExit('out of luck')", is_piped=True)
    with pytest.raises(AssertionError, match=r"exit code 1(.|\n)*out of luck"):
        process.read_line(30)
    process.kill()


def test_paused_process_continues(tmp_path: Path) -> None:
    process = start(tmp_path, ECHO, is_piped=True)
    process.pause()
    process.send("x")
    process.resume()
    assert process.read_line(30) == "got x"
    process.kill()
    process.kill()


def test_failed_start_reports_the_reason(tmp_path: Path) -> None:
    process = start(tmp_path, "raise SystemExit('ERROR out of luck')")
    with pytest.raises(StartFailed, match=r"^it did not start: ERROR out of luck"):
        wait_for(process, lambda: None)
    process.kill()


def test_free_ports_differ() -> None:
    ports = [free_port() for _ in range(20)]
    assert len(set(ports)) == 20
