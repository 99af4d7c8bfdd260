"""`barnabas cluster`: the group of commands."""

from __future__ import annotations

from barnabas.cli.lazy_group import LazyGroup

cluster_group = LazyGroup(
    "cluster",
    help="Describe the cluster, check its health, and explain its problems.",
    modules={
        "describe": "barnabas.cli.brokers.describe_cluster:describe_cluster",
        "explain": "barnabas.cli.explain.commands:explain_cluster_command",
        "health": "barnabas.cli.explain.commands:cluster_health",
    },
)
