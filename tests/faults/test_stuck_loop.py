"""Brokers with a stuck event loop. Their processes exit and are restarted; a LocalCluster keeps running."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from barnabas import LocalCluster
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.cluster.in_process import ClusterBroker
from barnabas.world.watchdog import STUCK_EXIT_CODE, TICK_SECONDS, LoopWatchdog
from support.cluster import ClusterProcesses
from support.command import COMMAND
from support.process import ENVIRONMENT, STOP_SECONDS
from support.waiting import eventually
from tests.processes import command_line

TOPIC = "letters"
SESSION_S = 5.0
SLACK_S = 10.0
"""For a busy machine."""
SETTINGS = {
    "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
    "barnabas.history.topic.enable": "false",
}
STALLS = Path(__file__).parent / "stalls"
PYTHONPATH = f"{STALLS}:{ENVIRONMENT['PYTHONPATH']}"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The file that ends a stall caused by SIGUSR2."""
    return tmp_path / "release"


@pytest.fixture
def cluster(tmp_path: Path, chroot: str, release: Path) -> Iterator[ClusterProcesses]:
    running = ClusterProcesses(tmp_path, chroot, brokers=3, settings=SETTINGS)
    for broker in running.brokers.values():
        prefix = ["env", f"PYTHONPATH={PYTHONPATH}", f"STALL_UNTIL={release}"]
        broker.command = [*prefix, *broker.command]
    with running:
        with Cluster(running.bootstrap_servers) as client:
            wanted = NewTopic(name=TOPIC, partitions=1, replication_factor=3)
            (outcome,) = Admin(client).create_topics([wanted])
            assert outcome.error is None, outcome.error
        eventually(lambda: all(leader_at(running, each) > 0 for each in running.brokers), "known")
        yield running


def leader_at(cluster: ClusterProcesses, broker: int) -> int:
    view = cluster.brokers[broker].view()
    known = view is not None and TOPIC in view.topics
    return view.topics[TOPIC].partitions[0].leader if view is not None and known else -1


def is_led_by_another(cluster: ClusterProcesses, victim: int) -> bool:
    others = [each for each in cluster.brokers if each != victim]
    return all(leader_at(cluster, each) not in (-1, victim) for each in others)


def test_stuck_broker_logs_stack_exits_and_leaders_move(
    cluster: ClusterProcesses,
) -> None:
    victim = leader_at(cluster, 1)
    broker = cluster.brokers[victim]
    began = time.monotonic()
    broker.signal(signal.SIGUSR1)
    assert broker.wait() == STUCK_EXIT_CODE
    assert SESSION_S < time.monotonic() - began < SESSION_S + SLACK_S
    log = broker.log()
    assert log.count("event loop stalled broker=") == 1
    assert f"event loop stuck broker={victim} seconds=" in log
    assert len(re.findall(r"^ +File .* in guilty_function$", log, re.MULTILINE)) == 2
    eventually(lambda: is_led_by_another(cluster, victim), "another broker leads")

    broker.start()
    cluster.wait_until_ready()
    assert broker.stop() == 0


def test_stalled_process_continues_after_sigcont(cluster: ClusterProcesses, release: Path) -> None:
    victim = leader_at(cluster, 1)
    broker = cluster.brokers[victim]
    broker.signal(signal.SIGUSR2)
    eventually(lambda: "event loop stalled" in broker.log(), "stalled")
    broker.pause()
    eventually(lambda: is_led_by_another(cluster, victim), "its session has expired")
    broker.resume()
    # By time, not by CPU time: on a busy machine, a broker may reach its limit before it gets so much of the CPU.
    ticked_at = time.monotonic() + 1.4 * TICK_SECONDS
    eventually(lambda: time.monotonic() > ticked_at, "stalled for another tick")
    release.touch()
    eventually(lambda: "event loop recovered" in broker.log(), "turns again")
    cluster.wait_until_ready()
    assert broker.stop() == 0
    assert "event loop stuck" not in broker.log()
    assert f"event loop stalls broker={victim} count=" in broker.log()


@contextmanager
def up(tmp_path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    overrides = [f"--override={key}={value}" for key, value in SETTINGS.items()]
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(
            [*COMMAND, "up", "--port=0", f"--data={tmp_path / 'data'}", *overrides, *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=ENVIRONMENT | {"PYTHONPATH": PYTHONPATH, "STALL_UNTIL": str(tmp_path / "release")},
        )
    with process:
        try:
            assert process.stdout is not None
            assert "Barnabas is up" in process.stdout.readline(), (tmp_path / "errors").read_text()
            yield process
        finally:
            process.kill()


def child(process: subprocess.Popen[str], broker_id: int) -> psutil.Process | None:
    for found in psutil.Process(process.pid).children():
        if "".join(command_line(found)[-1:]).endswith(f"broker-{broker_id}.properties"):
            return found
    return None


def test_up_restarts_broker_process_that_was_stuck(tmp_path: Path, chroot: str) -> None:
    with up(tmp_path, "--brokers=2", f"--zookeeper={chroot}") as process:
        stuck = child(process, 2)
        assert stuck is not None
        stuck.send_signal(signal.SIGUSR1)
        log = tmp_path / "data" / "broker-2.log"
        eventually(lambda: log.read_text().count("broker started") == 2, "started again", 60)
        again = child(process, 2)
        assert again is not None
        assert again.pid != stuck.pid
        errors = (tmp_path / "errors").read_text()
        assert errors == (
            f"broker 2 was stuck and exited (exit code 75, stack in {log}); restarting it in 1 s\n"
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0
        assert not again.is_running()


def test_up_can_be_stopped_while_restart_waits(tmp_path: Path, chroot: str) -> None:
    with up(tmp_path, "--brokers=2", f"--zookeeper={chroot}") as process:
        stuck = child(process, 2)
        assert stuck is not None
        stuck.send_signal(signal.SIGUSR1)
        errors = tmp_path / "errors"
        eventually(lambda: "restarting it in 1 s" in errors.read_text(), "restart announced", 60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0
        assert not any("broker" in command_line(each) for each in own_processes(tmp_path))


def own_processes(tmp_path: Path) -> list[psutil.Process]:
    return [
        each
        for each in psutil.process_iter(["cmdline"])
        if any(str(tmp_path) in word for word in each.info["cmdline"] or ())
    ]


def test_up_with_single_process_exits_when_stuck(tmp_path: Path) -> None:
    with up(tmp_path, "--brokers=2") as process:
        process.send_signal(signal.SIGUSR1)
        assert process.wait(SESSION_S + 3 * SLACK_S) == STUCK_EXIT_CODE
        errors = (tmp_path / "errors").read_text()
        assert "event loop stuck broker=" in errors
        assert "in guilty_function" in errors


def test_setting_keeps_stuck_process_alive(tmp_path: Path) -> None:
    with up(tmp_path, "--override=barnabas.watchdog.exit.enable=false") as process:
        os.kill(process.pid, signal.SIGUSR2)
        errors = tmp_path / "errors"
        eventually(lambda: "event loop stalled broker=1" in errors.read_text(), "stalled")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(SESSION_S + 1)
        (tmp_path / "release").touch()
        eventually(lambda: "event loop recovered broker=1" in errors.read_text(), "turns again")
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0
        assert "event loop stalls broker=1 count=1 longest_s=" in errors.read_text()


# ---- a cluster in this process


@pytest.fixture
def local() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, settings={"zookeeper.session.timeout.ms": 2000}) as running:
        yield running


def watchdog_of(broker: ClusterBroker) -> LoopWatchdog:
    assert broker.instance is not None
    return broker.instance.watchdog


def run_on_loop(broker: ClusterBroker, work: Callable[[], object]) -> None:
    assert broker.instance is not None
    broker.instance.thread.loop.call_soon_threadsafe(work)


def test_stuck_broker_of_local_cluster_is_logged_and_counted(
    local: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, other = local.brokers.values()
    watchdog = watchdog_of(stuck)
    run_on_loop(stuck, lambda: time.sleep(4))
    eventually(lambda: "event loop recovered broker=1" in caplog.text, "turns again")
    assert "time.sleep(4)" in caplog.text
    assert watchdog.longest_stall_s > 2.0
    assert (watchdog.stalls, watchdog_of(other).stalls) == (1, 0)
    with caplog.at_level(logging.INFO):
        stuck.stop()
    assert "event loop stalls broker=1 count=1 longest_s=" in caplog.text


def test_paused_broker_of_local_cluster_is_not_stalled(
    local: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    paused = local.brokers[1]
    watchdog = watchdog_of(paused)
    paused.pause()
    began = time.monotonic()
    eventually(lambda: watchdog.meter.last_tick > began + 3.0, "paused longer than its session")
    paused.resume()
    resumed = time.monotonic()
    eventually(lambda: watchdog.meter.last_tick > resumed + 1.0, "watched again")
    assert watchdog.stalls == 0
    assert "event loop" not in caplog.text
