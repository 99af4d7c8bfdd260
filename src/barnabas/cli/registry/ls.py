"""`barnabas registry ls`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from barnabas.cli.registry.access import open_registry, registry_options
from barnabas.cli.registry.source import RegistrySource
from barnabas.cli.registry.stat import stat_document, stat_text
from barnabas.cli.terminal.output import OutputFormat, show


@click.command()
@registry_options
@click.option("-s", "with_stat", is_flag=True, help="Also show the stat of the node.")
@click.option("-R", "recursive", is_flag=True, help="Also list all descendants.")
def ls(
    path: str, data: str, zookeeper: str | None, output: str, with_stat: bool, recursive: bool
) -> None:
    """List the children of a node."""
    with open_registry(data, zookeeper) as found:
        _, stat = found.get(path)
        if recursive:
            paths = list(walk_paths(found, path))
            show(OutputFormat(output), paths, "\n".join)
            return
        children = found.children(path)
    document: dict[str, Any] = {"path": path, "children": children}
    if with_stat:
        document["stat"] = stat_document(stat)

    def text(shown: dict[str, Any]) -> str:
        line = f"[{', '.join(shown['children'])}]"
        return f"{line}\n{stat_text(stat)}" if with_stat else line

    show(OutputFormat(output), document, text)


def walk_paths(found: RegistrySource, path: str) -> Iterator[str]:
    """Yield the path and those of all descendants, each before its children."""
    yield path
    for name in found.children(path):
        yield from walk_paths(found, f"{path.rstrip('/')}/{name}")
