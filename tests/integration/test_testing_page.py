"""The examples in docs/testing.md run as they are printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.command import RUN_SECONDS
from support.process import ENVIRONMENT
from tests.integration.test_pytest_plugin import ARGUMENTS, same_barnabas

__all__ = ["same_barnabas"]  # fixture for all

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_python_examples_pass(pytester: pytest.Pytester) -> None:
    found = blocks("python")
    tests = sum(block.count("def test_") for block in found)
    assert tests >= 6
    pytester.makepyfile(**{f"test_block_{number}": block for number, block in enumerate(found)})
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=tests)


@pytest.mark.parametrize("script", blocks("sh"))
def test_shell_examples_succeed(tmp_path: Path, script: str) -> None:
    program = tmp_path / "bin" / "barnabas"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m barnabas "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PATH": f"{program.parent}:{ENVIRONMENT['PATH']}"},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr.replace("stopping ...\n", "")) == (0, ""), done.stdout
    assert not (tmp_path / "cluster.env").exists()
