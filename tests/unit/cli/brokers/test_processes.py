from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from barnabas.cli.brokers import processes as broker_processes
from barnabas.cli.brokers.broker_process import exit_text, failure_reason
from barnabas.cli.brokers.processes import (
    RESTARTS_MAX,
    RESTARTS_PERIOD_SECONDS,
    BrokerProcesses,
    RestartBackoff,
    stuck_text,
)
from barnabas.errors import ApiError, ErrorCode
from barnabas.world.watchdog import STUCK_EXIT_CODE


def test_failure_reason_is_last_error_without_prefix_and_hint() -> None:
    assert (
        failure_reason(["12:00 INFO starting", "error: no room", "hint:  make some"]) == "no room"
    )
    assert failure_reason(["12:00 INFO starting", "error: no room"]) == "no room"
    assert failure_reason(["error: of an earlier run", "12:00 INFO starting", "MemoryError"]) == (
        "MemoryError"
    )
    assert failure_reason([]) == "its log is empty"


def test_ending_names_signal_or_exit_code() -> None:
    assert exit_text(-9) == "was killed (SIGKILL)"
    assert exit_text(3) == "ended with exit code 3"


def test_restarts_back_off_and_are_limited() -> None:
    restarts = RestartBackoff()
    delays = [restarts.next_delay(100.0 + number) for number in range(RESTARTS_MAX)]
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert restarts.next_delay(200.0) is None
    assert restarts.next_delay(99.0 + RESTARTS_PERIOD_SECONDS) is None


def test_restarts_expire_after_a_period() -> None:
    restarts = RestartBackoff()
    for _ in range(RESTARTS_MAX):
        restarts.next_delay(100.0)
    assert restarts.next_delay(100.0 + RESTARTS_PERIOD_SECONDS) == 1.0


def test_stuck_message_tells_whether_broker_is_restarted() -> None:
    log = Path("broker-2.log")
    assert stuck_text(2, 4.0, log).endswith(
        "(exit code 75, stack in broker-2.log); restarting it in 4 s"
    )
    assert stuck_text(2, None, log).endswith(
        "not restarting it: it was restarted 5 times in 10 min"
    )


class AlwaysStuck(BrokerProcesses):
    """Broker processes that end at once with exit code 75."""

    async def start_broker(self, broker_id: int) -> None:
        code = f"raise SystemExit({STUCK_EXIT_CODE})"
        self.running[broker_id] = await asyncio.create_subprocess_exec(sys.executable, "-c", code)


async def test_broker_that_is_always_stuck_is_not_restarted_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(broker_processes, "FIRST_BACK_OFF_SECONDS", 0.001)
    cluster = AlwaysStuck(tmp_path, "127.0.0.1:1", brokers=1)
    await cluster.start_broker(1)
    await cluster.watch(1)
    lines = capsys.readouterr().err.splitlines()
    assert [" restarting it in " in line for line in lines] == [
        *[True] * RESTARTS_MAX,
        *[False] * 3,
    ]
    assert "not restarting it: it was restarted 5 times in 10 min" in lines[RESTARTS_MAX]
    assert "restarts it" in lines[-1]


def test_session_timeout_is_short_unless_overridden(tmp_path: Path) -> None:
    name = "zookeeper.session.timeout.ms"
    cluster = BrokerProcesses(tmp_path, "127.0.0.1:2181", brokers=1, port=0, settings={})
    assert cluster.properties(1, 9092)[name] == "6000"
    chosen = BrokerProcesses(tmp_path, "127.0.0.1:2181", brokers=1, port=0, settings={name: "9000"})
    assert chosen.properties(1, 9092)[name] == "9000"


class NeverReady(BrokerProcesses):
    """Broker processes that wait until they are stopped, and answer no request."""

    async def start_broker(self, broker_id: int) -> None:
        code = "import signal; signal.pause()"
        self.running[broker_id] = await asyncio.create_subprocess_exec(sys.executable, "-c", code)


async def test_brokers_that_form_no_cluster_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_processes, "READY_TIMEOUT_SECONDS", 0.01)
    cluster = NeverReady(tmp_path, "127.0.0.1:1", brokers=2)
    with pytest.raises(ApiError) as caught:
        await cluster.start()
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert caught.value.message == (
        f"the brokers formed no cluster within 0.01 s; see {tmp_path}/broker-*.log"
    )
    assert cluster.running == {}
