"""The process of a broker on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from barnabas.cli.brokers.local_process import command_line, is_broker_command, lock_holder
from barnabas.world.directory_lock import hold_lock


def test_only_a_broker_of_its_own_is_recognized() -> None:
    assert is_broker_command(["python", "-m", "barnabas.cli.main", "broker", "x.properties"])
    assert is_broker_command(["/usr/bin/python", "/usr/bin/barnabas", "broker", "x.properties"])
    assert not is_broker_command(["/usr/bin/python", "/usr/bin/barnabas", "up", "--brokers", "3"])
    assert not is_broker_command(["/usr/bin/python", "/usr/bin/other", "broker"])
    assert not is_broker_command([])


def test_lock_names_the_process_that_holds_it(tmp_path: Path) -> None:
    assert lock_holder(str(tmp_path)) is None
    with hold_lock(tmp_path, "this directory"):
        assert lock_holder(str(tmp_path)) == os.getpid()
    assert lock_holder(str(tmp_path)) is None


def test_command_line_of_a_missing_process_is_empty() -> None:
    assert command_line(os.getpid())
    assert command_line(2**22 + 1) == []
