"""The process of a broker on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from barnabas.cli.brokers.local_process import (
    command_line,
    find_broker_process,
    has_open_file,
    is_broker_command,
)
from barnabas.world.directory_lock import LOCK_FILE, hold_lock


def test_only_a_broker_of_its_own_is_recognized() -> None:
    assert is_broker_command(["python", "-m", "barnabas.cli.main", "broker", "x.properties"])
    assert is_broker_command(["/usr/bin/python", "/usr/bin/barnabas", "broker", "x.properties"])
    assert not is_broker_command(["/usr/bin/python", "/usr/bin/barnabas", "up", "--brokers", "3"])
    assert not is_broker_command(["/usr/bin/python", "/usr/bin/other", "broker"])
    assert not is_broker_command([])


def test_only_a_broker_with_the_lock_file_is_found(tmp_path: Path) -> None:
    assert find_broker_process(str(tmp_path)) is None
    with hold_lock(tmp_path, "this directory"):
        lock = (tmp_path / LOCK_FILE).stat()
        assert has_open_file(os.getpid(), lock)
        assert find_broker_process(str(tmp_path)) is None, "this process is no broker"
    assert not has_open_file(os.getpid(), lock)
    assert not has_open_file(2**22 + 1, lock)


def test_command_line_of_a_missing_process_is_empty() -> None:
    assert command_line(os.getpid())
    assert command_line(2**22 + 1) == []
