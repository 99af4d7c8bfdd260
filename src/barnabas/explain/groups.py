"""Rules for consumer groups: coordinators, rebalances, members, lag, invalid offsets, transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from barnabas.client.group_admin import GroupView, MemberView
from barnabas.client.view import PartitionView
from barnabas.explain.cluster import find_offsets_topic
from barnabas.explain.finding import Cause, Finding, Severity, merge_findings
from barnabas.explain.group_facts import GroupFacts, GroupProgress
from barnabas.explain.topics import explain_one_partition
from barnabas.explain.wording import join_with_and
from barnabas.model import TopicPartition

PREPARING, COMPLETING, EMPTY_STATE = "PreparingRebalance", "CompletingRebalance", "Empty"


def explain_group(facts: GroupFacts) -> list[Finding]:
    if facts.view is None:
        return find_no_coordinator(facts)
    found = [*find_state(facts, facts.view), *find_offsets(facts, facts.view)]
    return merge_findings([*found, *find_idle_members(facts, facts.view)])


def group_finding(
    facts: GroupFacts,
    cause: Cause,
    severity: Severity,
    partitions: Sequence[TopicPartition] = (),
    *,
    brokers: Sequence[int] = (),
    since_ms: int | None = None,
    lag: int | None = None,
    **values: str | int,
) -> Finding:
    return Finding(
        cause=cause,
        severity=severity,
        group=facts.group_id,
        partitions=tuple(partitions),
        brokers=tuple(brokers),
        since_ms=since_ms,
        lag=lag,
        values=values,
    )


# ---- coordinator ----------------------------------------------------------------------------------------------


def find_no_coordinator(facts: GroupFacts) -> list[Finding]:
    """Return why no broker coordinates the group, and why its partition of __consumer_offsets is not available."""
    partition, cluster = facts.offsets_partition, facts.cluster
    if facts.is_loading:
        return [group_finding(facts, Cause.COORDINATOR_LOADING, Severity.WARNING)]
    causes = list(find_offsets_topic(cluster))
    brokers: tuple[int, ...] = ()
    if partition is not None:
        causes = [
            each
            for each in explain_one_partition(cluster, partition)
            if each.severity is Severity.ERROR
        ]
        brokers = tuple({broker: None for each in causes for broker in each.brokers})
        leader = cluster.view.partition(partition).leader
        if cluster.is_led_by_silent_broker(partition):
            cause = Cause.COORDINATOR_SILENT
            return [group_finding(facts, cause, Severity.ERROR, [partition], brokers=[leader])]
    offline = group_finding(
        *(
            facts,
            Cause.COORDINATOR_OFFLINE,
            Severity.ERROR,
            [] if partition is None else [partition],
        ),
        brokers=brokers,
        why=facts.coordinator_error or "",
    )
    return [offline, *causes]


# ---- rebalances and members -----------------------------------------------------------------------------------


def find_state(facts: GroupFacts, view: GroupView) -> Iterator[Finding]:
    if view.state == EMPTY_STATE:
        lag = total_lag(facts)
        severity = Severity.WARNING if lag else Severity.NOTE
        yield group_finding(facts, Cause.GROUP_EMPTY, severity, since_ms=facts.state_ms, lag=lag)
    elif view.state == PREPARING:
        yield find_missing_members(facts, view)
    elif view.state == COMPLETING:
        yield group_finding(
            facts, Cause.GROUP_WAITS_FOR_ASSIGNMENT, Severity.WARNING, members=len(view.members)
        )


def find_missing_members(facts: GroupFacts, view: GroupView) -> Finding:
    """Name the members that may be missing. New members have joined; only earlier ones can still be waited for."""
    earlier = [each for each in view.members if each.member_id in facts.last_members]
    joined = len(view.members) - len(earlier)
    values: dict[str, str | int] = {"joined": joined, "members": len(view.members)}
    if earlier:
        values["waits_for"] = join_with_and([member_name(each) for each in earlier])
        values["waits_count"] = len(earlier)
    if facts.rebalance_timeout_ms is not None:
        values["timeout_ms"] = facts.rebalance_timeout_ms
    found = group_finding(facts, Cause.GROUP_WAITS_FOR_MEMBERS, Severity.WARNING)
    return replace(found, values=values)


def member_name(member: MemberView) -> str:
    return f"{member.instance_id or member.client_id or member.member_id} at {member.host}"


def find_idle_members(facts: GroupFacts, view: GroupView) -> Iterator[Finding]:
    idle = [each for each in view.members if not each.partitions]
    if view.state == "Stable" and view.protocol_type == "consumer" and idle:
        yield group_finding(
            *(facts, Cause.IDLE_MEMBERS, Severity.NOTE),
            idle=len(idle),
            members=len(view.members),
            assigned=sum(len(each.partitions) for each in view.members),
        )


# ---- offsets --------------------------------------------------------------------------------------------------


def find_offsets(facts: GroupFacts, view: GroupView) -> Iterator[Finding]:
    readers = {partition: member for member in view.members for partition in member.partitions}
    topics = facts.cluster.view.topics
    for partition, progress in sorted(facts.progress.items()):
        if partition.topic not in topics:
            yield group_finding(
                facts, Cause.READS_DELETED_TOPIC, Severity.NOTE, [partition], topic=partition.topic
            )
            continue
        invalid = find_invalid_offset(facts, partition, progress)
        if invalid is not None:
            yield invalid
        elif (seen := find_partition(facts, partition)) is not None and seen.is_offline:
            yield find_unreadable_partition(facts, partition)
        elif seen is not None and facts.cluster.is_silent(seen.leader):
            leader = int(seen.leader)
            yield group_finding(
                facts, Cause.READS_FROM_SILENT_BROKER, Severity.ERROR, [partition], brokers=[leader]
            )
        elif progress.is_late and partition in readers:
            waits = find_open_transactions(facts, partition, progress)
            yield from waits or find_lag(facts, partition, progress, readers[partition])


def find_invalid_offset(
    facts: GroupFacts, partition: TopicPartition, progress: GroupProgress
) -> Finding | None:
    committed, start, end = progress.committed, progress.start, progress.end
    if committed is None or start is None or end is None or start <= committed <= end:
        return None
    if committed < start:
        return group_finding(
            *(facts, Cause.OFFSET_BELOW_START, Severity.ERROR, [partition]),
            lag=start - committed,
            committed=committed,
            start=start,
        )
    return group_finding(
        *(facts, Cause.OFFSET_BEYOND_END, Severity.ERROR, [partition]), committed=committed, end=end
    )


def find_partition(facts: GroupFacts, partition: TopicPartition) -> PartitionView | None:
    partitions = facts.cluster.view.topics[partition.topic].partitions
    return next((each for each in partitions if each.partition == partition.partition), None)


def find_unreadable_partition(facts: GroupFacts, partition: TopicPartition) -> Finding:
    causes = [
        each
        for each in explain_one_partition(facts.cluster, partition)
        if each.severity is Severity.ERROR
    ]
    brokers = {broker: None for each in causes for broker in each.brokers}
    return group_finding(
        *(facts, Cause.READS_OFFLINE_PARTITION, Severity.ERROR, [partition]),
        brokers=tuple(brokers),
        since_ms=facts.cluster.history.no_leader_since.get(partition),
    )


def find_open_transactions(
    facts: GroupFacts, partition: TopicPartition, progress: GroupProgress
) -> list[Finding]:
    """Return the transaction that the group may wait for: it has read everything before it."""
    opened = facts.cluster.transactions.get(partition)
    if opened is None or (progress.committed or 0) < opened.start_offset:
        return []
    causes = (Cause.TRANSACTION_OPEN, Cause.TRANSACTION_ENDING, Cause.TRANSACTION_HANGING)
    return [
        each for each in explain_one_partition(facts.cluster, partition) if each.cause in causes
    ]


def find_lag(
    facts: GroupFacts, partition: TopicPartition, progress: GroupProgress, reader: MemberView
) -> Iterator[Finding]:
    """Tell apart members that never commit, that stopped committing, and that are too slow."""
    cause = Cause.LAGGING
    if progress.committed is None and progress.later_committed is None:
        if is_new(facts):
            return
        cause = Cause.NEVER_COMMITTED
    elif progress.later_committed == progress.committed and is_stalled(facts, progress):
        cause = Cause.NOT_COMMITTING
    yield group_finding(
        *(facts, cause, Severity.WARNING, [partition]),
        since_ms=progress.commit_ms if cause is Cause.NOT_COMMITTING else None,
        lag=progress.lag,
        member=member_name(reader),
    )


def is_new(facts: GroupFacts) -> bool:
    """Whether the last rebalance is too recent to expect a first commit."""
    since_ms = facts.state_ms
    return since_ms is not None and facts.cluster.now_ms - since_ms < facts.stalled_after_ms


def is_stalled(facts: GroupFacts, progress: GroupProgress) -> bool:
    """Whether the last commit is too long ago. If its time is unknown, it is older than the records that were read."""
    if progress.commit_ms is None:
        return True
    return facts.cluster.now_ms - progress.commit_ms >= facts.stalled_after_ms


def total_lag(facts: GroupFacts) -> int:
    return sum(each.lag or 0 for each in facts.progress.values() if each.committed is not None)
