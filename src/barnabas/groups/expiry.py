"""Forgetting: offsets nobody came back for, offsets of topics that are gone, groups of which nothing is left.

    a group without members      all its offsets, `offsets.retention.minutes` after the last member left
    one that never had members   each offset, so long after it was committed
    consumers that are stable    each offset of a topic that none of them reads any more, so long after its commit
    any other                    nothing
    a topic was deleted          its offsets, at once

A commit of an old client may say itself when it ends. What is forgotten is written down as tombstones, and so is the
group with its last offset. Nobody waits for the replicas to have them: whoever leads next finds the same to be over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence

from barnabas.errors import ApiError
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.group import Group, GroupState
from barnabas.groups.store import GroupStore
from barnabas.model import TopicPartition
from barnabas.tasks import Turns
from barnabas.wire.consumer_protocol import PROTOCOL_TYPE

logger = logging.getLogger("barnabas.groups")

MINUTE_MS = 60_000
DAY_SECONDS = 86_400.0  # a loop timer takes no longer periods than this


def expired_offsets(group: Group, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    if group.protocol_type is None:
        return group.offsets.expired(now_ms, retention_ms)
    if group.state is GroupState.EMPTY:
        return group.offsets.expired(now_ms, retention_ms, since_ms=group.empty_since_ms)
    topics = group.subscribed_topics()
    is_known = group.protocol_type == PROTOCOL_TYPE and topics is not None
    if group.state is GroupState.STABLE and is_known:
        return group.offsets.expired(now_ms, retention_ms, kept=topics or ())
    return []


async def expire(coordinator: GroupCoordinator, store: GroupStore) -> None:
    """Now and then, for as long as the broker runs."""
    period_s = min(store.config.offsets_retention_check_interval_ms / 1000, DAY_SECONDS)
    while True:
        await asyncio.sleep(period_s)
        try:
            await expire_once(coordinator, store)
        except Exception:
            logger.exception("cannot look for expired offsets")  # and is tried again


async def expire_once(coordinator: GroupCoordinator, store: GroupStore) -> None:
    retention_ms = store.config.offsets_retention_minutes * MINUTE_MS
    now_ms = store.clock.now_ms()
    turns = Turns()
    gone = 0
    for group in list(coordinator.groups.values()):
        await turns.leave()
        # One who was given an id is about to come: the group is empty, and not over.
        if is_ours(coordinator, store, group) and not group.pending:
            expired = expired_offsets(group, now_ms, retention_ms)
            gone += forget_if_possible(coordinator, group, expired)
    if gone:
        logger.info("expired offsets=%d", gone)


async def forget_deleted(
    coordinator: GroupCoordinator, store: GroupStore, partitions: Collection[TopicPartition]
) -> None:
    """Their topics are gone, or so much of them."""
    turns = Turns()
    gone = 0
    for group in list(coordinator.groups.values()):
        await turns.leave()
        if is_ours(coordinator, store, group) and (found := group.offsets.among(partitions)):
            gone += forget_if_possible(coordinator, group, found)
    if gone:
        logger.info("removed offsets=%d of deleted partitions=%d", gone, len(partitions))


def is_ours(coordinator: GroupCoordinator, store: GroupStore, group: Group) -> bool:
    is_known = coordinator.groups.get(group.group_id) is group
    return is_known and store.is_led(store.partition_for(group.group_id))


def forget_if_possible(
    coordinator: GroupCoordinator, group: Group, partitions: Sequence[TopicPartition]
) -> int:
    """Delete offsets; their number, or 0 if the tombstones cannot be written. The next run tries again."""
    try:
        coordinator.forget(group, partitions)
    except ApiError as error:
        logger.warning("cannot forget offsets group=%s error=%s", group.group_id, error)
        return 0
    return len(partitions)
