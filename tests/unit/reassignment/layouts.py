"""Layouts for tests of the planner, and strategies that generate them."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from barnabas.controller.assignment import assign_replicas
from barnabas.model import Broker, BrokerId, TopicPartition
from barnabas.reassignment.layout import Layout, PlacedPartition


def tp(text: str) -> TopicPartition:
    """Parse `orders-0`."""
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def layout_of(
    rows: str,
    *,
    brokers: Mapping[int, str | None] | None = None,
    isr: Mapping[str, tuple[int, ...]] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Layout:
    """Parse `orders-0 1,2 · orders-1 2,3`. By default all brokers are alive and all replicas are in sync."""
    partitions = {}
    for row in rows.split("·"):
        name, _, replicas_text = row.strip().partition(" ")
        replicas = tuple(int(broker) for broker in replicas_text.split(","))
        in_sync = (isr or {}).get(name, replicas)
        partitions[tp(name)] = PlacedPartition(
            replicas=replicas,
            isr=in_sync,
            leader=in_sync[0] if in_sync else -1,
            size=(sizes or {}).get(name, 100),
        )
    assigned = {broker for each in partitions.values() for broker in each.replicas}
    racks = dict.fromkeys(sorted(assigned)) if brokers is None else brokers
    return Layout(brokers=racks, partitions=partitions)


@st.composite
def layouts(
    draw: st.DrawFn, *, with_racks: bool = False, uniform: bool = False, max_brokers: int = 6
) -> Layout:
    """Up to four topics with random replicas on 2 to `max_brokers` brokers. `uniform`: one replication factor."""
    count = draw(st.integers(2, max_brokers))
    ids = range(1, count + 1)
    racks = {each: draw(st.sampled_from("abc")) if with_racks else None for each in ids}
    factor = draw(st.integers(1, count))
    partitions = {}
    for number in range(draw(st.integers(1, 4))):
        replication_factor = factor if uniform else draw(st.integers(1, count))
        for partition in range(draw(st.integers(1, 8))):
            order = draw(st.permutations(list(ids)))
            replicas = tuple(order[:replication_factor])
            partitions[TopicPartition(f"topic{number}", partition)] = PlacedPartition(
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                size=draw(st.integers(0, 1000)),
            )
    return Layout(brokers=racks, partitions=partitions)


def naive_assignment(layout: Layout) -> dict[TopicPartition, tuple[int, ...]]:
    """Assign every topic anew, as `kafka-reassign-partitions --generate` does."""
    brokers = [
        Broker(id=BrokerId(each), endpoints=(), rack=rack) for each, rack in layout.brokers.items()
    ]
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in sorted(layout.partitions):
        by_topic.setdefault(partition.topic, []).append(partition)
    assigned: dict[TopicPartition, tuple[int, ...]] = {}
    for number, partitions in enumerate(by_topic.values()):
        rows = assign_replicas(
            brokers,
            partitions=len(partitions),
            replication_factor=len(layout.partitions[partitions[0]].replicas),
            start=number,
            shift=number,
        )
        assigned.update(zip(partitions, rows, strict=True))
    return assigned
