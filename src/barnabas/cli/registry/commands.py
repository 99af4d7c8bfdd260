"""`barnabas registry`: the group. Its commands show the znode tree the way zkCli does.

They read the files of the embedded registry directly, so they work beside a running broker, without one, and when a
broker cannot be reached; or they ask a ZooKeeper.
"""

from __future__ import annotations

import click

from barnabas.cli.lazy_group import LazyGroup


@click.group(
    cls=LazyGroup,
    modules={
        "get": "barnabas.cli.registry.get:get",
        "ls": "barnabas.cli.registry.ls:ls",
        "stat": "barnabas.cli.registry.stat:stat",
        "watch": "barnabas.cli.registry.watch:watch",
    },
)
def registry() -> None:
    """Look into the znode tree: the cluster metadata."""
