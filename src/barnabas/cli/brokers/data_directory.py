"""Checks of the data directory of `barnabas up` before a cluster is started on it.

<data>/registry/registry.db      present if the cluster has an embedded registry
<data>/broker-<id>.properties    present if the cluster has a ZooKeeper: the settings of one broker
<data>/zookeeper/                present if `up --with-zookeeper` started that ZooKeeper
<data>/broker-<id>/              the logs of one broker
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from barnabas.cli.registry.source import (
    REGISTRY_DIRECTORY,
    RegistrySource,
    broker_files,
    open_source,
    zookeeper_connect,
)
from barnabas.cli.terminal.output import plural
from barnabas.errors import BarnabasError, ConfigError, NoNode
from barnabas.metadata.znodes import TOPICS, decode_state, partitions_path, state_path
from barnabas.model import TopicPartition


def broker_ids_in(data: Path) -> list[int]:
    found = (
        re.fullmatch(r"broker-(\d+)", path.parent.name) for path in data.glob("*/meta.properties")
    )
    return sorted(int(match[1]) for match in found if match)


def check_registry(data: Path, *, with_zookeeper: bool) -> None:
    """Raise ConfigError if the data belongs to a cluster with the other kind of registry, or has lost its registry."""
    if not broker_ids_in(data):
        return
    has_registry = (data / REGISTRY_DIRECTORY).is_dir()
    connect = zookeeper_connect(data)
    if connect is not None and not has_registry and not with_zookeeper:
        is_ours = (data / "zookeeper").is_dir()
        option = "--with-zookeeper" if is_ours else f"--zookeeper {connect}"
        why = f"this data belongs to a cluster with a ZooKeeper: add {option}"
        raise ConfigError("--data", f"{why}, or use another directory")
    if connect is None and has_registry and with_zookeeper:
        why = "this data belongs to a cluster with an embedded registry"
        raise ConfigError(
            "--data", f"{why}: start it without a ZooKeeper, or use another directory"
        )
    if connect is None and not has_registry and not with_zookeeper and has_cluster_id(data):
        why = (
            f"this data belongs to a cluster whose registry is not in {data}: restore the registry"
        )
        adopt = "to adopt the logs in a new cluster, delete meta.properties and set barnabas.adopt.logs=true"
        raise ConfigError("--data", f"{why}, or use another directory; {adopt}")


def has_cluster_id(data: Path) -> bool:
    return any(
        b"cluster.id=" in path.read_bytes() for path in data.glob("broker-*/meta.properties")
    )


def absent_brokers_warning(
    data: Path, running: Collection[int], zookeeper: str | None
) -> str | None:
    """Return a warning if brokers with data in this directory are not running, else None."""
    broker_ids = broker_ids_in(data)
    if set(broker_ids) <= set(running):
        return None
    try:
        files = broker_files(data)  # with the security settings of the connection to ZooKeeper
        with open_source(str(data), zookeeper, str(files[0]) if files else None) as registry:
            count = count_offline_partitions(registry, running)
    except BarnabasError:
        count = 0  # not known; the brokers report the error themselves
    offline = f"{plural(count, 'partition')} {'is' if count == 1 else 'are'} offline"
    missing = offline if count else "some replicas are missing"
    return f"this data has {format_broker_ids(broker_ids)}; {missing} until they run: add --brokers {broker_ids[-1]}"


def count_offline_partitions(registry: RegistrySource, running: Collection[int]) -> int:
    """Count the partitions without a running in-sync replica."""
    count = 0
    for topic in registry.children(TOPICS):
        try:
            numbers = registry.children(partitions_path(topic))
            for number in numbers:
                partition = TopicPartition(topic, int(number))
                content, stat = registry.get(state_path(partition))
                state = decode_state(partition, content, version=stat.version)
                count += not set(state.isr) & set(running)
        except NoNode:
            continue  # not created yet, or deleted meanwhile
    return count


def format_broker_ids(ids: list[int]) -> str:
    """
    >>> format_broker_ids([1, 2, 3]), format_broker_ids([1, 3])
    ('brokers 1–3', 'brokers 1, 3')
    """
    if len(ids) > 1 and ids == list(range(ids[0], ids[-1] + 1)):
        return f"brokers {ids[0]}–{ids[-1]}"
    return f"{'broker' if len(ids) == 1 else 'brokers'} {', '.join(map(str, ids))}"
