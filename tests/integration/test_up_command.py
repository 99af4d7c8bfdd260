"""`barnabas up --ephemeral -- COMMAND`, --write-env and --ready-fd."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from support.command import COMMAND, RUN_SECONDS
from support.process import ENVIRONMENT, STOP_SECONDS
from support.waiting import eventually

TRAP = """
import signal, sys
signal.signal(signal.{name}, lambda *_: sys.exit(42))
print("ready", flush=True)
while True:
    signal.pause()
"""


def environment(temporary: Path) -> dict[str, str]:
    temporary.mkdir(exist_ok=True)
    return {**ENVIRONMENT, "TMPDIR": str(temporary)}


def up(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "up", *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        cwd=tmp_path,
        env=environment(tmp_path / "temporary"),
        check=False,
    )


@contextmanager
def started(
    tmp_path: Path, *arguments: str, pass_fds: tuple[int, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, "up", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=pass_fds,
        env=environment(tmp_path / "temporary"),
    )
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def assert_removed(tmp_path: Path) -> None:
    assert list((tmp_path / "temporary").iterdir()) == []


def test_command_runs_against_fresh_cluster_and_gives_exit_code(tmp_path: Path) -> None:
    script = f"""
import os, sys
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster

servers = os.environ["BOOTSTRAP_SERVERS"]
assert os.environ["BARNABAS_BOOTSTRAP_SERVERS"] == servers
with Cluster(servers) as cluster:
    print(*(topic.name for topic in Admin(cluster).list_topics()), len(cluster.view.brokers))
print(*(name[:9] for name in os.listdir({str(tmp_path / "temporary")!r})), *sys.argv[1:])
sys.exit(7)
"""
    arguments = ("--ephemeral", "--brokers=3", "--topic=orders:6:3", "--")
    done = up(tmp_path, *arguments, sys.executable, "-c", script, "--brokers", "a b")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == "orders 3\nbarnabas- --brokers a b\n"
    assert_removed(tmp_path)


def test_killed_command_gives_exit_code_of_signal(tmp_path: Path) -> None:
    assert up(tmp_path, "--ephemeral", "--", "sh", "-c", "kill -9 $$").returncode == 128 + 9
    assert_removed(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_forwarded_to_command(tmp_path: Path, number: signal.Signals) -> None:
    command = (sys.executable, "-c", TRAP.format(name=number.name))
    with started(tmp_path, "--ephemeral", "--", *command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(STOP_SECONDS) == 42
    assert_removed(tmp_path)


def test_command_ends_with_killed_up(tmp_path: Path) -> None:
    command = (sys.executable, "-c", TRAP.format(name="SIGTERM"))
    with started(tmp_path, "--ephemeral", "--", *command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
        assert process.stdout.read() == ""  # at the end of the command, which inherited the pipe


def test_ready_descriptor_and_env_file_without_command(tmp_path: Path) -> None:
    env_file = tmp_path / "cluster.env"
    env_file.write_text("BOOTSTRAP_SERVERS=of an earlier cluster\n")
    reading, writing = os.pipe()
    arguments = ("--ephemeral", "--brokers=2", f"--write-env={env_file}", f"--ready-fd={writing}")
    with started(tmp_path, *arguments, pass_fds=(writing,)) as process:
        os.close(writing)
        with os.fdopen(reading) as ready:
            servers = ready.read().removesuffix("\n")  # to its end: `up` closes it
        assert servers.count(":") == 2
        lines = [f"BARNABAS_BOOTSTRAP_SERVERS={servers}", f"BOOTSTRAP_SERVERS={servers}"]
        assert env_file.read_text().splitlines() == lines
        with Cluster(servers) as client:
            assert Admin(client).list_topics() == []
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert "Ctrl-C stops it; the data is removed." in process.stdout.read()
        assert process.wait(STOP_SECONDS) == 0
    assert not env_file.exists()
    assert_removed(tmp_path)


def test_command_with_kept_data(tmp_path: Path) -> None:
    arguments = ("--port=0", "--topic=orders", "--", "true")
    assert up(tmp_path, *arguments).returncode == 0
    eventually((tmp_path / "barnabas-data" / "broker-1" / "orders-0").is_dir, "the log is kept")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--ephemeral", "--data=x"), "--ephemeral: cannot be combined with --data"),
        (("--ephemeral", "--", "no-such-program"), "COMMAND: 'no-such-program' is not a program"),
        (("--ephemeral", "--ready-fd=99"), "--ready-fd: 99 is not an open file descriptor"),
        (("--ephemeral", "--write-env=.env"), ".env exists and has other contents; choose another"),
        (("--ephemeral", "--write-env=no/env", "--", "true"), "--write-env: cannot write no/env"),
    ],
)
def test_wrong_usage_is_reported(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    (tmp_path / ".env").write_text("PASSWORD=secret\n")
    done = up(tmp_path, *arguments)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / ".env").read_text() == "PASSWORD=secret\n"
    assert_removed(tmp_path)
