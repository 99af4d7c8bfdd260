"""`barnabas users`: the group of commands. Each command has its own file."""

from __future__ import annotations

from barnabas.cli.lazy_group import LazyGroup

users = LazyGroup(
    "users",
    help="Create, list and delete users that log in with SCRAM.",
    modules={
        "create": "barnabas.cli.users.create:create_user",
        "delete": "barnabas.cli.users.delete:delete_user",
        "list": "barnabas.cli.users.list:list_users",
    },
)
