"""Builders of facts for the tests of the rules."""

from __future__ import annotations

from typing import Any

from barnabas.client.view import BrokerView, ClusterView, PartitionView, TopicView
from barnabas.explain.facts import ClusterFacts, RegistryFacts
from barnabas.metadata.znodes import ReplicaAssignment, TopicAssignment
from barnabas.model import NO_LEADER, BrokerId, TopicPartition

NOW_MS = 1_777_622_400_000
FIRST = TopicPartition("orders", 0)


def partition(
    leader: int | None,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    *,
    number: int = 0,
    epoch: int = 3,
    offline: tuple[int, ...] = (),
) -> PartitionView:
    return PartitionView(
        partition=number,
        leader=NO_LEADER if leader is None else BrokerId(leader),
        leader_epoch=epoch,
        replicas=replicas,
        isr=isr,
        offline_replicas=offline,
    )


def cluster_view(
    *partitions: PartitionView,
    alive: tuple[int, ...] = (1, 2, 3),
    controller: int = 1,
    name: str = "orders",
    others: tuple[str, ...] = (),
    addresses: dict[int, int] | None = None,
) -> ClusterView:
    """A cluster with one topic of these partitions, and empty topics with the names `others`."""
    topics = {other: TopicView(name=other) for other in others}
    if partitions:
        topics[name] = TopicView(name=name, partitions=partitions)
    return ClusterView(
        cluster_id="c",
        controller=BrokerId(controller),
        brokers={
            BrokerId(each): BrokerView(
                id=BrokerId(each), host="h", port=(addresses or {}).get(each, 9090 + each)
            )
            for each in alive
        },
        topics=topics,
    )


def facts_of(*partitions: PartitionView, **options: Any) -> ClusterFacts:
    """Facts with a view of these partitions. Options of `cluster_view` go there, the others to ClusterFacts."""
    names = ("alive", "controller", "name", "others", "addresses")
    seen = {name: options.pop(name) for name in names if name in options}
    return ClusterFacts(now_ms=NOW_MS, view=cluster_view(*partitions, **seen), **options)


def registry_with(topics: dict[str, tuple[int, ...]], **options: Any) -> RegistryFacts:
    """A registry with topics of one partition each, with these replicas."""
    return RegistryFacts(
        name="the registry",
        controller=options.pop("controller", 1),
        brokers=options.pop("brokers", dict.fromkeys((1, 2, 3), 0)),
        topics={
            name: TopicAssignment(
                topic_id=None,
                partitions={0: ReplicaAssignment(replicas=tuple(map(BrokerId, replicas)))},
            )
            for name, replicas in topics.items()
        },
        **options,
    )
