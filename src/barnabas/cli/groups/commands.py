"""`barnabas groups`: the group of commands. Each command has its own file."""

from __future__ import annotations

from barnabas.cli.lazy_group import LazyGroup

groups = LazyGroup(
    "groups",
    help="List, describe, explain and delete consumer groups, and reset their offsets.",
    modules={
        "delete": "barnabas.cli.groups.delete:delete_groups",
        "describe": "barnabas.cli.groups.describe:describe_groups",
        "explain": "barnabas.cli.explain.groups:explain_group_command",
        "list": "barnabas.cli.groups.list:list_groups",
        "reset": "barnabas.cli.groups.reset:reset",
    },
)
