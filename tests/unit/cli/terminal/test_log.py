from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from barnabas.cli.terminal.log import LogOptions
from barnabas.log_lines import JsonFormatter
from support.command import run


def test_json_entry_has_one_line_and_the_traceback() -> None:
    try:
        raise ValueError("a\nb\u2028")
    except ValueError:
        broken = sys.exc_info()
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed name=%s", ("a\nb",), broken)
    record.created = 1_700_000_000.123
    line = JsonFormatter().format(record)
    assert line.isprintable()
    entry = json.loads(line)
    assert entry["exception"].endswith("ValueError: a\nb\u2028")
    del entry["exception"]
    assert entry == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "ERROR",
        "logger": "x",
        "message": "failed name=a\\nb",
    }


def test_options_for_another_process_leave_out_defaults() -> None:
    assert LogOptions().arguments == []
    assert LogOptions("error", "json").arguments == ["--log-level=error", "--log-format=json"]


def test_broker_logs_json_of_the_chosen_level(tmp_path: Path) -> None:
    """The broker fails after its first log lines: a listener is wrong."""
    config = tmp_path / "server.properties"
    config.write_text(f"broker.id=1\nlog.dirs={tmp_path}/logs\nlisteners=PLAINTEXT://a:b:c\n")
    chatty = run("broker", str(config), "--log-format", "json")
    assert chatty.returncode == 2
    first, *_, last = chatty.stderr.splitlines()
    assert json.loads(first)["message"].startswith("starting barnabas=")
    assert last.startswith("error: ")
    quiet = run("broker", str(config), "--log-format", "json", "--log-level", "ERROR")
    assert all(line.startswith(("error: ", "hint: ")) for line in quiet.stderr.splitlines())
