"""Which offsets of which groups have been kept long enough."""

from __future__ import annotations

import pytest

from barnabas.groups.expiry import expired_offsets
from barnabas.groups.group import Group, GroupState
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import OffsetCommitValue
from barnabas.model import TopicPartition

HOUR_MS = 3_600_000
READ = TopicPartition("read", 0)
LEFT = TopicPartition("left", 0)


def group(state: GroupState, *, since_ms: int, protocol_type: str | None) -> Group:
    """Its offsets were committed at time 0."""
    offsets = GroupOffsets()
    for partition in (READ, LEFT):
        offsets.load(partition, OffsetCommitValue(5, -1, "", 0), 0)
    return Group(
        group_id="app",
        state=state,
        state_since_ms=since_ms,
        protocol_type=protocol_type,
        offsets=offsets,
    )


def test_of_an_empty_group_all_expire_together_after_the_last_member_left() -> None:
    empty = group(GroupState.EMPTY, since_ms=10 * HOUR_MS, protocol_type="consumer")
    assert expired_offsets(empty, 11 * HOUR_MS - 1, HOUR_MS) == []
    assert expired_offsets(empty, 11 * HOUR_MS, HOUR_MS) == [READ, LEFT]


def test_if_nobody_knows_when_that_was_the_commits_say_it() -> None:
    empty = group(GroupState.EMPTY, since_ms=-1, protocol_type="consumer")
    assert expired_offsets(empty, HOUR_MS - 1, HOUR_MS) == []
    assert expired_offsets(empty, HOUR_MS, HOUR_MS) == [READ, LEFT]


def test_of_who_only_ever_committed_each_offset_expires_by_itself() -> None:
    simple = group(GroupState.EMPTY, since_ms=10 * HOUR_MS, protocol_type=None)
    assert expired_offsets(simple, HOUR_MS, HOUR_MS) == [READ, LEFT]


def test_consumers_keep_what_they_read_and_lose_what_they_left() -> None:
    stable = group(GroupState.STABLE, since_ms=0, protocol_type="consumer")
    stable.topics = frozenset({"read"})
    assert expired_offsets(stable, HOUR_MS, HOUR_MS) == [LEFT]


@pytest.mark.parametrize(
    ("state", "protocol_type", "topics"),
    [
        (GroupState.STABLE, "consumer", None),
        (GroupState.STABLE, "connect", frozenset({"read"})),
        (GroupState.PREPARING_REBALANCE, "consumer", frozenset({"read"})),
        (GroupState.COMPLETING_REBALANCE, "consumer", frozenset({"read"})),
    ],
)
def test_where_nobody_can_tell_what_is_read_nothing_expires(
    state: GroupState, protocol_type: str, topics: frozenset[str] | None
) -> None:
    unclear = group(state, since_ms=0, protocol_type=protocol_type)
    unclear.topics = topics
    assert expired_offsets(unclear, 100 * HOUR_MS, HOUR_MS) == []
