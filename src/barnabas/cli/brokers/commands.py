"""`barnabas brokers`: the group of commands. Each command has its own file."""

from __future__ import annotations

from barnabas.cli.lazy_group import LazyGroup

brokers = LazyGroup(
    "brokers",
    help="List the brokers and their log directories, explain their problems, and drain or decommission one.",
    modules={
        "list": "barnabas.cli.brokers.list:list_brokers",
        "log-dirs": "barnabas.cli.brokers.log_dirs:broker_log_dirs",
        "explain": "barnabas.cli.explain.commands:explain_broker_command",
        "drain": "barnabas.cli.reassign.draining:drain_broker",
        "decommission": "barnabas.cli.reassign.draining:decommission_broker",
    },
)
