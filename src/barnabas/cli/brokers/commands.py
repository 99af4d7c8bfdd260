"""`barnabas brokers`: the group of commands."""

from __future__ import annotations

from barnabas.cli.lazy_group import LazyGroup

brokers = LazyGroup(
    "brokers",
    help="List the brokers of the cluster, and drain or decommission one.",
    modules={
        "list": "barnabas.cli.brokers.list:list_brokers",
        "drain": "barnabas.cli.reassign.draining:drain_broker",
        "decommission": "barnabas.cli.reassign.draining:decommission_broker",
    },
)
