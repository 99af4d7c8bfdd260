"""A broker in a process of its own, to be killed, signalled, measured and started again on the same port and data."""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.child_process import ENVIRONMENT

START_SECONDS = 30.0
STOP_SECONDS = 30.0
COMMAND = [sys.executable, "-m", "barnabas.cli.main"]
# Who lists topics, measures, or compares with Kafka wants those of the test alone.
QUIET = {"barnabas.history.topic.enable": "false"}
PORTS = range(10_000, 20_000)
"""Neither of those the system gives to outgoing connections, nor of those a ZooKeeper here chooses from."""
BLOCK = 500
LEFT_PORTS: list[int] = []


def chosen_seed() -> int:
    """A new seed for every run, printed; BARNABAS_SEED repeats one."""
    seed = int(os.environ.get("BARNABAS_SEED") or random.randrange(1 << 32))
    print(f"BARNABAS_SEED={seed}")
    return seed


def eventually(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Wait for a condition; fails with `what` when the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def starved_seconds(task: Path) -> float:
    """For how long a thread was ready to run, and did not; nothing of one that has ended."""
    try:
        _, waited_ns, _ = (task / "schedstat").read_text().split()
    except (OSError, ValueError):
        return 0.0
    return int(waited_ns) / 1e9


def free_port() -> int:
    """A port nobody has now, for a broker that must come back to the same one.

    Not one of those the system gives to outgoing connections: while the broker is away, a client that tries to reach it
    could be given the very port, and even reach itself. Nor one that was given before, here or by another run at the
    same time: nobody may listen there yet, or just now.
    """
    while True:
        if not LEFT_PORTS:
            LEFT_PORTS.extend(own_ports())
        port = LEFT_PORTS.pop()
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def own_ports() -> list[int]:
    """In no order. No other run takes them as long as this process lives: it holds the first of them for UDP, which
    nobody else wants."""
    for first in random.sample(PORTS[::BLOCK], len(PORTS) // BLOCK):
        token = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            token.bind(("127.0.0.1", first))
        except OSError:
            token.close()
            continue
        token.detach()
        return random.sample(range(first, first + BLOCK), BLOCK)
    raise AssertionError(f"other runs have all ports from {PORTS.start} to {PORTS.stop}")


def run(*arguments: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
    """`barnabas <arguments>` to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=ENVIRONMENT,
        check=False,
        user=user,
    )


class BrokerProcess:
    """`barnabas up` on a data directory, on a port that is kept over restarts."""

    def __init__(
        self,
        data: Path,
        settings: Mapping[str, str] | None = None,
        *,
        descriptors: int | None = None,
    ) -> None:
        self.data = data
        self.descriptors_max = descriptors
        self.settings = {**QUIET, **(settings or {})}
        self.port = free_port()
        self.log_path = data.with_name(data.name + ".log")
        self.process: subprocess.Popen[str] | None = None
        self.command: list[str] = COMMAND

    def start(self) -> Self:
        overrides = [f"--override={key}={value}" for key, value in self.settings.items()]
        with self.log_path.open("a") as log:
            self.process = subprocess.Popen(
                [
                    *self.command,
                    "up",
                    "-v",
                    f"--port={self.port}",
                    f"--data={self.data}",
                    *overrides,
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=ENVIRONMENT,
                preexec_fn=self.limit_descriptors if self.descriptors_max else None,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "Barnabas is up" in line, f"the broker did not start: {line!r}\n{self.log()[-2000:]}"
        return self

    def limit_descriptors(self) -> None:
        assert self.descriptors_max is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors_max, self.descriptors_max))

    @property
    def running(self) -> subprocess.Popen[str]:
        assert self.process is not None
        return self.process

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_dir(self) -> Path:
        return self.data / "broker-1"

    def log(self) -> str:
        return self.log_path.read_text()

    def state(self) -> str:
        """For the message of a test that lost its broker: did it die, and what did it say last."""
        code = self.running.poll()
        alive = "is running" if code is None else f"ended with exit code {code}"
        return f"the broker {alive}; its last words:\n{self.log()[-2000:]}"

    # ---- measuring

    def rss_bytes(self) -> int:
        rss: int = psutil.Process(self.running.pid).memory_info().rss
        return rss

    def peak_rss_bytes(self) -> int:
        status = Path(f"/proc/{self.running.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.running.pid).cpu_times()
        spent: float = times.user + times.system
        return spent

    def clocks(self) -> tuple[float, float]:
        """The world's, and for how long the machine let the broker or who asks it wait for a core."""
        tasks = [*Path(f"/proc/{self.running.pid}/task").iterdir(), Path("/proc/thread-self")]
        return time.monotonic(), sum(map(starved_seconds, tasks))

    def held_up(self, since: tuple[float, float]) -> float:
        """Seconds by which the broker held up who has waited since then: at work, or waiting for a disk or another
        client. That the machine had no core for it is not its doing."""
        now, starved = self.clocks()
        return (now - since[0]) - (starved - since[1])

    def descriptors(self) -> int:
        count: int = psutil.Process(self.running.pid).num_fds()
        return count

    # ---- ending

    def kill(self) -> None:
        """kill -9: no goodbye, nothing flushed."""
        self.running.kill()
        self.reap()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; its exit code."""
        self.running.send_signal(number)
        return self.reap()

    def restart(self, number: int) -> None:
        self.stop(number)
        self.start()

    def reap(self) -> int:
        process = self.running
        code = process.wait(STOP_SECONDS)
        assert process.stdout is not None
        process.stdout.close()
        self.process = None
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process is not None:
            self.kill()
