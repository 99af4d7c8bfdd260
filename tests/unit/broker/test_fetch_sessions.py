"""Fetch sessions remember the partitions of a client and wake only those that changed."""

from __future__ import annotations

from random import Random
from uuid import uuid4

import pytest

from barnabas.broker.fetch_sessions import EVICTABLE_AFTER_SECONDS, FetchEntry, FetchSessions
from barnabas.config import TopicConfig
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import BrokerId
from barnabas.replication.partition import Partition
from barnabas.storage.log import Log
from simulator.disk import ForgetfulDisk

TOPIC_ID = uuid4()


def make_partition(index: int = 0) -> Partition:
    log = Log.create(
        ForgetfulDisk(), f"/logs/orders-{index}", TopicConfig(), topic_id=TOPIC_ID, now_ms=0
    )
    return Partition("orders", index, TOPIC_ID, BrokerId(1), log)


def make_sessions(slots: int = 10) -> FetchSessions:
    return FetchSessions(slots, Random(7))


def test_sleeping_partition_wakes_when_it_changes() -> None:
    session = make_sessions().open(1, uses_topic_ids=False, now=0)
    assert session is not None
    entries = [FetchEntry("orders", TOPIC_ID, index) for index in range(3)]
    partitions = [make_partition(index) for index in range(3)]
    for entry in entries:
        session.put(("orders", entry.index), entry)
    for entry, partition in zip(entries, partitions, strict=True):
        session.fall_asleep(entry, partition)
    assert not session.awake
    partitions[1].notify()
    assert list(session.awake) == [entries[1]]
    partitions[1].notify()
    assert list(session.awake) == [entries[1]]


def test_waking_partition_notifies_waiting_fetch() -> None:
    session = make_sessions().open(1, uses_topic_ids=False, now=0)
    assert session is not None
    notifications: list[str] = []
    session.waiting_fetch = lambda: notifications.append("woken")
    entry, partition = FetchEntry("orders", TOPIC_ID, 0), make_partition()
    session.put(("orders", 0), entry)
    session.fall_asleep(entry, partition)
    partition.notify()
    assert notifications == ["woken"]


def test_removed_and_closed_partitions_keep_no_watchers() -> None:
    many = make_sessions()
    session = many.open(1, uses_topic_ids=False, now=0)
    assert session is not None
    partition = [make_partition(index) for index in range(2)]
    for index in range(2):
        entry = FetchEntry("orders", TOPIC_ID, index)
        session.put(("orders", index), entry)
        session.fall_asleep(entry, partition[index])
    session.remove(("orders", 0))
    assert not partition[0].watchers
    many.close(session.id)
    assert not partition[1].watchers


def test_served_partition_moves_to_the_end() -> None:
    session = make_sessions().open(1, uses_topic_ids=False, now=0)
    assert session is not None
    entries = [FetchEntry("orders", TOPIC_ID, index) for index in range(3)]
    for entry in entries:
        session.put(("orders", entry.index), entry)
    session.move_to_end([entries[0]])
    assert list(session.awake) == [entries[1], entries[2], entries[0]]


@pytest.mark.parametrize(
    ("session_id", "epoch", "uses_topic_ids", "code"),
    [
        (1, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_session_is_not_resumed_with_wrong_id_epoch_or_topic_ids(
    session_id: int, epoch: int, uses_topic_ids: bool, code: ErrorCode
) -> None:
    many = make_sessions()
    session = many.open(1, uses_topic_ids=False, now=0)
    assert session is not None
    with pytest.raises(ApiError) as refused:
        many.resume(session_id or session.id, epoch, uses_topic_ids=uses_topic_ids, now=1)
    assert refused.value.code is code


def test_session_epoch_wraps_around_to_one() -> None:
    session = make_sessions().open(1, uses_topic_ids=False, now=0)
    assert session is not None
    session.epoch = 2**31 - 1
    session.next_epoch()
    assert session.epoch == 1


def test_full_cache_evicts_only_old_sessions() -> None:
    many = make_sessions(slots=2)
    first = many.open(1, uses_topic_ids=False, now=0)
    second = many.open(1, uses_topic_ids=False, now=50)
    assert first is not None
    assert second is not None
    assert many.open(1, uses_topic_ids=False, now=60) is None
    third = many.open(1, uses_topic_ids=False, now=EVICTABLE_AFTER_SECONDS + 1)
    assert third is not None
    assert set(many.sessions) == {second.id, third.id}
