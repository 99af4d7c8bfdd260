from __future__ import annotations

import shutil
import subprocess

import pytest

from barnabas.cli.main import run_command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_valid_and_calls_barnabas(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_BARNABAS_COMPLETE={shell}_complete" in script
    if (program := shutil.which(shell)) is not None:
        checked = subprocess.run([program, "-n"], input=script, text=True, check=False)
        assert checked.returncode == 0


def test_unknown_shell_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
