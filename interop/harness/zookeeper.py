"""A real ZooKeeper with one node, from PySpark's jars."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas.cluster.zookeeper_servers import class_path as zookeeper_class_path
from barnabas.java.find import Java
from barnabas.java.process import QUICK_START, JavaProcess
from interop.harness import jvm
from support.ports import free_port
from support.process import StartFailed, wait_for

SETTINGS = """dataDir={data}
clientPortAddress=127.0.0.1
clientPort={port}
tickTime=500
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr
"""
ATTEMPTS = 3
OPTIONS = (*QUICK_START, "-Xmx128m")


class ZooKeeper:
    """Runs from `start` to `stop`. Several Kafka clusters share it, each below its own znode."""

    def __init__(
        self,
        directory: Path,
        java: Java,
        *,
        port: int | None = None,
        options: Sequence[str] = OPTIONS,
    ) -> None:
        self.directory = directory
        self.java = java
        self.options = options
        self.wanted_port = port
        self.port = 0
        self.process: JavaProcess | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        """ZooKeeper cannot bind port 0, so a port that was just free is tried, and then another."""
        for attempt in range(ATTEMPTS):
            self.port = self.wanted_port or free_port()
            try:
                self.start_once()
            except StartFailed as error:
                if self.wanted_port or attempt == ATTEMPTS - 1 or "BindException" not in str(error):
                    raise
            else:
                break
        return self

    def start_once(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        log = self.directory / "zookeeper.log"
        settings = self.directory / "zoo.cfg"
        settings.write_text(SETTINGS.format(data=self.directory / "data", port=self.port))
        command = jvm.command(
            self.java,
            zookeeper_class_path(),
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(settings),
            scratch=self.directory,
            options=self.options,
        )
        self.process = JavaProcess("ZooKeeper", command, directory=self.directory, log=log)
        try:
            wait_for(self.process, self.is_ok)
        except BaseException:
            self.stop()
            raise

    def is_ok(self) -> bool | None:
        """Checks its own process only: if the port is taken, another server could answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok" or None
        except OSError:
            return None

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
