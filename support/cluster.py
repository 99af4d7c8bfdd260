"""`barnabas broker` in child processes, with a ZooKeeper. Each broker can be killed and restarted.

zookeeper = ZooKeeperServers(tmp_path / "zookeeper"); zookeeper.start()
with ClusterProcesses(tmp_path, zookeeper.connect_string, brokers=3) as cluster:
    cluster.brokers[2].kill()
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from barnabas.client.cluster import Cluster
from barnabas.client.view import ClusterView
from barnabas.errors import ApiError
from support.command import COMMAND
from support.ports import free_port
from support.process import ChildProcess
from support.waiting import eventually

ROOT = Path(__file__).parents[1]
START_SECONDS = 30.0


class MemberProcess:
    """One broker with a properties file. It keeps its port and data across restarts."""

    def __init__(
        self, data: Path, zookeeper: str, broker_id: int, settings: Mapping[str, str]
    ) -> None:
        self.id = broker_id
        self.port = free_port()
        self.log_dir = data / f"broker-{broker_id}"
        self.log_path = data / f"broker-{broker_id}.log"
        self.config_path = data / f"broker-{broker_id}.properties"
        self.process: ChildProcess | None = None
        self.command = [*COMMAND, "broker"]
        """The properties file follows as the last argument."""
        self.settings = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "log.dirs": str(self.log_dir),
            "zookeeper.connect": zookeeper,
        }
        data.mkdir(parents=True, exist_ok=True)
        self.configure(settings)

    def configure(self, settings: Mapping[str, str]) -> None:
        """Add settings to the properties file, for the next start."""
        self.settings.update(settings)
        self.log_dir = Path(self.settings["log.dirs"].split(",")[0])
        lines = (f"{key}={value}\n" for key, value in self.settings.items())
        self.config_path.write_text("".join(lines))

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_running

    @property
    def running(self) -> ChildProcess:
        assert self.process is not None
        return self.process

    def launch(self) -> None:
        """Start the broker without waiting for it."""
        assert not self.is_running
        self.process = ChildProcess(
            f"broker {self.id}",
            [*self.command, str(self.config_path)],
            log=self.log_path,
            directory=ROOT,
        )

    def start(self) -> None:
        """Start the broker. Returns when it answers."""
        self.launch()
        eventually(lambda: self.view() is not None, f"broker {self.id} answers", START_SECONDS)

    def view(self) -> ClusterView | None:
        """Return the metadata of this broker; None if it does not answer. AssertionError if it has exited."""
        assert self.is_running, self.running.describe()
        try:
            with Cluster(self.bootstrap_servers, timeout_s=5.0) as client:
                return client.refresh(None)
        except ApiError:
            return None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL: no clean shutdown, no flush."""
        self.running.kill()

    def stop(self) -> int:
        """Request a clean shutdown. Returns the exit code."""
        return self.running.stop()

    def pause(self) -> None:
        self.running.pause()

    def resume(self) -> None:
        self.running.resume()

    def signal(self, number: int) -> None:
        self.running.send_signal(number)

    def wait(self) -> int:
        return self.running.wait()


class ClusterProcesses:
    """A cluster of processes. `start()` returns when every broker's metadata shows all brokers and a controller."""

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
        """The controller in the metadata of a running broker; -1 if there is none."""
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
        eventually(self.is_ready, "every broker's metadata shows all brokers", START_SECONDS)

    def is_ready(self) -> bool:
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

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        for broker in self.brokers.values():
            if broker.is_running:
                broker.kill()
