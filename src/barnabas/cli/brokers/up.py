"""`barnabas up`: a cluster on this machine, until Ctrl-C, SIGTERM or the end of its command.

With the embedded registry, all brokers run in this process. With a ZooKeeper ensemble, each broker is a process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeAlias

import click

from barnabas.cli.brokers import interpreter
from barnabas.cli.brokers.data_directory import absent_brokers_warning, check_registry
from barnabas.cli.brokers.secure import (
    client_config,
    secure_data,
    security_lines,
    write_client_files,
)
from barnabas.cli.brokers.user_command import (
    ReadyNotice,
    check_command,
    run_with_variables,
    server_variables,
)
from barnabas.cli.options import SERVERS_VARIABLE, parse_overrides
from barnabas.cli.registry.source import DEFAULT_DATA_DIRECTORY
from barnabas.cli.terminal.log import log_to_stderr
from barnabas.cli.terminal.output import plural, print_lines, print_note, up_line
from barnabas.cli.terminal.shutdown import ShutdownSignals
from barnabas.cluster.in_process import InProcessCluster
from barnabas.cluster.settings import LOOPBACK_HTTP, TEST_SETTINGS
from barnabas.errors import ConfigError, ErrorCode, StorageError
from barnabas.printable import printable
from barnabas.security.client_settings import PLAINTEXT
from barnabas.security.client_sources import CONFIG_VARIABLE
from barnabas.tasks import in_thread
from barnabas.world.directory_lock import hold_lock
from barnabas.world.network import raise_descriptor_limit

if TYPE_CHECKING:
    from barnabas.cli.brokers.processes import BrokerProcesses
    from barnabas.client.admin import NewTopic

RunnableCluster: TypeAlias = "InThisProcess | BrokerProcesses"
DEFAULT_PORT = 9092
BOOTSTRAP_ADDRESSES = 3  # in the commands of the banner
FAILURE_POLL_SECONDS = 0.5
OPTION_LENGTH_MAX = 50  # a longer option starts a new line of the banner


@click.command()
@click.option(
    "--brokers", default=1, show_default=True, type=click.IntRange(min=1), help="Number of brokers."
)
@click.option(
    "--data",
    show_default=DEFAULT_DATA_DIRECTORY,
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of all state; a later `up` with the same directory resumes from it.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    show_default=f"{DEFAULT_PORT}, or 0 with --ephemeral",
    help="Port of the first broker; the others count up from it. 0: the system chooses free ports.",
)
@click.option(
    "--ephemeral", is_flag=True, help="Use a temporary directory and remove it at the end."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:PARTITIONS[:REPLICAS]]",
    help="Create this topic if it does not exist; repeatable.",
)
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Setting for all brokers; repeatable.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[/CHROOT]",
    help="Use this ZooKeeper; each broker then runs in its own process.",
)
@click.option(
    "--with-zookeeper",
    is_flag=True,
    help="Also start a ZooKeeper server; each broker then runs in its own process.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="TLS, logins with SCRAM and ACLs; creates certificates and a user at the first start.",
)
@click.option(
    "--write-env",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"Write {SERVERS_VARIABLE} and BOOTSTRAP_SERVERS to FILE while the cluster is up.",
)
@click.option(
    "--ready-fd",
    metavar="N",
    type=click.IntRange(min=0),
    help="Write the bootstrap servers to file descriptor N when the cluster is up, and close it.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show the brokers' log.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND ...]")
def up(
    brokers: int,
    data: Path | None,
    port: int | None,
    ephemeral: bool,
    topics: tuple[str, ...],
    overrides: tuple[str, ...],
    zookeeper: str | None,
    with_zookeeper: bool,
    secure: bool,
    write_env: Path | None,
    ready_fd: int | None,
    verbose: bool,
    command: tuple[str, ...],
) -> None:
    """Start a cluster on this machine and run it until Ctrl-C.

    With COMMAND, run the command against the cluster instead: stop the cluster when the command ends, and exit with its
    code. BARNABAS_BOOTSTRAP_SERVERS and BOOTSTRAP_SERVERS in its environment have the address of the cluster.
    """
    log_to_stderr(logging.INFO if verbose else logging.WARNING)
    interpreter.log_version()
    raise_descriptor_limit()
    interpreter.tune_interpreter()
    if zookeeper and with_zookeeper:
        raise ConfigError(
            "--with-zookeeper", "cannot be combined with --zookeeper, which names an existing one"
        )
    if ephemeral and data is not None:
        raise ConfigError("--ephemeral", "cannot be combined with --data, which keeps the data")
    if port is None:
        port = 0 if ephemeral else DEFAULT_PORT
    if port and port + brokers - 1 > 65535:
        raise ConfigError(
            "--port", f"{brokers} brokers need {brokers} ports from {port} on; the highest is 65535"
        )
    new_topics = list({topic.name: topic for topic in map(parse_topic_option, topics)}.values())
    settings = {**LOOPBACK_HTTP, **parse_overrides(overrides)}
    notice = ReadyNotice(write_env, ready_fd)
    check_command(command)
    notice.check()
    with temporary_directory() if ephemeral else nullcontext(data) as directory:
        directory = (directory or Path(DEFAULT_DATA_DIRECTORY)).absolute()
        check_registry(directory, with_zookeeper=bool(zookeeper or with_zookeeper))
        security = secure_data(directory, is_secure=secure)
        cluster: RunnableCluster
        if ephemeral:
            settings = {**TEST_SETTINGS, **settings}
        if zookeeper or with_zookeeper:
            from barnabas.cli.brokers.processes import BrokerProcesses

            cluster = BrokerProcesses(
                directory,
                zookeeper,
                brokers=brokers,
                port=port,
                settings=settings,
                security=security,
            )
        else:
            in_process = InProcessCluster(
                directory,
                brokers=brokers,
                port=port,
                settings=settings,
                ends_process=not ephemeral,  # the directory would stay
                security=security,
            )
            cluster = InThisProcess(in_process)
        # The directory is locked before any file in it is used: another process may use it.
        with hold_lock(directory, "this data directory"):
            code = asyncio.run(
                run_cluster(cluster, new_topics, notice, command, is_kept=not ephemeral)
            )
    raise click.exceptions.Exit(code)


@contextmanager
def temporary_directory() -> Iterator[Path]:
    with TemporaryDirectory(prefix="barnabas-", ignore_cleanup_errors=True) as path:
        yield Path(path)


class InThisProcess:
    """A cluster whose brokers are threads of this process."""

    def __init__(self, cluster: InProcessCluster) -> None:
        self.cluster = cluster
        self.security = cluster.security
        self.data = cluster.data
        self.warnings = cluster.warnings
        self.ids: Collection[int] = cluster.brokers.keys()
        self.zookeeper: str | None = None
        self.registry_option = f"--data {cluster.data}"

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    @property
    def http_addresses(self) -> list[str]:
        addresses = (broker.http_address for broker in self.cluster.brokers.values())
        return [address for address in addresses if address is not None]

    @property
    def failure(self) -> StorageError | None:
        """The error of a broker if all brokers have failed: the cluster cannot serve any client."""
        failures = [broker.failure for broker in self.cluster.brokers.values()]
        return failures[0] if all(failures) else None

    async def start(self) -> None:
        try:
            await in_thread(self.cluster.start)
        except asyncio.CancelledError:
            await self.stop()
            raise

    async def stop(self) -> None:
        await asyncio.to_thread(self.cluster.stop)

    kill = None  # a second signal has no effect: it could only lose data that is being written


async def run_cluster(
    cluster: RunnableCluster,
    topics: Sequence[NewTopic],
    notice: ReadyNotice,
    command: Sequence[str],
    *,
    is_kept: bool,
) -> int:
    """Run the cluster until a signal or the end of the command. Returns the exit code."""
    for warning in cluster.warnings:
        print_note(f"warning: {warning}")
    shutdown = ShutdownSignals(on_second=cluster.kill)
    await shutdown.run_until_requested(cluster.start())
    code = 0
    failure: StorageError | None = None
    try:
        servers = cluster.bootstrap_servers
        variables = server_variables(servers)
        if cluster.security is not None:
            await in_thread(write_client_files, cluster.security, servers)
            variables |= {CONFIG_VARIABLE: str(client_config(cluster.security))}
        if topics:
            await asyncio.to_thread(create_missing_topics, cluster, topics)
        absent = await asyncio.to_thread(
            absent_brokers_warning, cluster.data, cluster.ids, cluster.zookeeper
        )
        if absent:
            print_note(f"warning: {absent}")
        with notice.published(servers, variables):
            if command and shutdown.requested.is_set():
                code = shutdown.exit_code
            elif command:
                code = await run_with_variables(command, variables)
            else:
                topic = topics[0].name if topics else "greetings"
                print_lines(*cluster_banner(cluster, topic, is_kept=is_kept).split("\n"))
                failure = await wait_for_end(shutdown, cluster)
                print_note("stopping ...")
    finally:
        await cluster.stop()
    if failure is not None:
        raise failure
    return shutdown.exit_code if shutdown.is_urgent else code


async def wait_for_end(shutdown: ShutdownSignals, cluster: RunnableCluster) -> StorageError | None:
    """Wait for a signal, or until all brokers have failed. In the second case, return the error of one of them."""
    requested = asyncio.ensure_future(shutdown.requested.wait())
    while cluster.failure is None and not requested.done():
        await asyncio.wait([requested], timeout=FAILURE_POLL_SECONDS)
    requested.cancel()
    return cluster.failure


def create_missing_topics(cluster: RunnableCluster, topics: Sequence[NewTopic]) -> None:
    from barnabas.cli.topics.lookup import explain_rejected_name
    from barnabas.client.admin import Admin
    from barnabas.client.cluster import Cluster as Client

    security = PLAINTEXT if cluster.security is None else cluster.security.client_security()
    with Client(cluster.bootstrap_servers, security=security) as client:
        for outcome in Admin(client).create_topics(topics):
            if outcome.error and outcome.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise explain_rejected_name(outcome.error, outcome.name)


def cluster_banner(cluster: RunnableCluster, topic: str, *, is_kept: bool = True) -> str:
    topic = printable(topic)
    addresses = cluster.bootstrap_servers.split(",")
    servers = ",".join(addresses[:BOOTSTRAP_ADDRESSES])
    title = f"Barnabas is up: {plural(len(addresses), 'broker')}"
    if cluster.security is None:
        body = plain_lines(cluster, servers, topic)
    else:
        body = "\n".join(map(printable, security_lines(cluster.security, servers, topic))) + "\n"
    return f"""\
{up_line(title, cluster.bootstrap_servers, printable(str(cluster.data)))}
{body}{metrics_lines(cluster.http_addresses)}
Ctrl-C stops it; the data {"stays" if is_kept else "is removed"}."""


def plain_lines(cluster: RunnableCluster, servers: str, topic: str) -> str:
    """Return the lines to paste for each client of a cluster without security."""
    return f"""
  kcat      echo hello | kcat -P -b {servers} -t {topic}
            kcat -C -b {servers} -t {topic} -e

  Python    from confluent_kafka import Producer
            servers = "{servers}"
            producer = Producer({{"bootstrap.servers": servers}})
            producer.produce("{topic}", b"hello"); producer.flush()

  PySpark   from barnabas import spark as barnabas_spark
            servers = "{servers}"
            topics = barnabas_spark.session().read.format("barnabas")
            topics = topics.option("kafka.bootstrap.servers", servers)
            topics.option("subscribe", "{topic}").load().show()

  Barnabas  barnabas topics list -b {servers}
            barnabas brokers list -b {servers}
            barnabas registry ls /brokers/topics {break_if_long(printable(cluster.registry_option))}
"""


def metrics_lines(addresses: Sequence[str]) -> str:
    """Return the lines of the banner with the addresses of metrics, one per broker; empty without any.

    >>> metrics_lines(["127.0.0.1:41233", "127.0.0.1:41234"])
    '\\n  Metrics   http://127.0.0.1:41233/metrics\\n            http://127.0.0.1:41234/metrics\\n'
    """
    if not addresses:
        return ""
    heads = ["  Metrics   ", *[" " * 12] * (len(addresses) - 1)]
    lines = (f"{head}http://{each}/metrics\n" for head, each in zip(heads, addresses, strict=True))
    return "\n" + "".join(lines)


def break_if_long(option: str) -> str:
    """Return the option, after an escaped line break if it is long."""
    return option if len(option) <= OPTION_LENGTH_MAX else f"\\\n              {option}"


def parse_topic_option(text: str) -> NewTopic:
    """Parse `orders:6:1`; partitions and replicas are optional and then -1, the broker's default."""
    from barnabas.client.admin import NewTopic

    name, *numbers = text.split(":")
    try:
        counts = [int(number) for number in numbers]
        if len(counts) > 2 or any(count < 1 for count in counts):
            raise ValueError
    except ValueError:
        raise ConfigError(
            "--topic", f"'{text}' is not NAME[:PARTITIONS[:REPLICAS]], as in orders:6:1"
        ) from None
    partitions, replicas = [*counts, *[-1, -1]][:2]
    return NewTopic(name=name, partitions=partitions, replication_factor=replicas)
