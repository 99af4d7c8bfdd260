"""`barnabas topics`: the group. Each command has a file of its own."""

from __future__ import annotations

import click

from barnabas.cli.lazy_group import LazyGroup


@click.group(
    cls=LazyGroup,
    modules={
        "alter": "barnabas.cli.topics.alter:alter",
        "create": "barnabas.cli.topics.create:create",
        "delete": "barnabas.cli.topics.delete:delete",
        "describe": "barnabas.cli.topics.describe:describe",
        "list": "barnabas.cli.topics.list:list_topics",
        "history": "barnabas.cli.history.history:history",
    },
)
def topics() -> None:
    """Create, list, describe, alter and delete topics; and tell what happened to them."""
