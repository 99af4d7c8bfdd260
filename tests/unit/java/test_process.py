from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest

from barnabas.java.process import JavaProcess, find_fault
from support import python_process
from tests.processes import assert_ended

# Any program can stand in for Java.
SLEEP = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")
START_AND_WAIT = """
import sys
from pathlib import Path
from barnabas.java.process import JavaProcess
directory = Path(sys.argv[1])
process = JavaProcess("it", ["sleep", "600"], directory=directory, log=directory / "log")
print(process.pid, flush=True)
sys.stdin.read()
"""


def start(directory: Path, *command: str) -> JavaProcess:
    return JavaProcess("it", command or SLEEP, directory=directory, log=directory / "log")


def test_pid_and_exit_code_belong_to_the_program(tmp_path: Path) -> None:
    process = start(tmp_path, sys.executable, "-c", "import os; print(os.getpid()); exit(3)")
    assert process.child.wait(30) == 3
    assert process.exit_code == 3
    assert int(process.log()) == process.pid
    process.kill()


def test_program_has_an_empty_standard_input(tmp_path: Path) -> None:
    process = start(tmp_path, "cat")
    assert process.child.wait(30) == 0
    process.kill()


@pytest.mark.parametrize(("how", "code"), [("kill", -signal.SIGKILL), ("stop", -signal.SIGTERM)])
def test_kill_and_stop_leave_no_process(tmp_path: Path, how: str, code: int) -> None:
    process = start(tmp_path)
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
    getattr(process, how)()
    assert process.exit_code == code
    assert_ended(family)
    process.kill()


def test_paused_program_can_be_killed(tmp_path: Path) -> None:
    process = start(tmp_path)
    process.pause()
    process.resume()
    process.pause()
    process.kill()
    assert process.exit_code == -signal.SIGKILL


def test_program_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent = python_process.start(START_AND_WAIT, str(tmp_path))
    with parent:
        assert parent.stdout is not None
        orphan = psutil.Process(int(parent.stdout.readline()))
        family = [orphan, *orphan.children()]
        parent.kill()
    assert_ended(family)


def test_fault_is_first_logged_exception_with_root_cause() -> None:
    log = (
        "2026-01-01 WARN tried (kafka.Kafka$)\n"
        "java.net.ConnectException: survived\n"
        "2026-01-01 ERROR Exiting (kafka.Kafka$)\n"
        "org.apache.kafka.common.KafkaException: cannot do it\n"
        "\tat kafka.Kafka.main(Kafka.scala)\n"
        "Caused by: java.io.IOException: disk on fire\n"
        "java.lang.IllegalStateException: later\n"
    )
    assert find_fault(log) == (
        "org.apache.kafka.common.KafkaException: cannot do it (java.io.IOException: disk on fire)"
    )
    assert find_fault("all well\n2026-01-01 ERROR odd (x.Y)\n") == "2026-01-01 ERROR odd (x.Y)"
    assert find_fault("all well\n") == ""
