"""`barnabas quotas`: the group of commands. Each command has its own file."""

from __future__ import annotations

from barnabas.cli.lazy_group import LazyGroup

quotas = LazyGroup(
    "quotas",
    help="Set, list and unset quotas of users, client ids and IP addresses.",
    modules={
        "list": "barnabas.cli.quotas.list:list_quotas",
        "set": "barnabas.cli.quotas.set:set_quotas",
        "unset": "barnabas.cli.quotas.unset:unset_quotas",
    },
)
