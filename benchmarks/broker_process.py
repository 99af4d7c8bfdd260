"""A broker in a process of its own, in a directory that is gone afterwards; and what the process costs.

with BrokerProcess() as broker:
    broker.address      ("127.0.0.1", 40123)
    broker.cpu_s()      user and system time of all its threads so far
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID

import psutil

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster

BROKER = (sys.executable, "-m", "barnabas.cli.main")
ADDRESS = re.compile(r" at ([0-9.]+):(\d+),")
STOP_TIMEOUT_S = 60

# Background flushing to the disk belongs to the operating system: nobody asked for fsync, and the time it takes would
# be the disk's and not the broker's. Retention never fires within a run.
SETTINGS = {"log.retention.ms": "-1", "auto.create.topics.enable": "false"}


def with_bytecode() -> dict[str, str]:
    """The environment as a user has it: Python keeps what it compiled."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class BrokerProcess:
    """Starts with the context. `kill()` and `start()` again to see it recover; the directory goes at the end."""

    def __init__(
        self, settings: Mapping[str, str] | None = None, command: Sequence[str] = BROKER
    ) -> None:
        self.settings = SETTINGS | dict(settings or {})
        self.command = command
        self.directory = Path(tempfile.mkdtemp(prefix="barnabas-benchmark-"))
        self.process: subprocess.Popen[str] | None = None
        self.address = ("", 0)
        self.start_s = 0.0

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *topics: str) -> Self:
        """Returns when it serves; `start_s` is how long that took, `topics` are as `barnabas up --topic` takes them."""
        overrides = [f"--override={key}={value}" for key, value in self.settings.items()]
        wanted = [f"--topic={topic}" for topic in topics]
        began = time.perf_counter()
        with (self.directory / "stderr").open("a") as stderr:
            self.process = subprocess.Popen(
                [
                    *self.command,
                    *("up", "--port", "0", "--data", str(self.directory / "data")),
                    *overrides,
                    *wanted,
                ],
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=with_bytecode(),
                text=True,
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := ADDRESS.search(line):
                self.start_s = time.perf_counter() - began
                self.address = found[1], int(found[2])
                return self
        raise RuntimeError(
            f"the broker did not start:\n{(self.directory / 'stderr').read_text()[-2000:]}"
        )

    def cpu_s(self) -> float:
        """To the nanosecond on Linux, where every process has a CPU clock; to the tick elsewhere."""
        if platform.system() == "Linux":
            return time.clock_gettime(~self.pid << 3 | 2)
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def resident_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    def kill(self) -> None:
        """As a power cut would: no clean shutdown, no flush."""
        self.end(signal.SIGKILL)

    def stop(self) -> None:
        self.end(signal.SIGTERM)

    def end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def recycle_pages(self, size_bytes: int) -> None:
        """Let the kernel have touched as much page cache as a run will fill. Memory that was never used, or was given
        back to a hypervisor, costs more to write to, and which run gets it would be chance."""
        scratch = self.directory / "scratch"
        block = bytes(1 << 20)
        with scratch.open("wb") as file:
            for _ in range(size_bytes // len(block) + 1):
                file.write(block)
        scratch.unlink()

    def create_topic(self, name: str, partitions: int) -> UUID:
        with self.admin() as admin:
            (outcome,) = admin.create_topics(
                [NewTopic(name=name, partitions=partitions, replication_factor=1)]
            )
            if outcome.error:
                raise outcome.error
            return outcome.topic_id

    def delete_topic(self, name: str) -> None:
        with self.admin() as admin:
            (outcome,) = admin.delete_topics([name])
            if outcome.error:
                raise outcome.error

    @contextlib.contextmanager
    def admin(self) -> Iterator[Admin]:
        with Cluster(self.bootstrap_servers) as cluster:
            yield Admin(cluster)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.remove()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Nothing in the directory is wanted any more, so nobody waits for a clean shutdown.
        self.kill()
        self.remove()

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
