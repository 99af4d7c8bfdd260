"""Throttled followers replicate at about the configured rate and do not delay others."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.config import TopicConfig
from barnabas.replication.fetcher import THROTTLED_SECONDS
from tests.unit.replication.nodes import Node, Nodes, eventually

RATE = 200_000
BATCH = b"x" * 20_000
BATCHES = 30
FREE, THROTTLED = 1, 0
"""Partition numbers; broker 1 leads both."""

Rates = dict[str, int]
LEADER_THROTTLE: tuple[Rates, Rates] = ({"leader_replication_throttled_rate": RATE}, {})
FOLLOWER_THROTTLE: tuple[Rates, Rates] = ({}, {"follower_replication_throttled_rate": RATE})


def seconds_at_the_rate() -> float:
    return BATCHES * len(BATCH) / RATE


def batches_at_the_rate(seconds: float) -> float:
    """Upper bound: the first window counts as a whole one, and the last batch may exceed the rate."""
    return max(seconds, 1.0) * RATE / len(BATCH) + 1


async def start_follower_late(leader: Rates, follower: Rates) -> Nodes:
    """Start broker 2 as a follower of a long log, with small fetches."""
    common: dict[str, Any] = {"replica_fetch_max_bytes": 30_000, "replica_fetch_wait_max_ms": 50}
    nodes = Nodes(Node(1, **common, **leader), Node(2, **common, **follower))
    settings = TopicConfig(
        leader_replication_throttled_replicas=(f"{THROTTLED}:1",),
        follower_replication_throttled_replicas=(f"{THROTTLED}:2",),
    )
    for node in nodes.nodes.values():
        node.topics.config = settings
    await nodes.start()
    await nodes.lead(1, isr=(1,), to=(1,), partitions=2)
    for index in (THROTTLED, FREE):
        for _ in range(BATCHES):
            nodes[1].append(BATCH, index=index)
    await nodes.lead(1, isr=(1,), to=(2,), partitions=2)
    return nodes


@pytest.mark.parametrize(("leader", "follower"), [LEADER_THROTTLE, FOLLOWER_THROTTLE])
async def test_throttled_follower_catches_up_at_about_the_rate(
    leader: Rates, follower: Rates
) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    nodes = await start_follower_late(leader, follower)
    try:
        throttled = nodes[2].partition(THROTTLED).log

        def has_copied_all() -> bool:
            copied = throttled.log_end_offset
            assert copied <= batches_at_the_rate(loop.time() - began)
            return copied == BATCHES

        await eventually(has_copied_all)
        assert loop.time() - began < 2 * seconds_at_the_rate() + 2
        await eventually(lambda: 2 in nodes[1].partition(THROTTLED).isr)
    finally:
        await nodes.stop()


@pytest.mark.parametrize(("leader", "follower"), [LEADER_THROTTLE, FOLLOWER_THROTTLE])
async def test_unthrottled_partition_is_replicated_at_once(leader: Rates, follower: Rates) -> None:
    nodes = await start_follower_late(dict.fromkeys(leader, 1), dict.fromkeys(follower, 1))
    try:
        throttled, free = (nodes[2].partition(each).log for each in (THROTTLED, FREE))
        await eventually(lambda: free.log_end_offset == BATCHES)
        assert throttled.log_end_offset == 1, "the next batch would wait for hours"
    finally:
        await nodes.stop()


def has_copied(nodes: Nodes, end: int) -> bool:
    return nodes[2].partition(THROTTLED).log.log_end_offset == end


async def test_in_sync_follower_is_not_throttled() -> None:
    nodes = await start_follower_late({"leader_replication_throttled_rate": 1}, {})
    try:
        for node in nodes.nodes.values():
            partition = node.partition(THROTTLED)
            partition.log.use_config(
                replace(partition.log.config, leader_replication_throttled_replicas=())
            )
        await eventually(lambda: 2 in nodes[1].partition(THROTTLED).isr)
        nodes[1].partition(THROTTLED).log.use_config(
            TopicConfig(leader_replication_throttled_replicas=("*",))
        )
        for count in range(1, 6):
            nodes[1].append(BATCH, index=THROTTLED)
            await eventually(partial(has_copied, nodes, BATCHES + count))
        quota = nodes[1].replicas.leader_quota
        assert quota is not None
        assert quota.is_exceeded()
    finally:
        await nodes.stop()


async def test_throttled_partition_is_fetched_in_small_pieces() -> None:
    rate = 40_000_000
    nodes = await start_follower_late({}, {"follower_replication_throttled_rate": rate})
    try:
        (fetcher,) = nodes[2].replicas.fetchers.fetchers.values()
        fetcher.config = replace(fetcher.config, replica_fetch_max_bytes=1_000_000)
        fetcher.forget_session()
        for state in fetcher.active.values():
            state.is_in_sync = False
        fetcher.apply_quota()
        sizes = {
            each.partition: each.partition_max_bytes
            for topic in fetcher.next_request().topics
            for each in topic.partitions
        }
        assert sizes == {THROTTLED: rate * THROTTLED_SECONDS, FREE: 1_000_000}
    finally:
        await nodes.stop()
