"""Diagnosis of a partition: why it has no leader or too few in-sync replicas, and the command to run next.

The input is a Metadata response (leader, replicas, in-sync replicas, live brokers) and the topic's min.insync.replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from barnabas.client.view import PartitionView


def diagnose(
    partition: PartitionView, alive: Collection[int], *, min_insync_replicas: int = 1
) -> str | None:
    """Return the problem of a partition, or None for a healthy one.

    leader -1, replicas 1,2, isr 2, alive 1  →  no leader: the only in-sync replica, on broker 2, is not alive
    leader 1,  replicas 1,2, isr 1, alive 1  →  broker 2 is not alive
    """
    if partition.is_offline:
        return f"no leader: {explain_no_leader(partition, alive)}"
    missing = [broker for broker in partition.replicas if broker not in partition.isr]
    if not missing:
        return None
    dead = [broker for broker in missing if broker not in alive]
    lagging = [broker for broker in missing if broker in alive]
    reasons = []
    if dead:
        reasons.append(f"{brokers_are(dead)} not alive")
    if lagging:
        reasons.append(f"{brokers_are(lagging)} alive and catching up with the leader")
    if len(partition.isr) < min_insync_replicas:
        counts = f"{len(partition.isr)} in sync, min.insync.replicas={min_insync_replicas}"
        reasons.append(f"writes with acks=all are rejected ({counts})")
    return "; ".join(reasons)


def explain_no_leader(partition: PartitionView, alive: Collection[int]) -> str:
    eligible = [broker for broker in partition.isr if broker in alive]
    if eligible:
        return f"{brokers_are(eligible)} in sync and alive; the controller has not elected a leader yet"
    if not partition.isr:
        return "no replica is in sync"
    if len(partition.isr) == 1:
        return f"the only in-sync replica, on {name_brokers(partition.isr)}, is not alive"
    return f"none of the in-sync replicas, on {name_brokers(partition.isr)}, is alive"


def suggest_next_step(
    topic: str, partitions: Sequence[PartitionView], alive: Collection[int], servers: str = ""
) -> str:
    """Return the next step for the worst problem. `servers` is empty or the option ` -b HOST:PORT` for the commands."""
    list_step = f"`barnabas brokers list{servers}` shows the live brokers"
    for partition in partitions:
        in_sync = partition.isr
        if partition.is_offline and in_sync and not any(broker in alive for broker in in_sync):
            return f"restart {name_brokers(in_sync)}; {list_step}"
    if any(broker not in alive for partition in partitions for broker in partition.replicas):
        return list_step
    return f"`barnabas topics history {topic}{servers}` shows what happened"


def name_brokers(brokers: Sequence[int]) -> str:
    """
    >>> name_brokers([1]), name_brokers([1, 2, 3])
    ('broker 1', 'brokers 1, 2 and 3')
    """
    return f"{'broker' if len(brokers) == 1 else 'brokers'} {join_with_and(brokers)}"


def join_with_and(numbers: Sequence[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last


def brokers_are(brokers: Sequence[int]) -> str:
    return f"{name_brokers(brokers)} {'is' if len(brokers) == 1 else 'are'}"
