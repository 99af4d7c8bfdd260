"""`barnabas registry`: shows the znode tree in the format of zkCli."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from barnabas.cli.options import output_option, watch_option
from barnabas.cli.registry.acls import secure, unsecure
from barnabas.cli.registry.failures import RegistryUsageError, reported_errors
from barnabas.cli.registry.source import (
    DEFAULT_DATA_DIRECTORY,
    RegistrySource,
    ZnodeChange,
    open_source,
)
from barnabas.cli.registry.zookeeper_config import zookeeper_config_option
from barnabas.cli.terminal.exit_codes import INTERRUPTED
from barnabas.cli.terminal.output import (
    OutputFormat,
    print_lines,
    print_note,
    show_or_watch,
    to_json,
    write_out,
)

if TYPE_CHECKING:
    from barnabas.world.ports import ZnodeStat

Command = TypeVar("Command", bound=Callable[..., Any])


def registry_options(command: Command) -> Command:
    """Add the path and the options that every registry command takes."""
    for decorate in (
        output_option,
        click.option(
            "--data",
            metavar="DIR",
            default=DEFAULT_DATA_DIRECTORY,
            show_default=True,
            help="Data directory of `barnabas up`.",
        ),
        zookeeper_config_option,
        click.option(
            "--zookeeper",
            metavar="HOST:PORT,…",
            help="Read from this ZooKeeper instead of --data; the format is that of zookeeper.connect.",
        ),
        click.argument("path", default="/"),
    ):
        command = decorate(command)
    return command


stat_option = click.option("-s", "with_stat", is_flag=True, help="Also show the stat of the node.")


@click.group()
def registry() -> None:
    """Inspect the registry: the znodes with the cluster metadata."""


registry.add_command(secure)
registry.add_command(unsecure)


@registry.command()
@registry_options
@stat_option
@watch_option
def get(
    path: str,
    data: str,
    zookeeper: str | None,
    zookeeper_config: str | None,
    output: OutputFormat,
    with_stat: bool,
    watch: bool,
) -> None:
    """Show the data of a node."""
    is_raw = output is OutputFormat.TEXT and not sys.stdout.isatty() and not watch
    ending = ""

    def load() -> dict[str, Any]:
        nonlocal ending
        with open_registry(data, zookeeper, zookeeper_config) as source:
            content_bytes, stat = source.get(path)
        content = content_bytes.decode("utf-8", "backslashreplace")
        # Like zkCli, show null for a node without data.
        ending = f"\n{stat_text(stat)}" if with_stat else ""
        return {
            "path": path,
            "data": content or None,
            **({"stat": stat_document(stat)} if with_stat else {}),
        }

    if is_raw:
        # A pipe gets the raw data, as with records.
        write_out(f"{load()['data'] or 'null'}{ending}\n".encode())
        return
    show_or_watch(watch, output, load, lambda shown: (shown["data"] or "null") + ending)


@registry.command()
@registry_options
@stat_option
@click.option("-R", "recursive", is_flag=True, help="Also list all descendants.")
@watch_option
def ls(
    path: str,
    data: str,
    zookeeper: str | None,
    zookeeper_config: str | None,
    output: OutputFormat,
    with_stat: bool,
    recursive: bool,
    watch: bool,
) -> None:
    """List the children of a node."""
    ending = ""

    def load_all() -> list[str]:
        with open_registry(data, zookeeper, zookeeper_config) as source:
            source.get(path)
            return list(walk_paths(source, path))

    def load() -> dict[str, Any]:
        nonlocal ending
        with open_registry(data, zookeeper, zookeeper_config) as source:
            _, stat = source.get(path)
            children = source.children(path)
        ending = f"\n{stat_text(stat)}" if with_stat else ""
        found: dict[str, Any] = {"path": path, "children": children}
        return {**found, "stat": stat_document(stat)} if with_stat else found

    if recursive:
        show_or_watch(watch, output, load_all, "\n".join)
        return
    show_or_watch(watch, output, load, lambda shown: f"[{', '.join(shown['children'])}]{ending}")


@registry.command("stat")
@registry_options
@watch_option
def show_stat(
    path: str,
    data: str,
    zookeeper: str | None,
    zookeeper_config: str | None,
    output: OutputFormat,
    watch: bool,
) -> None:
    """Show the stat of a node: transactions, times, versions and sizes."""
    text = ""

    def load() -> dict[str, Any]:
        nonlocal text
        with open_registry(data, zookeeper, zookeeper_config) as source:
            _, stat = source.get(path)
        text = stat_text(stat)
        return dict(stat_document(stat))

    show_or_watch(watch, output, load, lambda _: text)


@registry.command()
@registry_options
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N changes.")
def watch(
    path: str,
    data: str,
    zookeeper: str | None,
    zookeeper_config: str | None,
    output: OutputFormat,
    count: int | None,
) -> None:
    """Watch a node and its descendants for changes, until Ctrl-C."""
    try:
        with open_registry(data, zookeeper, zookeeper_config) as source:
            for number, change in enumerate(source.follow(path)):
                if change is None:
                    print_note(f"Watching {path}; Ctrl-C stops.")
                else:
                    print_lines(change_line(change, output))
                if number == count:
                    return
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


# ---- access


@contextmanager
def open_registry(
    data: str, zookeeper: str | None, zookeeper_config: str | None
) -> Iterator[RegistrySource]:
    """Open the registry in the data directory or in a ZooKeeper. Errors become one line on standard error."""
    origin = click.get_current_context().get_parameter_source("data")
    if zookeeper is not None and origin is ParameterSource.COMMANDLINE:
        raise RegistryUsageError("--data cannot be combined with --zookeeper")
    with reported_errors(), open_source(data, zookeeper, zookeeper_config) as source:
        yield source


def walk_paths(source: RegistrySource, path: str) -> Iterator[str]:
    """Yield the path and the paths of all its descendants, parents first."""
    yield path
    for name in source.children(path):
        yield from walk_paths(source, f"{path.rstrip('/')}/{name}")


# ---- output


def stat_document(stat: ZnodeStat) -> dict[str, int | str]:
    return {
        "cZxid": stat.czxid,
        "ctime": stat.ctime_ms,
        "mZxid": stat.mzxid,
        "mtime": stat.mtime_ms,
        "pZxid": stat.pzxid,
        "cversion": stat.cversion,
        "dataVersion": stat.version,
        "aclVersion": 0,
        "ephemeralOwner": f"{stat.ephemeral_owner:#x}",  # many JSON readers cannot represent 64 bits
        "dataLength": stat.data_length,
        "numChildren": stat.num_children,
    }


def stat_text(stat: ZnodeStat) -> str:
    shown = stat_document(stat)
    shown |= {name: f"{shown[name]:#x}" for name in ("cZxid", "mZxid", "pZxid")}
    shown |= {"ctime": format_time(stat.ctime_ms), "mtime": format_time(stat.mtime_ms)}
    return "\n".join(f"{name} = {value}" for name, value in shown.items())


def format_time(time_ms: int) -> str:
    """Return the local time in the format of zkCli: `Wed Nov 22 01:30:19 PST 2017`."""
    return time.strftime("%a %b %d %H:%M:%S %Z %Y", time.localtime(time_ms / 1000))


def change_line(change: ZnodeChange, output: OutputFormat) -> str:
    moment = datetime.fromtimestamp(change.time_ms / 1000, UTC)
    time_text = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if output is OutputFormat.TEXT:
        return f"{time_text} {change.kind} {change.path}"
    document = {"time": time_text, "zxid": change.zxid, "kind": change.kind, "path": change.path}
    line = to_json(document, separators=(",", ":"))
    return f"--- {line}" if output is OutputFormat.YAML else line
