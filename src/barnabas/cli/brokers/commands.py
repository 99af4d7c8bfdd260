"""`barnabas brokers`: the group of commands. Each command has its own file."""

from __future__ import annotations

from barnabas.cli.lazy_group import LazyGroup

brokers = LazyGroup(
    "brokers",
    help="List the brokers of the cluster, and explain their problems.",
    modules={
        "explain": "barnabas.cli.explain.commands:explain_broker_command",
        "list": "barnabas.cli.brokers.list:list_brokers",
    },
)
