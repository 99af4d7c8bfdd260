"""`barnabas node`: all brokers of this machine, as processes under one supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import click

from barnabas.cli.brokers.data_directory import broker_ids_in, format_broker_ids
from barnabas.cli.brokers.supervisor import NodeSupervisor
from barnabas.cli.options import parse_overrides, read_properties
from barnabas.cli.terminal.log import LogOptions, log_options, report_warning, start_logging
from barnabas.cli.terminal.output import print_lines, up_line
from barnabas.cli.terminal.shutdown import ShutdownSignals
from barnabas.client.view import ClusterView
from barnabas.cluster.jaas_sections import with_jaas_sections
from barnabas.cluster.node_settings import NodeBroker, derive_node_brokers
from barnabas.cluster.peer_client import peer_client_security
from barnabas.config.load import load_broker_config
from barnabas.config.properties import parse_properties
from barnabas.errors import ConfigError
from barnabas.printable import printable

logger = logging.getLogger("barnabas.node")

META_PROPERTIES = "meta.properties"
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
NOT_CLEAN = 1


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--brokers",
    type=click.IntRange(min=1),
    help="Number of brokers; default: the number of cores that this process may use.",
)
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Setting that overrides CONFIG, for all brokers; repeatable.",
)
@log_options
def node(
    config: Path,
    brokers: int | None,
    overrides: tuple[str, ...],
    log_level: str,
    log_format: str,
) -> None:
    """Run the brokers of this machine, one process each. CONFIG is a server.properties file.

    A broker uses one core. A node uses all cores: it runs several brokers of one cluster and restarts a broker that
    crashes. CONFIG must set zookeeper.connect.

    \b
    CONFIG has the settings of all brokers. These are derived for each broker:
      broker.id             counts up from the id in CONFIG
      listeners             ports count up from those in CONFIG; 0: the system chooses
      advertised.listeners  likewise
      log.dirs              sub-directory broker-<id> of each directory
      broker.rack           as in CONFIG, or the host name: replicas of a partition
                            are then on different machines

    \b
    Exit codes:
      0         all brokers stopped cleanly after SIGINT or SIGTERM
      1         a broker failed, or did not stop cleanly
      2         wrong usage or a wrong setting
      130, 143  a second signal killed the brokers
    """
    logs = LogOptions(log_level, log_format)
    start_logging(logs)
    properties = {**read_properties(config), **parse_overrides(overrides)}
    count = usable_cores() if brokers is None else brokers
    derived, warnings = derive_node_brokers(properties, count, machine=socket.gethostname())
    for warning in [*warnings, *check_directories(derived)]:
        report_warning(warning, logs)
    security = peer_client_security(with_jaas_sections(load_broker_config(properties)[0]))
    supervisor = NodeSupervisor(derived, config, overrides, logs, security)
    code = asyncio.run(run_node(supervisor, derived))
    if code:
        raise click.exceptions.Exit(code)


async def run_node(supervisor: NodeSupervisor, brokers: Sequence[NodeBroker]) -> int:
    """Run the node until a signal, or until all brokers have ended on request. Returns the exit code."""
    shutdown = ShutdownSignals(on_second=supervisor.kill)
    supervisor.start()
    ended = asyncio.ensure_future(supervisor.wait_until_all_ended())
    announcement = asyncio.ensure_future(announce(supervisor, brokers))
    requested = asyncio.ensure_future(shutdown.requested.wait())
    try:
        await asyncio.wait([ended, requested], return_when=asyncio.FIRST_COMPLETED)
    finally:
        announcement.cancel()
        requested.cancel()
        is_clean = await supervisor.stop()
    logger.info("node stopped clean=%s", str(is_clean).lower())
    if shutdown.is_urgent:
        return shutdown.exit_code
    return 0 if is_clean else NOT_CLEAN


async def announce(supervisor: NodeSupervisor, brokers: Sequence[NodeBroker]) -> None:
    """Print one line when the brokers are ready."""
    view = await supervisor.wait_until_ready()
    if without_rack := ids_without_rack(view):
        logger.warning(
            "topics cannot be created until all brokers have a rack: set broker.rack ids=%s",
            ",".join(map(str, without_rack)),
        )
    ids = format_broker_ids([each.id for each in brokers])
    title = f"Barnabas node is up: {ids} (rack {printable(brokers[0].rack)})"
    data = printable(",".join(dict.fromkeys(parents(brokers[0]))))
    print_lines(*up_line(title, supervisor.servers, data).split("\n"))


def parents(broker: NodeBroker) -> list[str]:
    return [str(Path(each).absolute().parent) for each in broker.log_dirs]


def ids_without_rack(view: ClusterView) -> list[int]:
    """Return the brokers without a rack: the controller assigns no replicas while others have one."""
    return sorted(each.id for each in view.brokers.values() if each.rack is None)


def check_directories(brokers: Sequence[NodeBroker]) -> list[str]:
    """Return warnings about data of brokers that are not part of the node.

    Raises ConfigError if a directory itself has the logs of a broker: `barnabas broker` used it, and its records would
    be missing.
    """
    warnings = []
    ids = [each.id for each in brokers]
    for directory in parents(brokers[0]):
        meta = Path(directory, META_PROPERTIES)
        if meta.is_file():
            owner = parse_properties(meta.read_text(encoding="iso-8859-1"), str(meta))
            place = f"{directory}/broker-{owner.get('broker.id', ids[0])}"
            why = f"{directory} has the logs of a single broker: stop it and move them to {place}"
            raise ConfigError("log.dirs", f"{why}, or choose another directory")
        absent = sorted(set(broker_ids_in(Path(directory))) - set(ids))
        if absent:
            why = (
                f"{directory} has data of {format_broker_ids(absent)}, which this node does not run"
            )
            more = (
                f": --brokers {absent[-1] - ids[0] + 1} runs them" if absent[-1] > ids[-1] else ""
            )
            warnings.append(why + more)
    return warnings


def usable_cores() -> int:
    """Return the number of cores that this process may use: its affinity, limited by the quota of its container."""
    try:
        quota = CPU_QUOTA.read_text()
    except OSError:
        quota = "max"
    return limit_cores(len(os.sched_getaffinity(0)), quota)


def limit_cores(cores: int, quota: str) -> int:
    """Apply the `cpu.max` of a control group: `max 100000`, or microseconds of CPU time per period. At least 1.

    >>> limit_cores(8, "max 100000"), limit_cores(8, "250000 100000"), limit_cores(8, "50000 100000")
    (8, 2, 1)
    """
    match quota.split():
        case [limit, period] if limit.isdigit() and period.isdigit() and int(period):
            return max(1, min(cores, int(limit) // int(period)))
        case _:
            return cores
