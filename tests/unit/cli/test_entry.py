"""Ctrl-C at any moment of the start ends the program without a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

INTERRUPT = """
import os, signal, sys
import barnabas  # adds an importer, which must come after this one

class Interrupter:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter())
sys.argv = ["barnabas", "topics", "list", "-b", "127.0.0.1:1"]
from barnabas.cli.entry import main
main()
"""


def run_interrupted(module: str, *, ignored: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", INTERRUPT.format(module=module)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ,
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignored else None,
    )


@pytest.mark.parametrize(
    "module", ["barnabas.cli.main", "click", "barnabas.cli.topics.list", "barnabas.client.cluster"]
)
def test_interrupt_during_imports_is_quiet(module: str) -> None:
    done = run_interrupted(module)
    assert done.stderr.strip() == ""
    assert done.returncode in (-signal.SIGINT, 128 + signal.SIGINT)


def test_background_job_ignores_interrupt() -> None:
    done = run_interrupted("click", ignored=True)
    assert done.returncode == 1
    assert "no broker answers" in done.stderr


def test_package_can_be_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("barnabas, version ")
