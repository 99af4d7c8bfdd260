"""`barnabas zookeeper`: a real ZooKeeper on this machine, until Ctrl-C or SIGTERM."""

from __future__ import annotations

from pathlib import Path

import click

from barnabas.cli.terminal.output import plural, print_lines, print_note, up_line
from barnabas.cli.terminal.signals import SignalRecorder
from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from barnabas.errors import AddressInUse, RegistryError
from barnabas.printable import printable

DEFAULT_DATA_DIRECTORY = "./barnabas-zookeeper"
DEFAULT_PORT = 2181
CHECK_INTERVAL_S = 0.5


@click.command()
@click.option(
    "--nodes",
    default="1",
    type=click.Choice(["1", "3"]),
    show_default=True,
    help="Number of ZooKeeper nodes (three tolerate one failure).",
)
@click.option(
    "--data",
    default=DEFAULT_DATA_DIRECTORY,
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Data directory of the ZooKeeper nodes.",
)
@click.option(
    "--port",
    default=DEFAULT_PORT,
    type=click.IntRange(0, 65533),
    show_default=True,
    help="Port of the first node; the others count up from it. 0: the system chooses free ports.",
)
def zookeeper(nodes: str, data: Path, port: int) -> None:
    """Start a ZooKeeper on this machine, from the jars in PySpark, and run it until Ctrl-C."""
    servers = ZooKeeperServers(data, int(nodes), port)
    signals = SignalRecorder()
    try:
        servers.start()
    except AddressInUse as error:
        raise AddressInUse(f"{error} with --port") from None
    try:
        print_lines(*zookeeper_banner(servers).split("\n"))
        while not signals.wait(CHECK_INTERVAL_S):
            check_nodes(servers)
        print_note("stopping ...")
    finally:
        servers.stop()


def check_nodes(servers: ZooKeeperServers) -> None:
    """Report each node that has ended, once. Raises RegistryError when none is left."""
    for node in servers.collect_ended():
        print_note(f"ZooKeeper node {node} has ended; see {servers.log_path(node)}")
    if not servers.running:
        raise RegistryError("", "all ZooKeeper nodes have ended")


def zookeeper_banner(servers: ZooKeeperServers) -> str:
    connect = servers.connect_string
    return f"""\
{up_line(f"ZooKeeper is up: {plural(len(servers.nodes), 'node')}", connect, printable(str(servers.data)))}

  Brokers   barnabas up --brokers 3 --zookeeper {connect}
            barnabas broker server.properties \\
              --override zookeeper.connect={connect}

  Registry  barnabas registry ls / --zookeeper {connect}

Ctrl-C stops it; the data stays."""
