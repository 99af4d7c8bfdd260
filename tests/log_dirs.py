"""Clusters whose brokers have several log directories."""

from __future__ import annotations

from msgspec.structs import replace

from barnabas import LocalCluster


def use_log_dirs(cluster: LocalCluster, count: int) -> None:
    """Give each broker `count` log directories. Call it before the cluster starts."""
    for broker in cluster.brokers.values():
        directories = tuple(
            str(cluster.data / f"broker-{broker.id}-disk-{number}")
            for number in range(1, count + 1)
        )
        broker.config = replace(broker.config, log_dirs=directories)
