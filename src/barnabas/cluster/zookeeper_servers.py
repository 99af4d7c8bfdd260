"""A real ZooKeeper on this machine, of one node or three, from the jars that PySpark brings.

    <data>/node-<n>/zoo.cfg, zookeeper.log        written anew at every start
    <data>/node-<n>/data/                         the znodes: they stay
    <data>/.lock                                  held while a node runs

No node outlives whoever started it. Each runs under a small shell that reads a pipe from us: if we end, in whatever
way, the pipe ends, and the shell kills its node.
"""

from __future__ import annotations

import atexit
import os
import random
import re
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from barnabas.errors import AddressInUse, ConfigError, RegistryError
from barnabas.retry import Backoff
from barnabas.spark.java import Java, find_java
from barnabas.spark.launcher import spark_home
from barnabas.world.directory_lock import acquire_lock, release_lock

HOST = "127.0.0.1"
START_S = 60.0
POLL_S = 0.02
ATTEMPTS = 3
RETRY_S = (0.05, 0.2)

# Outside of what systems give to outgoing connections: while a node is away, nobody else gets its port.
PORTS = range(20_000, 32_000)

SETTINGS = """\
dataDir={data}
clientPortAddress={host}
clientPort={port}
# Short, so that a session may be, that it ends when its time is over, and a new leader is soon found.
tickTime=200
maxSessionTimeout=60000
initLimit=50
syncLimit=25
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr
autopurge.purgeInterval=1
"""
LOGGING = """\
status = off
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n%throwable
"""
OPTIONS = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m"),
    *("-Xlog:disable", "-Djava.awt.headless=true"),
)
JARS = (
    *("zookeeper-3", "zookeeper-jute-", "slf4j-api-", "metrics-core-", "snappy-java-"),
    *("log4j-api-", "log4j-core-", "log4j-slf4j2-impl-", "netty-", "commons-io-", "commons-cli-"),
)
# Standard input is the pipe from us: it ends when we do.
UNDER_A_SHELL = """\
exec 3<&0
"$@" 3<&- </dev/null &
node=$!
(read -r _ <&3; kill -9 $node) 2>/dev/null &
reader=$!
wait $node
ended=$?
kill -9 $reader  # or it would stay, and later kill whoever has that number then
exit $ended
"""
FAULTS = (re.compile(r"^.* ERROR .*$", re.MULTILINE), re.compile(r"^.*Exception.*$", re.MULTILINE))


class ZooKeeperServers:
    """`start()`, use `connect_string`, `stop()`. Nodes count from 1. Port 0 looks for free ones; otherwise nodes take
    this port and those that follow."""

    def __init__(self, data: Path, nodes: int = 1, port: int = 0) -> None:
        if nodes not in (1, 3):
            raise ConfigError(
                "nodes", f"{nodes} is not possible: a ZooKeeper has 1 node here, or 3"
            )
        self.data = data.absolute()
        self.wanted_port = port
        self.nodes = range(1, nodes + 1)
        self.ports: list[int] = []
        self.peers: list[str] = []
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.java: Java | None = None
        self.lock: int | None = None

    @property
    def connect_string(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    def start(self) -> None:
        """Returns when every node serves. ConfigError without Java or PySpark, AddressInUse, RegistryError."""
        backoff = Backoff(*RETRY_S, random=random.Random())
        for attempt in range(ATTEMPTS):
            try:
                self.launch()
                self.wait()
                return
            except AddressInUse:
                # What was free a moment ago need not be now.
                if self.wanted_port or attempt == ATTEMPTS - 1:
                    raise
                time.sleep(backoff.next_s())

    def launch(self) -> None:
        """Start all nodes, and wait for none."""
        self.java = runnable_java()
        count = len(self.nodes)
        free = free_ports(3 * count)
        self.ports, between = free[:count], free[count:]
        if self.wanted_port:
            self.ports = list(range(self.wanted_port, self.wanted_port + count))
        for port in self.ports:
            if not is_free(port):
                raise AddressInUse(
                    f"port {port} is taken: stop what listens there, or choose another"
                )
        self.peers = [
            f"server.{node}={HOST}:{between[2 * node - 2]}:{between[2 * node - 1]}"
            for node in self.nodes
        ]
        for node in self.nodes:
            self.launch_node(node)

    def wait(self) -> None:
        """Until every node that was launched serves; on failure none is left."""
        try:
            for node in self.running:
                self.wait_for(node)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for node in list(self.running):
            self.kill(node)

    def kill(self, node: int) -> None:
        """At once, as `kill -9` would; its data stays."""
        shell = self.running.pop(node, None)
        if shell is None:
            return
        # A shell that came to its end has seen its node end; the number of its group may be another's by now.
        if shell.poll() is None or shell.returncode < 0:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        assert shell.stdin is not None
        shell.stdin.close()
        if not self.running:
            atexit.unregister(self.stop)
            self.unlock()

    def ended(self) -> dict[int, int]:
        """Nodes that ended by themselves since this was last asked, with their exit codes, as of a subprocess."""
        codes = {
            node: code for node, shell in self.running.items() if (code := shell.poll()) is not None
        }
        for node in codes:
            self.kill(node)
        return {node: code if code <= 128 else 128 - code for node, code in codes.items()}

    def restart(self, node: int) -> None:
        """Start a node again on its port and its data; returns when it serves."""
        self.kill(node)
        self.launch_node(node)
        self.wait_for(node)

    def pause(self, node: int) -> None:
        """The node stands still, its connections open, until `resume`."""
        os.killpg(self.running[node].pid, signal.SIGSTOP)

    def resume(self, node: int) -> None:
        os.killpg(self.running[node].pid, signal.SIGCONT)

    def unlock(self) -> None:
        if self.lock is not None:
            release_lock(self.lock)
            self.lock = None

    # ---- one node

    def launch_node(self, node: int) -> None:
        assert self.java is not None
        if self.lock is None:
            self.data.mkdir(parents=True, exist_ok=True)
            self.lock = acquire_lock(str(self.data), "this ZooKeeper's data")
        directory = self.data / f"node-{node}"
        (directory / "data").mkdir(parents=True, exist_ok=True)
        settings = SETTINGS.format(data=directory / "data", host=HOST, port=self.ports[node - 1])
        main_class = "org.apache.zookeeper.server.ZooKeeperServerMain"
        if len(self.nodes) > 1:
            (directory / "data" / "myid").write_text(str(node))
            settings += "\n".join(self.peers) + "\n"
            main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        (directory / "zoo.cfg").write_text(settings)
        (directory / "log4j2.properties").write_text(LOGGING)
        command = [
            str(self.java.binary),
            *OPTIONS,
            f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}",
            *("-cp", class_path(), main_class, str(directory / "zoo.cfg")),
        ]
        if not self.running:
            atexit.register(self.stop)
        with self.log_path(node).open("wb") as log:
            self.running[node] = subprocess.Popen(
                ["/bin/sh", "-c", UNDER_A_SHELL, "sh", *command],
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_for(self, node: int) -> None:
        deadline = time.monotonic() + START_S
        while not self.serves(node):
            if self.running[node].poll() is not None or time.monotonic() > deadline:
                raise self.failure(node)
            time.sleep(POLL_S)

    def serves(self, node: int) -> bool:
        """A node of three serves only when it has found the others and a leader."""
        try:
            with socket.create_connection((HOST, self.ports[node - 1]), timeout=1) as connection:
                connection.sendall(b"srvr")
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return False
        return b"Mode: " in answer and self.running[node].poll() is None

    def log_path(self, node: int) -> Path:
        return self.data / f"node-{node}" / "zookeeper.log"

    def failure(self, node: int) -> Exception:
        path = self.log_path(node)
        log = path.read_text(errors="replace")
        if "BindException" in log:
            return AddressInUse(
                f"a port of node {node} is taken: {self.ports[node - 1]} or one between the nodes"
            )
        why = next(
            (found[0] for each in FAULTS if (found := each.search(log))), "it does not say why"
        )
        return RegistryError(
            "", f"ZooKeeper node {node} did not start: {why} (all of it in {path})"
        )


def runnable_java() -> Java:
    try:
        return find_java()
    except ConfigError as error:
        raise ConfigError("java", error.why.replace("Spark needs", "ZooKeeper needs")) from None


def class_path() -> str:
    """PySpark brings a whole ZooKeeper, server and all."""
    try:
        found = sorted((spark_home() / "jars").glob("*.jar"))
    except ConfigError as error:
        raise ConfigError(
            "pyspark", f"brings the ZooKeeper that would be started, and {error.why}"
        ) from None
    jars = [str(path) for path in found if path.name.startswith(JARS)]
    if not any("zookeeper-3" in jar for jar in jars):
        raise ConfigError("pyspark", f"there is no ZooKeeper among the jars of {spark_home()}")
    return os.pathsep.join(jars)


def free_ports(count: int) -> list[int]:
    """Free now, that is: ZooKeeper takes no port from the system."""
    found: list[int] = []
    for port in random.sample(PORTS, 100 * count):
        if is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise AddressInUse(f"hardly a port between {PORTS.start} and {PORTS.stop} is free")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As ZooKeeper binds: a port whose last connections are just ending may be taken again.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
