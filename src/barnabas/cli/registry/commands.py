"""`barnabas registry`: the group of commands. They show the znode tree in the format of zkCli.

They read a ZooKeeper, or the files of an embedded registry. The files can be read with or without a running broker.
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
    """Inspect the znode tree, which holds the cluster metadata."""
