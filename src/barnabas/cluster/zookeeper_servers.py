"""A real ZooKeeper on this machine, of one or three nodes, from the jars of PySpark.

    <data>/node-<n>/zoo.cfg, zookeeper.log        rewritten at every start
    <data>/node-<n>/data/                         the znodes, kept over restarts
    <data>/.lock                                  held while a node runs

No node outlives the process that started it (java/process.py).
"""

from __future__ import annotations

import atexit
import os
import random
import socket
import ssl
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from barnabas.errors import AddressInUse, ConfigError, RegistryError
from barnabas.java.find import Java, find_java
from barnabas.java.process import QUICK_START, JavaProcess, find_fault, java_command
from barnabas.retry import Backoff
from barnabas.spark.installation import spark_home
from barnabas.world.directory_lock import acquire_lock, release_lock

HOST = "127.0.0.1"
START_S = 60.0
POLL_S = 0.02
ATTEMPTS = 3
RETRY_S = (0.05, 0.2)

# Outside the ephemeral port range, so that no other process gets the port of a node that is down.
PORTS = range(20_000, 32_000)

SETTINGS = """\
dataDir={data}
# Short ticks allow short sessions, exact session timeouts, and quick leader elections.
tickTime=200
maxSessionTimeout=60000
initLimit=50
syncLimit=25
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr
autopurge.purgeInterval=1
"""
PLAIN_PORT = """\
clientPortAddress={host}
clientPort={port}
"""
TLS_PORT = """\
secureClientPortAddress={host}
secureClientPort={port}
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider
ssl.keyStore.location={tls.key_store}
ssl.keyStore.type=PEM
ssl.trustStore.location={tls.trust_store}
ssl.trustStore.type=PEM
ssl.clientAuth={tls.client_auth}
ssl.enabledProtocols=TLSv1.2,TLSv1.3
"""
LOGINS = """\
authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
"""
OPTIONS = (*QUICK_START, "-Xmx256m")
JARS = (
    *("zookeeper-3", "zookeeper-jute-", "slf4j-api-", "metrics-core-", "snappy-java-"),
    *("log4j-api-", "log4j-core-", "log4j-slf4j2-impl-", "netty-", "commons-io-", "commons-cli-"),
)


class ServerTls(Struct, frozen=True):
    """TLS of the client port. Both files are in PEM format; the key store has the private key and the certificate."""

    key_store: Path
    trust_store: Path
    client_auth: str = "need"  # or want, or none

    def probe(self) -> ssl.SSLContext:
        """Return the settings with which this process asks whether a node runs: with the certificate of the node."""
        context = ssl.create_default_context(cafile=str(self.trust_store))
        context.check_hostname = False
        context.load_cert_chain(self.key_store)
        return context


class ZooKeeperServers:
    """One ZooKeeper node or an ensemble of three. Call `start()`, use `connect_string`, call `stop()`.

    Node ids start at 1. The nodes listen on `port` and the ports after it; with 0 they get free ports. With `tls`, they
    accept only TLS. `users` are user names and passwords for SASL logins, which stay optional. Connections between the
    nodes are not secured.
    """

    def __init__(
        self,
        data: Path,
        nodes: int = 1,
        port: int = 0,
        *,
        tls: ServerTls | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        if nodes not in (1, 3):
            raise ConfigError("nodes", f"must be 1 or 3, not {nodes}")
        self.tls = tls
        self.users = users or {}
        self.data = data.absolute()
        self.first_port = port
        self.nodes = range(1, nodes + 1)
        self.ports: list[int] = []
        self.peers: list[str] = []  # lines of zoo.cfg
        self.running: dict[int, JavaProcess] = {}
        self.java: Java | None = None
        self.lock: int | None = None

    @property
    def connect_string(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    def start(self) -> None:
        """Start all nodes. Returns when all answer requests. Raises ConfigError, AddressInUse or RegistryError."""
        backoff = Backoff(*RETRY_S, random=random.Random())
        for attempt in range(ATTEMPTS):
            try:
                self.launch()
                self.wait()
                return
            except AddressInUse:
                # Another process took a port that was free a moment ago.
                if self.first_port or attempt == ATTEMPTS - 1:
                    raise
                time.sleep(backoff.next_s())

    def launch(self) -> None:
        """Start all nodes without waiting for them."""
        self.java = find_java("ZooKeeper")
        count = len(self.nodes)
        free = free_ports(3 * count)
        self.ports, peer_ports = free[:count], free[count:]
        if self.first_port:
            self.ports = list(range(self.first_port, self.first_port + count))
        for port in self.ports:
            if not is_free(port):
                raise AddressInUse(
                    f"port {port} is taken: stop the process that uses it, or choose another port"
                )
        self.peers = [
            f"server.{node}={HOST}:{peer_ports[2 * node - 2]}:{peer_ports[2 * node - 1]}"
            for node in self.nodes
        ]
        for node in self.nodes:
            self.launch_node(node)

    def wait(self) -> None:
        """Wait until every launched node answers requests. On failure all nodes are killed."""
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
        """SIGKILL; the data stays. Idempotent."""
        process = self.running.pop(node, None)
        if process is None:
            return
        process.kill()
        if not self.running:
            atexit.unregister(self.stop)
            if self.lock is not None:
                release_lock(self.lock)
                self.lock = None

    def collect_ended(self) -> dict[int, int]:
        """Return the exit codes of the nodes that ended by themselves since the last call.

        The code is negative after a signal: Java's exit code 143 for SIGTERM becomes -15.
        """
        codes = {
            node: code
            for node, process in self.running.items()
            if (code := process.exit_code) is not None
        }
        for node in codes:
            self.kill(node)
        return {node: code if code <= 128 else 128 - code for node, code in codes.items()}

    def restart(self, node: int) -> None:
        """Start a node again, on its port and its data. Returns when it answers requests."""
        self.kill(node)
        self.launch_node(node)
        self.wait_for(node)

    def pause(self, node: int) -> None:
        """SIGSTOP: the node halts with open connections until `resume`."""
        self.running[node].pause()

    def resume(self, node: int) -> None:
        self.running[node].resume()

    # ---- one node

    def launch_node(self, node: int) -> None:
        assert self.java is not None
        if self.lock is None:
            self.data.mkdir(parents=True, exist_ok=True)
            self.lock = acquire_lock(str(self.data), "this ZooKeeper's data")
        directory = self.data / f"node-{node}"
        (directory / "data").mkdir(parents=True, exist_ok=True)
        settings = SETTINGS.format(data=directory / "data")
        port_lines = PLAIN_PORT if self.tls is None else TLS_PORT
        settings += port_lines.format(host=HOST, port=self.ports[node - 1], tls=self.tls)
        options = list(OPTIONS)
        if self.users:
            settings += LOGINS
            options.append(f"-Djava.security.auth.login.config={self.write_jaas_file(directory)}")
        main_class = "org.apache.zookeeper.server.ZooKeeperServerMain"
        if len(self.nodes) > 1:
            (directory / "data" / "myid").write_text(str(node))
            settings += "\n".join(self.peers) + "\n"
            main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        (directory / "zoo.cfg").write_text(settings)
        command = java_command(
            self.java,
            class_path(),
            main_class,
            str(directory / "zoo.cfg"),
            directory=directory,
            options=options,
        )
        if not self.running:
            atexit.register(self.stop)
        self.running[node] = JavaProcess(
            f"ZooKeeper node {node}", command, directory=directory, log=self.log_path(node)
        )

    def write_jaas_file(self, directory: Path) -> Path:
        """Write the users to a file that only this user can read."""
        path = directory / "jaas.conf"
        path.touch(mode=0o600)
        users = "\n".join(f'    user_{name}="{password}"' for name, password in self.users.items())
        path.write_text(
            f"Server {{\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n{users};\n}};\n"
        )
        return path

    def wait_for(self, node: int) -> None:
        deadline = time.monotonic() + START_S
        while not self.serves(node):
            if self.running[node].exit_code is not None or time.monotonic() > deadline:
                raise self.failure(node)
            time.sleep(POLL_S)

    def serves(self, node: int) -> bool:
        """Whether the node answers requests. In an ensemble of three, it does so only while it knows a leader."""
        try:
            with self.connect(node) as connection:
                connection.sendall(b"srvr")
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return False
        return b"Mode: " in answer and self.running[node].exit_code is None

    def connect(self, node: int) -> socket.socket:
        connection = socket.create_connection((HOST, self.ports[node - 1]), timeout=1)
        if self.tls is None:
            return connection
        try:
            return self.tls.probe().wrap_socket(connection)
        except BaseException:
            connection.close()
            raise

    def log_path(self, node: int) -> Path:
        return self.data / f"node-{node}" / "zookeeper.log"

    def failure(self, node: int) -> Exception:
        process = self.running[node]
        log = process.log()
        if "BindException" in log:
            return AddressInUse(
                f"a port of node {node} is taken: {self.ports[node - 1]} or a peer port"
            )
        why = find_fault(log) or "its log reports no error"
        return RegistryError("", f"{process.name} did not start: {why} (log: {process.log_path})")


def class_path() -> str:
    """Return the class path of the ZooKeeper server, from the jars of PySpark. Raises ConfigError."""
    try:
        found = sorted((spark_home() / "jars").glob("*.jar"))
    except ConfigError as error:
        raise ConfigError("pyspark", f"contains the jars of ZooKeeper, but {error.why}") from None
    jars = [str(path) for path in found if path.name.startswith(JARS)]
    if not any("zookeeper-3" in jar for jar in jars):
        raise ConfigError("pyspark", f"the jars of {spark_home()} contain no ZooKeeper")
    return os.pathsep.join(jars)


def free_ports(count: int) -> list[int]:
    """Return ports that are free now. ZooKeeper needs its ports before it starts."""
    found: list[int] = []
    for port in random.sample(PORTS, 100 * count):
        if is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise AddressInUse(f"fewer than {count} free ports between {PORTS.start} and {PORTS.stop}")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # ZooKeeper binds with the same option: connections in TIME_WAIT do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
