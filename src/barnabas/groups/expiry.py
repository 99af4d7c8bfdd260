"""Deletion of committed offsets that expired or whose topic was deleted, and of empty groups without offsets.

    empty group, classic protocol   all offsets, offsets.retention.minutes after the last member left
    group that never had members    each offset, offsets.retention.minutes after its commit
    stable group of consumers       each offset of an unsubscribed topic, offsets.retention.minutes after its commit
    group of the new protocol       each offset of an unsubscribed topic, offsets.retention.minutes after its commit
    any other group                 no offsets
    deleted topic                   its offsets in all groups, immediately

A commit of an old client may have its own expiry time. Each deletion appends tombstones. An empty group is deleted
with its last offset. Tombstones do not wait for replicas: if one is lost, the next coordinator expires the offset
again. Offsets of a deleted topic then stay until they expire.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence

from barnabas.errors import ApiError
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.coordinator_timers import AnyGroup
from barnabas.groups.group import GroupState
from barnabas.model import TopicPartition
from barnabas.tasks import Turns
from barnabas.wire.consumer_protocol import PROTOCOL_TYPE

logger = logging.getLogger("barnabas.groups")

MINUTE_MS = 60_000
DAY_SECONDS = 86_400.0  # upper bound of the check interval


def expired_partitions(group: AnyGroup, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """Return the partitions whose committed offset has expired."""
    if isinstance(group, ConsumerGroup):
        return group.offsets.expired(now_ms, retention_ms, kept_topics=group.topic_counts)
    if group.protocol_type is None:
        return group.offsets.expired(now_ms, retention_ms)
    if group.state is GroupState.EMPTY:
        # The state began when the last member left.
        return group.offsets.expired(now_ms, retention_ms, since_ms=group.state_since_ms)
    is_consumer_group = group.protocol_type == PROTOCOL_TYPE
    if group.state is GroupState.STABLE and is_consumer_group and group.topics is not None:
        return group.offsets.expired(now_ms, retention_ms, kept_topics=group.topics)
    return []


async def expire_periodically(coordinator: GroupCoordinator) -> None:
    """Delete expired offsets every offsets.retention.check.interval.ms, until cancelled."""
    period_s = min(coordinator.config.offsets_retention_check_interval_ms / 1000, DAY_SECONDS)
    while True:
        await asyncio.sleep(period_s)
        try:
            await expire_once(coordinator)
        except Exception:
            logger.exception("cannot delete expired offsets")


async def expire_once(coordinator: GroupCoordinator) -> None:
    retention_ms = coordinator.config.offsets_retention_minutes * MINUTE_MS
    now_ms = coordinator.clock.now_ms()
    deleted = 0
    async for group in coordinated_groups(coordinator):
        # A pending member is about to join, so the empty group must not be deleted.
        if isinstance(group, ConsumerGroup) or not group.pending_members:
            expired = expired_partitions(group, now_ms, retention_ms)
            deleted += try_delete_offsets(coordinator, group, expired)
    if deleted:
        logger.info("deleted expired offsets=%d", deleted)


async def delete_offsets_of_partitions(
    coordinator: GroupCoordinator, partitions: Collection[TopicPartition]
) -> None:
    """Delete the committed offsets of deleted partitions from all groups."""
    deleted = 0
    async for group in coordinated_groups(coordinator):
        if affected := group.offsets.partitions_with_offsets(partitions):
            deleted += try_delete_offsets(coordinator, group, affected)
    if deleted:
        logger.info("deleted offsets=%d of deleted partitions=%d", deleted, len(partitions))


async def coordinated_groups(coordinator: GroupCoordinator) -> AsyncIterator[AnyGroup]:
    """Iterate over the groups of this broker. Other tasks run in between and may drop groups, which are skipped."""
    store = coordinator.store
    turns = Turns()
    for group_id, group in list(coordinator.groups.items()):
        await turns.yield_if_due()
        is_current = coordinator.groups.get(group_id) is group
        if is_current and store.is_led(store.partition_for(group_id)):
            yield group


def try_delete_offsets(
    coordinator: GroupCoordinator, group: AnyGroup, partitions: Sequence[TopicPartition]
) -> int:
    """Delete offsets, as `delete_offsets` does. Return the number of offsets, or 0 if they cannot be deleted."""
    try:
        coordinator.delete_offsets(group, partitions)
    except ApiError as error:
        logger.warning("cannot delete offsets group=%s error=%s", group.group_id, error)
        return 0
    return len(partitions)
