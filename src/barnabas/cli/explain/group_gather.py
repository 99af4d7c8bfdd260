"""Gathers the facts about one group: its coordinator, members, committed offsets and their progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from barnabas.cli.explain.gather import gather_facts
from barnabas.cli.explain.registry_facts import RegistryPlace
from barnabas.cli.explain.transaction_gather import gather_open_transactions
from barnabas.client.blocking import Deadline, now_ms, pause
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Consumer, FromEnd, FromOffset, Start
from barnabas.client.group_admin import GroupAdmin, GroupView
from barnabas.client.group_offsets import GroupOffset
from barnabas.client.offsets import earliest_offsets, latest_offsets, list_offsets
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.explain.facts import ClusterFacts
from barnabas.explain.group_facts import GroupFacts, GroupProgress
from barnabas.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    read_group,
    read_key,
    read_offset,
)
from barnabas.groups.store import partition_of
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.model import TopicPartition

COORDINATOR_TIMEOUT_S = 3.0
OFFSET_RECORDS_MAX = 5000
"""Records read from the end of the group's partition of __consumer_offsets, to find the time of the last commits."""

MARKERS_MAX = 1000
"""Records after a committed offset are read only if there are at most this many offsets to the end."""

CommittedOffsets = Mapping[TopicPartition, GroupOffset]
T = TypeVar("T")


class StoredGroup(NamedTuple):
    """State of the group in the last records of __consumer_offsets."""

    commit_ms: dict[TopicPartition, int]
    metadata: GroupMetadataValue | None = None


def gather_group_facts(
    cluster: Cluster,
    place: RegistryPlace,
    group_id: str,
    *,
    sample_s: float,
    stalled_after_s: float,
) -> GroupFacts:
    cluster_facts = gather_facts(cluster, place).facts
    partition = offsets_partition(cluster_facts, group_id)
    if partition is not None and cluster_facts.is_led_by_silent_broker(partition):
        return GroupFacts(group_id=group_id, cluster=cluster_facts, offsets_partition=partition)
    with cluster.with_new_connections(timeout_s=COORDINATOR_TIMEOUT_S) as asking:
        admin = GroupAdmin(asking)
        try:
            view = admin.describe_group(group_id)
            committed: CommittedOffsets = admin.committed_offsets(group_id) if view.exists else {}
        except ApiError as error:
            return GroupFacts(
                group_id=group_id,
                cluster=cluster_facts,
                coordinator_error=error.message or error.code.name,
                is_loading=error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                offsets_partition=partition,
            )
        return describe_progress(
            asking, cluster_facts, view, committed, partition, sample_s, stalled_after_s
        )


def describe_progress(
    cluster: Cluster,
    facts: ClusterFacts,
    view: GroupView,
    committed: CommittedOffsets,
    partition: TopicPartition | None,
    sample_s: float,
    stalled_after_s: float,
) -> GroupFacts:
    assigned = {each for member in view.members for each in member.partitions}
    readable = readable_partitions(facts, committed.keys() | assigned)
    starts = answer_or_empty(lambda: earliest_offsets(cluster, readable))
    ends = answer_or_empty(lambda: latest_offsets(cluster, readable))
    lagging = find_lagging(committed, ends, assigned)
    dues = answer_or_empty(lambda: due_offsets(cluster, lagging, ends, stalled_after_s))
    read = find_read(cluster, committed, ends, lagging)
    later: CommittedOffsets = committed
    if any(
        (offset_in(committed, each) or 0) < dues.get(each, ends[each])
        for each in lagging
        if each not in read
    ):
        pause(sample_s)
        with suppress(ApiError):
            later = GroupAdmin(cluster).committed_offsets(view.group_id)
    silent = {broker for broker in facts.view.brokers if facts.is_silent(broker)}
    transactions = gather_open_transactions(
        cluster, facts.view, sorted({each.topic for each in lagging}), silent
    )
    stored = read_stored_group(cluster, partition, view.group_id)
    members = stored.metadata.members if stored.metadata else ()
    return GroupFacts(
        group_id=view.group_id,
        cluster=replace(facts, transactions=transactions),
        view=view,
        offsets_partition=partition,
        last_members=frozenset(each.member_id for each in members),
        rebalance_timeout_ms=max((each.rebalance_timeout_ms for each in members), default=None),
        state_ms=stored.metadata.current_state_timestamp if stored.metadata else None,
        progress={
            each: GroupProgress(
                committed=offset_in(committed, each),
                later_committed=offset_in(later, each),
                start=starts.get(each),
                end=ends.get(each),
                due=dues.get(each),
                is_read=each in read,
                commit_ms=stored.commit_ms.get(each),
            )
            for each in committed.keys() | assigned
        },
        stalled_after_ms=int(stalled_after_s * 1000),
    )


def offsets_partition(facts: ClusterFacts, group_id: str) -> TopicPartition | None:
    topic = facts.view.topics.get(CONSUMER_OFFSETS)
    if topic is None or not topic.partitions:
        return None
    return TopicPartition(CONSUMER_OFFSETS, partition_of(group_id, len(topic.partitions)))


def readable_partitions(
    facts: ClusterFacts, partitions: Iterable[TopicPartition]
) -> list[TopicPartition]:
    found = []
    for each in sorted(partitions):
        with suppress(ApiError):
            facts.view.leader(each)
            if not facts.is_led_by_silent_broker(each):
                found.append(each)
    return found


def answer_or_empty(ask: Callable[[], dict[TopicPartition, T]]) -> dict[TopicPartition, T]:
    try:
        return ask()
    except ApiError:
        return {}


def find_lagging(
    committed: CommittedOffsets,
    ends: Mapping[TopicPartition, int],
    assigned: Iterable[TopicPartition],
) -> list[TopicPartition]:
    return [each for each in assigned if ends.get(each, 0) > (offset_in(committed, each) or 0)]


def find_read(
    cluster: Cluster,
    committed: CommittedOffsets,
    ends: Mapping[TopicPartition, int],
    partitions: Iterable[TopicPartition],
) -> set[TopicPartition]:
    """Return the partitions that the group has read, although its committed offset is before the end.

    Only transaction markers and records of aborted transactions are left. Many consumers commit the offset after the
    last record, and not that after its marker. Only partitions with a small lag are read.
    """
    starts: dict[TopicPartition, Start] = {
        each: FromOffset(committed[each].offset)
        for each in partitions
        if each in committed and ends[each] - committed[each].offset <= MARKERS_MAX
    }
    try:
        consumer = Consumer(cluster, starts, fetch_wait_ms=100, is_committed_only=True)
        deadline = Deadline(COORDINATOR_TIMEOUT_S)
        while consumer.positions and not consumer.at_end and not deadline.passed:
            for record in consumer.poll(0.2):
                consumer.positions.pop(TopicPartition(record.topic, record.partition), None)
    except ApiError:
        return set()
    return {each for each, position in consumer.positions.items() if position >= ends[each]}


def due_offsets(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ends: Mapping[TopicPartition, int],
    stalled_after_s: float,
) -> dict[TopicPartition, int]:
    """Return the offsets of the first records that are younger than `stalled_after_s`, or else the ends."""
    timestamp = now_ms() - int(stalled_after_s * 1000)
    found = list_offsets(cluster, dict.fromkeys(partitions, timestamp))
    return {each: at.offset if at.offset >= 0 else ends[each] for each, at in found.items()}


def offset_in(offsets: CommittedOffsets, partition: TopicPartition) -> int | None:
    found = offsets.get(partition)
    return None if found is None else found.offset


# ---- __consumer_offsets ---------------------------------------------------------------------------------------


def read_stored_group(
    cluster: Cluster, partition: TopicPartition | None, group_id: str
) -> StoredGroup:
    """Read the last records of the group's partition. Records that cannot be decoded are skipped."""
    stored = StoredGroup({})
    if partition is None:
        return stored
    try:
        consumer = Consumer(
            cluster, {partition: FromEnd(OFFSET_RECORDS_MAX)}, reset=Beginning(), fetch_wait_ms=100
        )
        for record in consumer.records(stop_at_end=True):
            if record.key is not None and record.value is not None:
                with suppress(RemoteWireError):
                    stored = add_record(stored, group_id, record.key, record.value)
    except ApiError:
        return stored
    return stored


def add_record(stored: StoredGroup, group_id: str, key: bytes, value: bytes) -> StoredGroup:
    match read_key(key):
        case OffsetCommitKey(found, topic, number) if found == group_id:
            stored.commit_ms[TopicPartition(topic, number)] = read_offset(value).commit_timestamp
        case GroupMetadataKey(found) if found == group_id:
            return stored._replace(metadata=read_group(value))
    return stored
