"""`barnabas up` in a child process. It keeps its port and data across restarts."""

from __future__ import annotations

import re
import resource
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import psutil

from support.command import COMMAND
from support.ports import free_port
from support.process import ChildProcess

START_SECONDS = 30.0
# No history topic: tests that list topics, measure, or compare with Kafka expect only their own topics.
QUIET = {"barnabas.history.topic.enable": "false"}


class BrokerProcess:
    """A broker process. As a context manager it starts the broker, and kills it at the end."""

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
        self.process: ChildProcess | None = None
        self.command: list[str] = COMMAND

    def start(self) -> Self:
        """Start the broker. Returns when it is ready."""
        overrides = [f"--override={key}={value}" for key, value in self.settings.items()]
        options = [f"--port={self.port}", f"--data={self.data}", *overrides]
        self.launch([*self.command, "up", "-v", *options])
        line = self.running.read_line(START_SECONDS)
        assert "Barnabas is up" in line, f"no start: {line!r}: {self.running.describe()}"
        return self

    def launch(self, command: list[str]) -> None:
        self.process = ChildProcess(
            "the broker",
            command,
            log=self.log_path,
            is_piped=True,
            before_exec=self.limit_descriptors if self.descriptors_max else None,
        )

    def limit_descriptors(self) -> None:
        assert self.descriptors_max is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors_max, self.descriptors_max))

    @property
    def running(self) -> ChildProcess:
        assert self.process is not None
        return self.process

    @property
    def pid(self) -> int:
        return self.running.pid

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

    # ---- measurements

    def rss_bytes(self) -> int:
        rss: int = psutil.Process(self.pid).memory_info().rss
        return rss

    def peak_rss_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        spent: float = times.user + times.system
        return spent

    def clocks(self) -> tuple[float, float]:
        """Return the monotonic time, and the total time that the broker and the calling thread waited for a core."""
        tasks = [*Path(f"/proc/{self.pid}/task").iterdir(), Path("/proc/thread-self")]
        return time.monotonic(), sum(map(starved_seconds, tasks))

    def unstarved_seconds(self, since: tuple[float, float]) -> float:
        """Return the seconds since `clocks()`, without the time in which the broker or the caller waited for a core."""
        now, starved = self.clocks()
        return (now - since[0]) - (starved - since[1])

    def descriptors(self) -> int:
        count: int = psutil.Process(self.pid).num_fds()
        return count

    # ---- the end

    def kill(self) -> None:
        """SIGKILL: no clean shutdown, no flush."""
        self.running.kill()
        self.process = None

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Request a clean shutdown. Returns the exit code."""
        self.running.send_signal(number)
        return self.wait()

    def restart(self, number: int) -> None:
        self.stop(number)
        self.start()

    def wait(self) -> int:
        """Wait until the broker has ended. Returns the exit code."""
        code = self.running.wait()
        self.process = None
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.kill()


def starved_seconds(task: Path) -> float:
    """Return how long a thread was ready to run but had no CPU core; 0 if it has ended."""
    try:
        _, waited_ns, _ = (task / "schedstat").read_text().split()
    except (OSError, ValueError):
        return 0.0
    return int(waited_ns) / 1e9
