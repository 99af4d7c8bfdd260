from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.cli.main import run_command


def test_dry_run_writes_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["pipeline", "init", "counts", "--dry-run", "-o", "json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["dry_run"]
    assert list(tmp_path.iterdir()) == []
    assert run_command(["pipeline", "init", "counts", "-o", "json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written == {**planned, "dry_run": False}
    assert all(Path(name).is_file() for name in written["files"])
    assert run_command(["pipeline", "init", "counts", "--dry-run"]) == 2
