"""FastStream, Faust, Quix Streams and Bytewax run on our brokers. The programs are in frameworks/."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import LocalCluster
from interop.harness.frameworks import PROGRAMS, framework_python
from interop.topics import create_topic, read, write
from support.process import die_with_parent

TIMEOUT_S = 120
USERS, COUNT = 3, 30
TOTALS = {
    f"u{user}": sum(number for number in range(COUNT) if number % USERS == user)
    for user in range(USERS)
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings={"default.replication.factor": "3"}) as running:
        yield running


def run_program(servers: str, directory: Path, *arguments: str) -> None:
    python = framework_python()
    if python is None:
        pytest.skip("the frameworks are not installed; run make interop")
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, *arguments],
        env={**environment, "SERVERS": servers, "DIRECTORY": str(directory)},
        cwd=PROGRAMS,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        preexec_fn=die_with_parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def last_values(servers: str, topic: str) -> dict[str, bytes]:
    return {(each.key or b"").decode(): each.value or b"" for each in read(servers, topic)}


def test_faststream(cluster: LocalCluster, tmp_path: Path) -> None:
    servers = cluster.bootstrap_servers
    run_program(servers, tmp_path, "faststream_program.py")
    found = [json.loads(each.value or b"")["number"] for each in read(servers, "faststream-out")]
    assert found == [2 * number for number in range(20)]


def test_faust(cluster: LocalCluster, tmp_path: Path) -> None:
    servers = cluster.bootstrap_servers
    # Faust ignores a topic that does not exist when it starts.
    create_topic(servers, "faust-orders", 2)
    create_topic(servers, "faust-totals", 1)
    run_program(servers, tmp_path, "faust_program.py", "worker", "--loglevel", "warn")
    found = {user: int(value) for user, value in last_values(servers, "faust-totals").items()}
    assert found == TOTALS


def test_quix_streams(cluster: LocalCluster, tmp_path: Path) -> None:
    servers = cluster.bootstrap_servers
    run_program(servers, tmp_path, "quix_program.py")
    found = last_values(servers, "quix-out")
    assert {user: json.loads(value)["total"] for user, value in found.items()} == TOTALS


def test_bytewax(cluster: LocalCluster, tmp_path: Path) -> None:
    servers = cluster.bootstrap_servers
    create_topic(servers, "bytewax-in", 2)
    create_topic(servers, "bytewax-out", 2)
    write(servers, "bytewax-in", [f"line {number}" for number in range(50)])
    run_program(servers, tmp_path, "-m", "bytewax.run", "bytewax_program.py")
    found = sorted(each.value or b"" for each in read(servers, "bytewax-out"))
    assert found == sorted(b"LINE %d" % number for number in range(50))
