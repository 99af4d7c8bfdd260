"""`barnabas registry get`."""

from __future__ import annotations

import sys
from typing import Any

import click

from barnabas.cli.registry.access import open_registry, registry_options
from barnabas.cli.registry.stat import stat_document, stat_text
from barnabas.cli.terminal.output import OutputFormat, show, write_out


@click.command()
@registry_options
@click.option("-s", "with_stat", is_flag=True, help="Also show the stat of the node.")
def get(path: str, data: str, zookeeper: str | None, output: str, with_stat: bool) -> None:
    """Show the data of a node."""
    with open_registry(data, zookeeper) as found:
        content_bytes, stat = found.get(path)
    content = content_bytes.decode("utf-8", "backslashreplace")
    document: dict[str, Any] = {"path": path, "data": content or None}
    if with_stat:
        document["stat"] = stat_document(stat)
    # zkCli shows null for nodes without data.
    ending = f"\n{stat_text(stat)}" if with_stat else ""
    if OutputFormat(output) is OutputFormat.TEXT and not sys.stdout.isatty():
        # A pipe gets the raw data, as with records.
        write_out(f"{content or 'null'}{ending}\n".encode())
        return
    show(OutputFormat(output), document, lambda shown: (shown["data"] or "null") + ending)
