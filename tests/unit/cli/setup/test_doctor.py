from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from barnabas import LocalCluster
from barnabas.cli.main import run_command
from barnabas.cli.setup.checks import (
    CheckState,
    check_code,
    check_descriptors,
    check_disk,
    check_package,
    check_port,
)


def run_doctor(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, object]]:
    code = run_command(["doctor", "-o", "json", *options])
    return code, json.loads(capsys.readouterr().out)


def states(document: dict[str, object]) -> dict[str, str]:
    checks = document["checks"]
    assert isinstance(checks, list)
    return {each["check"]: each["state"] for each in checks}


def test_every_warning_and_problem_says_what_to_fix() -> None:
    found = [
        check_code("1", is_compiled=False, is_stale=True, reason="x.py has changed"),
        check_code("1", is_compiled=False, is_stale=False, reason="no C compiler"),
        check_code("1", is_compiled=False, is_stale=False, reason="BARNABAS_PURE is set"),
        check_descriptors(2000),
        check_disk("/data", 2_000_000_000, 10**12),
        check_port(9092, is_free=False, has_broker=False),
    ]
    assert {each.state for each in found} == {CheckState.WARNING}
    assert all(each.fix for each in found)
    problems = [check_descriptors(256), check_disk("/data", 1000, 10**12)]
    assert {each.state for each in problems} == {CheckState.PROBLEM}
    assert all(each.fix for each in problems)


def test_sound_machine_is_ok() -> None:
    found = [
        check_code("1", is_compiled=True, is_stale=False, reason=""),
        check_descriptors(None),
        check_descriptors(1 << 20),
        check_disk("/data", 10**12, 10**13),
        check_port(9092, is_free=True, has_broker=False),
        check_port(9092, is_free=False, has_broker=True),
        check_package("pyspark", None, purpose="for sql", install="pip install x"),
    ]
    assert {each.state for each in found} == {CheckState.OK}


def test_ports_in_use_are_told_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.socket() as other, LocalCluster() as cluster:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        used = other.getsockname()[1]
        broker = int(cluster.bootstrap_servers.rpartition(":")[2])
        ports = ["--port", str(used), "--port", str(broker)]
        _, document = run_doctor(capsys, *ports, "--data", str(tmp_path / "not" / "yet"))
    found = states(document)
    assert found[f"port {used}"] == "warning"
    assert found[f"port {broker}"] == "ok"
    assert found["python"] == "ok"
    assert {"barnabas", "java", "pyspark", "librdkafka", "open files", "disk"} <= found.keys()


def test_problem_exits_with_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "barnabas").mkdir()
    (tmp_path / "barnabas" / "profiles.toml").write_text("broken")
    code, document = run_doctor(capsys)
    assert (code, states(document)["profile"]) == (1, "problem")
    assert run_command(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "problem  profile" in text
    assert "fix: correct the file, or delete it" in text
