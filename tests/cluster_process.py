"""Brokers in processes of their own around a ZooKeeper, to be killed, signalled and started again one by one.

zookeeper = ZooKeeperServers(tmp_path / "zookeeper"); zookeeper.start()
with ClusterProcesses(tmp_path, zookeeper.connect_string, brokers=3) as cluster:
    cluster.brokers[2].kill()
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas.client.cluster import Cluster
from barnabas.client.view import ClusterView
from barnabas.errors import ApiError
from tests.broker_process import COMMAND, START_SECONDS, STOP_SECONDS, eventually, free_port
from tests.child_process import ENVIRONMENT, halt

ROOT = Path(__file__).parents[1]


class MemberProcess:
    """`barnabas broker` with a file of its own, on a port and a directory that it keeps."""

    def __init__(
        self, data: Path, zookeeper: str, broker_id: int, settings: Mapping[str, str]
    ) -> None:
        self.id = broker_id
        self.port = free_port()
        self.log_dir = data / f"broker-{broker_id}"
        self.log_path = data / f"broker-{broker_id}.log"
        self.config_path = data / f"broker-{broker_id}.properties"
        self.process: subprocess.Popen[bytes] | None = None
        self.command = [*COMMAND, "broker"]
        """Takes the file with the settings."""
        self.settings = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "log.dirs": str(self.log_dir),
            "zookeeper.connect": zookeeper,
        }
        data.mkdir(parents=True, exist_ok=True)
        self.configure(settings)

    def configure(self, settings: Mapping[str, str]) -> None:
        """Add settings to its file, for its next start."""
        self.settings.update(settings)
        self.log_dir = Path(self.settings["log.dirs"].split(",")[0])
        lines = (f"{key}={value}\n" for key, value in self.settings.items())
        self.config_path.write_text("".join(lines))

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def launch(self) -> None:
        assert not self.is_running
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, str(self.config_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=ENVIRONMENT,
            )

    def start(self) -> None:
        """Returns when it answers."""
        self.launch()
        eventually(lambda: self.view() is not None, f"broker {self.id} answers", START_SECONDS)

    def view(self) -> ClusterView | None:
        """The cluster as this broker describes it; None if it does not answer."""
        assert self.is_running, f"broker {self.id} ended; its last words:\n{self.log()[-2000:]}"
        try:
            with Cluster(self.bootstrap_servers, timeout_s=5.0) as client:
                return client.refresh(None)
        except ApiError:
            return None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def kill(self) -> None:
        """kill -9: no goodbye, nothing flushed."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """Ask it to stop; its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def pause(self) -> None:
        assert self.process is not None
        halt(self.process.pid)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(STOP_SECONDS)


class ClusterProcesses:
    """`start()` returns when every broker's metadata shows all brokers and a controller."""

    def __init__(
        self,
        data: Path,
        zookeeper: str,
        *,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.brokers = {
            number: MemberProcess(data, zookeeper, number, settings or {})
            for number in range(1, brokers + 1)
        }

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def controller_id(self) -> int:
        """As the brokers that run say; -1 if they know of none."""
        for broker in self.brokers.values():
            if broker.is_running and (view := broker.view()) is not None:
                return view.controller
        return -1

    def start(self) -> Self:
        for broker in self.brokers.values():
            broker.launch()
        self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        eventually(self.all_see_all, "all brokers see each other", START_SECONDS)

    def all_see_all(self) -> bool:
        running = {number for number, broker in self.brokers.items() if broker.is_running}
        views = [self.brokers[number].view() for number in sorted(running)]
        return all(
            view is not None and running <= view.brokers.keys() and view.controller in view.brokers
            for view in views
        )

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.end()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        for broker in self.brokers.values():
            if broker.is_running:
                broker.kill()
