"""The supervisor of a node, with small programs instead of brokers."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import IO

import pytest

from barnabas.cli.brokers import supervisor
from barnabas.cli.brokers.supervisor import (
    NodeSupervisor,
    SupervisedBroker,
    json_log_line,
    stop_waves,
)
from barnabas.cli.terminal.log import LogOptions
from barnabas.client.view import BrokerView, ClusterView
from barnabas.cluster.node_settings import NodeBroker
from barnabas.errors import AddressInUse
from barnabas.model import BrokerId, Endpoint
from barnabas.retry import Backoff

SLEEP = "import time; print('ready', flush=True); time.sleep(60)"
IGNORE_SIGTERM = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


@pytest.fixture(autouse=True)
def python_instead_of_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument of a broker, its config file, is the code of a Python program."""

    async def start(
        arguments: Iterable[str], output: IO[bytes] | int, death_signal: signal.Signals
    ) -> Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", next(iter(arguments))),
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
        )

    monkeypatch.setattr(supervisor, "start_broker_process", start)


def broker(broker_id: int, port: int = 0) -> NodeBroker:
    return NodeBroker(
        id=BrokerId(broker_id),
        listeners=(Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=port),),
        advertised_listeners=(),
        log_dirs=(f"/data/broker-{broker_id}",),
        rack="rhine",
    )


def supervised(code: str) -> SupervisedBroker:
    found = SupervisedBroker(broker(1), Path(code), [])
    found.backoff = Backoff(0.001, 0.004, random=Random(1))
    return found


def view(controller: int, *ids: int) -> ClusterView:
    brokers = {each: BrokerView(id=each, host="h", port=9092) for each in map(BrokerId, ids)}
    return ClusterView(controller=BrokerId(controller), brokers=brokers)


def waves(running: list[int], node: list[int], seen: ClusterView | None) -> list[list[int]]:
    found = stop_waves(list(map(BrokerId, running)), list(map(BrokerId, node)), seen)
    return [[*wave] for wave in found]


def test_without_other_nodes_all_stop_at_once_and_the_controller_last() -> None:
    assert waves([1, 2, 3], [1, 2, 3], view(2, 1, 2, 3)) == [[1, 3], [2]]


def test_with_other_nodes_brokers_stop_one_after_the_other() -> None:
    assert waves([1, 2, 3], [1, 2, 3], view(2, 1, 2, 3, 4)) == [[1], [3], [2]]
    assert waves([1, 2, 3], [1, 2, 3], view(4, 1, 2, 3, 4)) == [[1], [2], [3]]


def test_crashed_broker_of_the_node_is_no_other_node() -> None:
    assert waves([1, 3], [1, 2, 3], view(1, 1, 2, 3)) == [[3], [1]]


def test_without_metadata_all_stop_at_once() -> None:
    assert waves([1, 2], [1, 2], None) == [[1, 2]]
    assert waves([], [1, 2], None) == []


async def test_crashing_broker_is_restarted_with_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = supervised("raise SystemExit('error: disk full')")
    with caplog.at_level(logging.INFO, "barnabas.node"):
        task = asyncio.create_task(running.run())
        while running.backoff.failures < 4:
            await asyncio.sleep(0.01)
        running.stopping.set()
        await task
    crashes = [each for each in caplog.messages if each.startswith("broker crashed")]
    assert crashes[0] == (
        "broker crashed id=1 reason=ended with exit code 1: disk full restart_in_s=0.001"
    )
    pauses = [float(each.rpartition("=")[2]) for each in crashes]
    assert pauses[:4] == [0.001, 0.002, 0.004, 0.004]


async def test_stop_ends_the_pause_before_a_restart() -> None:
    running = supervised("raise SystemExit(1)")
    running.backoff = Backoff(60.0, 60.0, random=Random(1))
    task = asyncio.create_task(running.run())
    while not running.backoff.failures:
        await asyncio.sleep(0.01)
    running.stopping.set()
    await asyncio.wait_for(task, 10)
    assert not running.has_stopped_cleanly


async def test_broker_that_crashes_during_the_stop_is_not_restarted() -> None:
    running = supervised(SLEEP)
    task = asyncio.create_task(running.run())
    process = await wait_for_output(running)
    running.stopping.set()
    process.kill()
    await asyncio.wait_for(task, 10)
    assert not running.has_stopped_cleanly


async def test_broker_that_starts_during_the_stop_is_terminated() -> None:
    running = supervised(SLEEP)
    task = asyncio.create_task(running.run())
    await asyncio.sleep(0)  # the start is under way
    running.stopping.set()
    await asyncio.wait_for(task, 10)
    assert running.has_stopped_cleanly


async def test_broker_that_ran_for_long_is_restarted_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STABLE_S", -1.0)
    running = supervised("raise SystemExit(75)")
    task = asyncio.create_task(running.run())
    await asyncio.sleep(0)
    pids: set[int] = set()
    while len(pids) < 3:
        if running.process is not None:
            pids.add(running.process.pid)
        assert running.backoff.failures <= 1
        await asyncio.sleep(0.001)
    running.stopping.set()
    await task


async def test_killed_broker_is_restarted_and_stopped_broker_is_not() -> None:
    running = supervised(SLEEP)
    task = asyncio.create_task(running.run())
    first = await wait_for_output(running)
    first.kill()
    second = await wait_for_output(running, after=first)
    second.terminate()  # by another process: the supervisor did not request it
    await asyncio.wait_for(task, 10)
    assert running.has_stopped_cleanly


async def wait_for_output(running: SupervisedBroker, after: Process | None = None) -> Process:
    async with asyncio.timeout(30):
        while running.process in (None, after) or not running.last_lines:
            await asyncio.sleep(0.01)
    assert running.process is not None
    return running.process


async def test_output_has_the_id_of_the_broker(capsys: pytest.CaptureFixture[str]) -> None:
    code = "import os; os.write(2, b'one\\n' + bytes([27, 255]) + b'two\\n' + b'x' * 70000 + b'\\nend')"
    await supervised(code).run()
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["broker 1 | one", "broker 1 | \\x1b\\xfftwo"]
    assert lines[-1] == "broker 1 | end"
    assert sum(line.count("x") for line in lines[2:-1]) == 70000


async def test_failed_start_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0

    async def fail(*_: object, **__: object) -> Process:
        nonlocal attempts
        attempts += 1
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(supervisor, "start_broker_process", fail)
    running = supervised("")
    task = asyncio.create_task(running.run())
    while attempts < 3:
        await asyncio.sleep(0.001)
    running.stopping.set()
    await task
    assert not running.has_stopped_cleanly


async def test_broker_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STOP_ONE_S", 0.05)
    monkeypatch.setattr(supervisor, "STOP_ALL_S", 0.2)
    monkeypatch.setattr(supervisor, "VIEW_TIMEOUT_S", 0.1)
    node = NodeSupervisor([broker(1), broker(2)], Path(IGNORE_SIGTERM), [])
    node.start()
    for each in node.brokers.values():
        await wait_for_output(each)
    assert not await node.stop()
    assert [each.exit_code for each in node.brokers.values()] == [-signal.SIGKILL] * 2


async def test_clean_stop_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "VIEW_TIMEOUT_S", 0.1)
    node = NodeSupervisor([broker(1), broker(2)], Path(SLEEP), [])
    node.start()
    for each in node.brokers.values():
        await wait_for_output(each)
    assert await node.stop()


def test_port_in_use_is_reported_before_any_broker_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(AddressInUse, match=f"127.0.0.1:{port} is in use"):
            NodeSupervisor([broker(1), broker(2, port)], Path(SLEEP), [])


def test_log_options_are_passed_to_the_brokers() -> None:
    logs = LogOptions("debug", "json")
    node = NodeSupervisor([broker(1)], Path("server.properties"), [], logs)
    try:
        (only,) = node.brokers.values()
        assert only.arguments[-2:] == ["--log-level=debug", "--log-format=json"]
    finally:
        node.release_ports()


def test_json_log_lines_have_the_broker() -> None:
    assert json.loads(json_log_line(3, '{"level":"INFO"}')) == {"broker": 3, "level": "INFO"}
    assert json.loads(json_log_line(3, 'error: "x"')) == {"broker": 3, "message": 'error: "x"'}


def test_free_ports_are_chosen_and_passed_to_the_brokers() -> None:
    node = NodeSupervisor([broker(1), broker(2)], Path("server.properties"), ["num.partitions=2"])
    try:
        first, second = node.brokers.values()
        assert first.server != second.server
        assert first.arguments[:2] == ["server.properties", "--override=num.partitions=2"]
        assert f"--override=listeners=PLAINTEXT://{first.server}" in first.arguments
        assert "--override=broker.id=1" in first.arguments
    finally:
        node.release_ports()
