"""FastAPI, FastStream, Faust, Quix Streams and Bytewax run on our brokers: programs in examples/ and frameworks/."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas import LocalCluster
from interop.harness.frameworks import PROGRAMS, framework_python
from interop.topics import create_topic, read, write
from support.ports import free_port
from support.process import die_with_parent
from support.waiting import eventually

EXAMPLES = Path(__file__).parents[1] / "examples"
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


def start_program(
    servers: str, directory: Path, *arguments: str | Path, **environment: str
) -> subprocess.Popen[str]:
    python = framework_python()
    if python is None:
        pytest.skip("the frameworks are not installed; run make interop")
    inherited = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    addresses = {"SERVERS": servers, "BARNABAS_BOOTSTRAP_SERVERS": servers}
    return subprocess.Popen(
        [python, *arguments],
        env={**inherited, **addresses, "DIRECTORY": str(directory), **environment},
        cwd=PROGRAMS,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )


def run_program(
    servers: str, directory: Path, *arguments: str | Path, **environment: str
) -> list[str]:
    """Run a program to its end. Returns the lines of its output."""
    with start_program(servers, directory, *arguments, **environment) as program:
        try:
            output, errors = program.communicate(timeout=TIMEOUT_S)
        finally:
            program.kill()
    assert program.returncode == 0, errors[-3000:]
    return output.splitlines()


def last_values(servers: str, topic: str) -> dict[str, bytes]:
    return {(each.key or b"").decode(): each.value or b"" for each in read(servers, topic)}


@contextmanager
def web_service(servers: str, directory: Path) -> Iterator[str]:
    """Run the service of examples/fastapi. Yields its address."""
    port = free_port()
    program = EXAMPLES / "fastapi" / "orders.py"
    with start_program(servers, directory, program, PORT=str(port)) as service:
        try:
            eventually(lambda: is_up(service, port), "the service is up", TIMEOUT_S)
            yield f"http://127.0.0.1:{port}"
        finally:
            service.terminate()
            _, errors = service.communicate(timeout=TIMEOUT_S)
            assert "Application shutdown complete" in errors, errors[-3000:]


def is_up(service: subprocess.Popen[str], port: int) -> bool:
    assert service.poll() is None, service.communicate()[1][-3000:]
    try:
        ask(f"http://127.0.0.1:{port}/totals")
    except urllib.error.URLError:
        return False
    return True


def ask(address: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        return json.load(response)


def test_fastapi(cluster: LocalCluster, tmp_path: Path) -> None:
    servers = cluster.bootstrap_servers
    create_topic(servers, "orders", 3)
    with web_service(servers, tmp_path) as address:
        places = [
            ask(f"{address}/orders", {"user": user, "amount": amount})
            for user, amount in [("olga", 7), ("klamm", 30), ("olga", 2)]
        ]
        assert [tuple(each.values()) for each in places] == [(1, 0), (1, 1), (1, 2)]
        expected = {"olga": 9, "klamm": 30}
        eventually(lambda: ask(f"{address}/totals") == expected, "the orders are consumed")
    with web_service(servers, tmp_path) as address:
        eventually(lambda: ask(f"{address}/totals") == expected, "a new service reads all orders")


def test_faststream(cluster: LocalCluster, tmp_path: Path) -> None:
    servers = cluster.bootstrap_servers
    output = run_program(servers, tmp_path, EXAMPLES / "faststream" / "doubles.py")
    assert output[-1] == f"doubled {list(range(20))}"
    found = [json.loads(each.value or b"")["number"] for each in read(servers, "faststream-out")]
    assert found == [2 * number for number in range(20)]


def test_faust(cluster: LocalCluster, tmp_path: Path) -> None:
    servers = cluster.bootstrap_servers
    # Faust ignores a topic that does not exist when it starts.
    create_topic(servers, "faust-orders", 2)
    create_topic(servers, "faust-totals", 1)
    program = EXAMPLES / "faust" / "totals.py"
    arguments = ("worker", "--loglevel", "warn")
    output = run_program(servers, tmp_path, program, *arguments, REPLICAS="3")
    assert f"totals {TOTALS}" in output
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
