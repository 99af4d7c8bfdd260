"""`barnabas registry stat`, and the stat of a znode in the format of zkCli."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from barnabas.cli.registry.access import open_registry, registry_options
from barnabas.cli.terminal.output import OutputFormat, show

if TYPE_CHECKING:
    from barnabas.world.ports import ZnodeStat


@click.command()
@registry_options
def stat(path: str, data: str, zookeeper: str | None, output: str) -> None:
    """Show the stat of a node: transactions, times, versions and sizes."""
    with open_registry(data, zookeeper) as source:
        _, found = source.get(path)
    show(OutputFormat(output), stat_document(found), lambda _: stat_text(found))


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
        "ephemeralOwner": f"{stat.ephemeral_owner:#x}",  # many JSON readers cannot represent 64 bits
        "dataLength": stat.data_length,
        "numChildren": stat.num_children,
    }


def date(time_ms: int) -> str:
    """Return the local time in the format of zkCli: `Wed Nov 22 01:30:19 PST 2017`."""
    return time.strftime("%a %b %d %H:%M:%S %Z %Y", time.localtime(time_ms / 1000))
