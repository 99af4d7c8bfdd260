"""Settings that limit the bytes of a reassignment, as kafka-reassign-partitions sets them.

    topic    leader.replication.throttled.replicas      partition:broker of every replica that sends
    topic    follower.replication.throttled.replicas    partition:broker of every replica that is added
    broker   leader.replication.throttled.rate          bytes per second that its throttled replicas send
    broker   follower.replication.throttled.rate        bytes per second that its throttled replicas receive

The lists stay in the settings until a command removes them. A list `*` was not set by a reassignment and is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from barnabas.model import TopicPartition
from barnabas.reassignment.layout import ReplicaIds

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
TOPIC_THROTTLES = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
RATES = (LEADER_RATE, FOLLOWER_RATE)
BROKER_THROTTLES = (*RATES, LOG_DIRS_RATE)
ALL_REPLICAS = "*"


class PartitionMove(NamedTuple):
    """Brokers that have the partition before the move, and brokers that it is copied to."""

    sources: ReplicaIds
    destinations: ReplicaIds


def to_move(origin: Iterable[int], target: Iterable[int]) -> PartitionMove:
    sources = tuple(origin)
    return PartitionMove(sources, tuple(each for each in target if each not in sources))


def topic_throttles(moves: Mapping[TopicPartition, PartitionMove]) -> dict[str, dict[str, str]]:
    """Return the settings of each topic."""
    lists: dict[str, tuple[set[str], set[str]]] = {}
    for (topic, partition), move in moves.items():
        leaders, followers = lists.setdefault(topic, (set(), set()))
        leaders.update(f"{partition}:{broker}" for broker in move.sources)
        followers.update(f"{partition}:{broker}" for broker in move.destinations)
    return {
        topic: {
            LEADER_REPLICAS: ",".join(sorted(leaders)),
            FOLLOWER_REPLICAS: ",".join(sorted(followers)),
        }
        for topic, (leaders, followers) in sorted(lists.items())
    }


def throttled_brokers(moves: Iterable[PartitionMove]) -> list[int]:
    """Return the brokers that send or receive."""
    return sorted({broker for move in moves for each in move for broker in each})


def is_all_replicas(value: str) -> bool:
    """Whether a list throttles all replicas of a topic. No reassignment sets such a list."""
    return value.strip() == ALL_REPLICAS


def remaining_list(value: str, moving: Collection[int]) -> str:
    """Return a list of throttled replicas without the partitions that do not move any more.

    >>> remaining_list("0:1,0:2,3:1", moving=[3])
    '3:1'
    """
    if is_all_replicas(value):
        return value
    entries = (entry.strip() for entry in value.split(","))
    moving_texts = {str(partition) for partition in moving}
    return ",".join(entry for entry in entries if entry.partition(":")[0] in moving_texts)
