"""`barnabas groups`: the group of commands. Each command has its own file."""

from __future__ import annotations

from barnabas.cli.lazy_group import LazyGroup

groups = LazyGroup(
    "groups",
    help="List, describe, explain and delete consumer groups, reset their offsets, and show their history.",
    modules={
        "delete": "barnabas.cli.groups.delete:delete_groups",
        "describe": "barnabas.cli.groups.describe:describe_groups",
        "explain": "barnabas.cli.explain.groups:explain_group_command",
        "history": "barnabas.cli.history.coordinator_history:group_history",
        "list": "barnabas.cli.groups.list:list_groups",
        "reset": "barnabas.cli.groups.reset:reset",
    },
)
