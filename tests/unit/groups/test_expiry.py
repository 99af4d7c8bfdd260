"""Expiration of committed offsets."""

from __future__ import annotations

import pytest

from barnabas.groups.expiry import expired_partitions
from barnabas.groups.group import Group, GroupState
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import OffsetCommitValue
from barnabas.model import TopicPartition

HOUR_MS = 3_600_000
SUBSCRIBED = TopicPartition("read", 0)
UNSUBSCRIBED = TopicPartition("left", 0)


def group(state: GroupState, *, since_ms: int, protocol_type: str | None) -> Group:
    """Group whose offsets were committed at time 0."""
    offsets = GroupOffsets()
    for partition in (SUBSCRIBED, UNSUBSCRIBED):
        offsets.put(partition, OffsetCommitValue(5, -1, "", 0), 0)
    return Group(
        group_id="app",
        state=state,
        state_since_ms=since_ms,
        protocol_type=protocol_type,
        offsets=offsets,
    )


def test_offsets_of_empty_group_expire_together_after_last_member_left() -> None:
    empty = group(GroupState.EMPTY, since_ms=10 * HOUR_MS, protocol_type="consumer")
    assert expired_partitions(empty, 11 * HOUR_MS - 1, HOUR_MS) == []
    assert expired_partitions(empty, 11 * HOUR_MS, HOUR_MS) == [SUBSCRIBED, UNSUBSCRIBED]


def test_unknown_empty_time_falls_back_to_commit_time() -> None:
    empty = group(GroupState.EMPTY, since_ms=-1, protocol_type="consumer")
    assert expired_partitions(empty, HOUR_MS - 1, HOUR_MS) == []
    assert expired_partitions(empty, HOUR_MS, HOUR_MS) == [SUBSCRIBED, UNSUBSCRIBED]


def test_offsets_of_simple_consumer_expire_by_commit_time() -> None:
    simple = group(GroupState.EMPTY, since_ms=10 * HOUR_MS, protocol_type=None)
    assert expired_partitions(simple, HOUR_MS, HOUR_MS) == [SUBSCRIBED, UNSUBSCRIBED]


def test_only_unsubscribed_offsets_of_stable_group_expire() -> None:
    stable = group(GroupState.STABLE, since_ms=0, protocol_type="consumer")
    stable.topics = frozenset({"read"})
    assert expired_partitions(stable, HOUR_MS, HOUR_MS) == [UNSUBSCRIBED]


@pytest.mark.parametrize(
    ("state", "protocol_type", "topics"),
    [
        (GroupState.STABLE, "consumer", None),
        (GroupState.STABLE, "connect", frozenset({"read"})),
        (GroupState.PREPARING_REBALANCE, "consumer", frozenset({"read"})),
        (GroupState.COMPLETING_REBALANCE, "consumer", frozenset({"read"})),
    ],
)
def test_offsets_do_not_expire_while_subscriptions_are_unknown(
    state: GroupState, protocol_type: str, topics: frozenset[str] | None
) -> None:
    unclear = group(state, since_ms=0, protocol_type=protocol_type)
    unclear.topics = topics
    assert expired_partitions(unclear, 100 * HOUR_MS, HOUR_MS) == []
