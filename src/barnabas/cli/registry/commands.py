"""barnabas registry: look into the znode tree, the way zkCli shows it.

It reads the files of the embedded registry directly, so it works beside a running broker, without one, and when a
broker cannot be reached; or it asks a ZooKeeper.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from barnabas.cli.registry.source import SeenChange, Source, source
from barnabas.cli.terminal.output import Output, note, say, show, to_json, write_out
from barnabas.errors import BadPath, BarnabasError, ConfigError, NoNode
from barnabas.printable import LINE_MAX, printable

if TYPE_CHECKING:
    from barnabas.world.ports import ZnodeStat

DEFAULT_DATA_DIRECTORY = (
    "./barnabas-data"  # where `barnabas up` keeps everything unless told otherwise
)
WRONG_USAGE, INTERRUPTED = 2, 130

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def registry() -> None:
    """Look into the znode tree: what the cluster knows of itself."""


def common(command: Command) -> Command:
    """The path and the options every command takes."""
    for decorate in (
        click.option(
            "-o",
            "--output",
            type=click.Choice([output.value for output in Output]),
            default=Output.TEXT.value,
            help="For people or for programs.",
        ),
        click.option(
            "--data",
            metavar="DIR",
            default=DEFAULT_DATA_DIRECTORY,
            show_default=True,
            help="The data directory of `barnabas up`.",
        ),
        click.option(
            "--zookeeper",
            metavar="HOST:PORT,…",
            help="Look into this ZooKeeper instead, as zookeeper.connect names it.",
        ),
        click.argument("path", default="/"),
    ):
        command = decorate(command)
    return command


@registry.command()
@common
@click.option("-s", "with_stat", is_flag=True, help="Also show the stat of the node.")
@click.option("-R", "recursive", is_flag=True, help="List everything beneath, too.")
def ls(
    path: str, data: str, zookeeper: str | None, output: str, with_stat: bool, recursive: bool
) -> None:
    """List the children of a node."""
    with reading(data, zookeeper) as found:
        _, stat = found.get(path)
        if recursive:
            paths = list(beneath(found, path))
            show(Output(output), paths, "\n".join)
            return
        children = found.children(path)
    document: dict[str, Any] = {"path": path, "children": children}
    if with_stat:
        document["stat"] = stat_document(stat)

    def text(shown: dict[str, Any]) -> str:
        line = f"[{', '.join(shown['children'])}]"
        return f"{line}\n{stat_text(stat)}" if with_stat else line

    show(Output(output), document, text)


@registry.command()
@common
@click.option("-s", "with_stat", is_flag=True, help="Also show the stat of the node.")
def get(path: str, data: str, zookeeper: str | None, output: str, with_stat: bool) -> None:
    """Show the data of a node."""
    with reading(data, zookeeper) as found:
        content_bytes, stat = found.get(path)
    content = content_bytes.decode("utf-8", "backslashreplace")
    document: dict[str, Any] = {"path": path, "data": content or None}
    if with_stat:
        document["stat"] = stat_document(stat)
    # Kafka's nodes without content hold null, and that is what zkCli shows for them.
    ending = f"\n{stat_text(stat)}" if with_stat else ""
    if Output(output) is Output.TEXT and not sys.stdout.isatty():
        # The data of a node goes to a pipe as it is, as records do.
        write_out(f"{content or 'null'}{ending}\n".encode())
        return
    show(Output(output), document, lambda shown: (shown["data"] or "null") + ending)


@registry.command()
@common
def stat(path: str, data: str, zookeeper: str | None, output: str) -> None:
    """Show when and by which transactions a node was made and changed."""
    with reading(data, zookeeper) as source:
        _, found = source.get(path)
    show(Output(output), stat_document(found), lambda _: stat_text(found))


@registry.command()
@common
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many changes.")
def watch(path: str, data: str, zookeeper: str | None, output: str, count: int | None) -> None:
    """Follow changes to a node and everything beneath it, until Ctrl-C."""
    try:
        with reading(data, zookeeper) as found:
            for number, change in enumerate(found.follow(path)):
                if change is None:
                    note(f"Watching {path}; Ctrl-C stops.")
                else:
                    say(change_line(change, Output(output)))
                if number == count:
                    return
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def beneath(found: Source, path: str) -> Iterator[str]:
    """The node and all its descendants, each before its children."""
    yield path
    for name in found.children(path):
        yield from beneath(found, f"{path.rstrip('/')}/{name}")


# ---- what things look like ----------------------------------------------------------------------------------


def stat_text(stat: ZnodeStat) -> str:
    return "\n".join(
        [
            f"cZxid = {stat.czxid:#x}",
            f"ctime = {date(stat.ctime_ms)}",
            f"mZxid = {stat.mzxid:#x}",
            f"mtime = {date(stat.mtime_ms)}",
            f"pZxid = {stat.pzxid:#x}",
            f"cversion = {stat.cversion}",
            f"dataVersion = {stat.version}",
            "aclVersion = 0",
            f"ephemeralOwner = {stat.ephemeral_owner:#x}",
            f"dataLength = {stat.data_length}",
            f"numChildren = {stat.num_children}",
        ]
    )


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
        "ephemeralOwner": f"{stat.ephemeral_owner:#x}",  # beyond what readers of JSON count exactly
        "dataLength": stat.data_length,
        "numChildren": stat.num_children,
    }


def date(time_ms: int) -> str:
    """Wed Nov 22 01:30:19 PST 2017"""
    return time.strftime("%a %b %d %H:%M:%S %Z %Y", time.localtime(time_ms / 1000))


def change_line(change: SeenChange, output: Output) -> str:
    moment = datetime.fromtimestamp(change.time_ms / 1000, UTC)
    written = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if output is Output.TEXT:
        return f"{written} {change.kind} {change.path}"
    document = {"time": written, "zxid": change.zxid, "kind": change.kind, "path": change.path}
    line = to_json(document, separators=(",", ":"))
    return f"--- {line}" if output is Output.YAML else line


# ---- what can go wrong ----------------------------------------------------------------------------------------


class Failure(click.ClickException):
    """One line on standard error, exit 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        note(f"error: {printable(self.message, LINE_MAX)}")


class WrongUsage(Failure):
    exit_code = WRONG_USAGE


@contextmanager
def reading(data: str, zookeeper: str | None) -> Iterator[Source]:
    named = click.get_current_context().get_parameter_source("data")
    if zookeeper is not None and named is ParameterSource.COMMANDLINE:
        raise WrongUsage("--data and --zookeeper name two registries; leave one out")
    try:
        with source(data, zookeeper) as found:
            yield found
    except BadPath as error:
        raise WrongUsage(str(error)) from error
    except NoNode as error:
        raise Failure(f"Node does not exist: {error.path}") from error
    except ConfigError as error:
        raise Failure(error.why) from error
    except BarnabasError as error:
        raise Failure(str(error)) from error
