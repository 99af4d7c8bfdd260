"""A broker in a child process with a temporary directory, and measurements of the process.

with BenchmarkBroker() as broker:
    broker.address      ("127.0.0.1", 40123)
    broker.cpu_s()      user and system time of all its threads so far
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self
from uuid import UUID

import psutil

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.login import PLAINTEXT_CONNECTIONS, ConnectionSecurity
from support.command import COMMAND
from support.process import ChildProcess

ADDRESS = re.compile(r" at ([0-9.]+):(\d+),")
START_TIMEOUT_S = 120.0

# The broker does not fsync by default, so the disk has no part in the numbers. Retention is disabled.
SETTINGS = {"log.retention.ms": "-1", "auto.create.topics.enable": "false"}


def environment_with_bytecode() -> dict[str, str]:
    """Return the environment without PYTHONDONTWRITEBYTECODE: as for users, Python caches compiled modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def process_cpu_s(pid: int) -> float:
    """User and system time: in nanoseconds on Linux, where each process has a CPU clock, in ticks elsewhere."""
    if platform.system() == "Linux":
        return time.clock_gettime(~pid << 3 | 2)
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def recycle_pages(directory: Path, size_bytes: int) -> None:
    """Fill and free as much page cache as a run needs.

    The first write to memory that was never used, or was returned to a hypervisor, takes longer. Without this, some
    runs would pay for that and others not.
    """
    scratch = directory / "scratch"
    block = bytes(1 << 20)
    with scratch.open("wb") as file:
        for _ in range(size_bytes // len(block) + 1):
            file.write(block)
    scratch.unlink()


class MeasuredBroker(Protocol):
    """A running broker under a load."""

    address: tuple[str, int]
    security: ConnectionSecurity
    client_settings: dict[str, object]
    """Settings of librdkafka for connections to it, besides the address."""

    @property
    def bootstrap_servers(self) -> str: ...

    def cpu_s(self) -> float: ...

    def recycle_pages(self, size_bytes: int) -> None: ...

    def create_topic(self, name: str, partitions: int) -> UUID: ...

    def admin(self) -> contextlib.AbstractContextManager[Admin]: ...


class BenchmarkBroker:
    """A context manager. `kill()` and `start()` measure a recovery. The directory is removed at the end."""

    def __init__(
        self, settings: Mapping[str, str] | None = None, command: Sequence[str] = COMMAND
    ) -> None:
        self.settings = SETTINGS | dict(settings or {})
        self.command = command
        self.directory = Path(tempfile.mkdtemp(prefix="barnabas-benchmark-"))
        self.process: ChildProcess | None = None
        self.address = ("", 0)
        self.security = PLAINTEXT_CONNECTIONS
        self.client_settings: dict[str, object] = {}
        self.start_s = 0.0

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *topics: str) -> Self:
        """Start the broker and wait until it is ready. Sets `start_s`. `topics` are passed to `barnabas up --topic`."""
        overrides = [f"--override={key}={value}" for key, value in self.settings.items()]
        where = ("--port", "0", "--data", str(self.directory / "data"))
        began = time.perf_counter()
        self.process = ChildProcess(
            "the broker",
            [*self.command, "up", *where, *overrides, *(f"--topic={topic}" for topic in topics)],
            log=self.directory / "stderr",
            environment=environment_with_bytecode(),
            is_piped=True,
        )
        while (found := ADDRESS.search(self.process.read_line(START_TIMEOUT_S))) is None:
            pass
        self.start_s = time.perf_counter() - began
        self.address = found[1], int(found[2])
        return self

    def cpu_s(self) -> float:
        return process_cpu_s(self.pid)

    def resident_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    def kill(self) -> None:
        """SIGKILL: no clean shutdown, no flush."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.stop_or_kill()

    def recycle_pages(self, size_bytes: int) -> None:
        recycle_pages(self.directory, size_bytes)

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
        # The directory is removed, so a clean shutdown has no use.
        self.kill()
        self.remove()

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
