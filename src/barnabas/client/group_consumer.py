"""A member of a consumer group. The members share the partitions of their topics and commit their offsets.

    with GroupConsumer(cluster, "billing", ["orders"]) as consumer:
        while True:
            records = consumer.poll(1.0)
            ...                             # process them
            consumer.processed()            # from now on they may be committed

Delivery is at least once: only offsets of processed records are committed. Commits happen every `commit_s` seconds,
before partitions are revoked, and on close. The start position in a partition without a committed offset is committed
too. Otherwise records that arrive while no member runs would be skipped.

`poll` also sends the heartbeats. A member that does not call it within the session timeout is removed from the group.
`close` leaves the group at once.

With `cooperative-sticky` as its only assignor, a member keeps reading during a rebalance and revokes only the
partitions that other members get. Otherwise it revokes all its partitions before it joins a rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Self, TypeVar

from barnabas.client.blocking import Deadline, pause
from barnabas.client.cluster import BACKOFF_S_MIN, Cluster
from barnabas.client.consumer import (
    PARTITION_CHECK_S,
    Beginning,
    ConsumedRecord,
    Consumer,
    End,
    FromOffset,
    Start,
    resolve_starts,
)
from barnabas.client.group_assignors import COOPERATIVE_STICKY, RANGE
from barnabas.client.group_coordinator import CoordinatorLink, ask_coordinator
from barnabas.client.group_member import GroupMembership, MemberState
from barnabas.client.group_offsets import (
    SINGLE_GROUP_VERSION,
    commit_codes,
    offset_commit_request,
    offset_fetch_request,
    parse_committed_offsets,
    raise_commit_error,
)
from barnabas.client.offsets import earliest_offsets, latest_offsets
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.codec import Message
from barnabas.wire.messages.heartbeat import HeartbeatResponse
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupResponse
from barnabas.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.wire.messages.offset_fetch import OffsetFetchResponse
from barnabas.wire.messages.sync_group import SyncGroupResponse

SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
HEARTBEAT_S = 3.0
COORDINATOR_POLL_S = 0.05
COMMIT_S = 1.0
CLOSE_TIMEOUT_S = 2.0
DEFAULT_ASSIGNORS = (RANGE, COOPERATIVE_STICKY)

REBALANCE_ERRORS = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""Errors of a commit during a rebalance. Another member may own the partitions already; it rereads their records."""

T = TypeVar("T")

PartitionsCallback = Callable[[list[TopicPartition]], None]


def ignore_partitions(_: list[TopicPartition]) -> None:
    pass


class GroupConsumer:
    """Consumer that is a member of a group. `start` is the position in a partition without a committed offset
    (default: End), `reset` the position after OFFSET_OUT_OF_RANGE (default: Beginning). `commit_s` is the commit
    interval in seconds; None disables automatic commits. `is_committed_only` selects the isolation level
    read_committed.

    `on_assigned` is called with the added partitions, `on_revoked` with partitions before they are revoked, and
    `on_lost` with partitions that another member may own already.
    """

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Iterable[str],
        *,
        start: Start | None = None,
        reset: Start | None = None,
        assignors: Sequence[str] = DEFAULT_ASSIGNORS,
        commit_s: float | None = COMMIT_S,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
        heartbeat_s: float = HEARTBEAT_S,
        is_committed_only: bool = False,
        on_assigned: PartitionsCallback = ignore_partitions,
        on_revoked: PartitionsCallback = ignore_partitions,
        on_lost: PartitionsCallback = ignore_partitions,
    ) -> None:
        self.cluster = cluster
        self.member = GroupMembership(
            group_id,
            topics,
            assignors=assignors,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )
        self.start = End() if start is None else start
        self.is_cooperative = tuple(assignors) == (COOPERATIVE_STICKY,)
        self.commit_s = commit_s
        self.heartbeat_s = heartbeat_s
        self.on_assigned, self.on_revoked, self.on_lost = on_assigned, on_revoked, on_lost
        # Fetches use separate connections: a fetch that waits for records would delay the requests after it, and so
        # the rebalance of the whole group.
        self.fetch_cluster = cluster.with_new_connections(timeout_s=cluster.timeout_s)
        self.consumer = Consumer(
            self.fetch_cluster,
            {},
            reset=Beginning() if reset is None else reset,
            is_committed_only=is_committed_only,
        )
        self.to_commit: dict[TopicPartition, int] = {}
        self.new_assignment: list[TopicPartition] | None = None
        """The assignment from the last SyncGroup, until it is applied."""
        self.assigned_counts: dict[str, int] = {}
        """Partition counts on which this member, as leader, based the last assignment."""
        self.initial_counts: dict[str, int] = {}
        """Partition counts of the topics when this member first saw them."""
        self.link = CoordinatorLink(cluster, group_id)
        self.is_joining = False
        self.next_heartbeat = Deadline(0)
        self.next_commit = Deadline(commit_s or 0)
        self.next_partition_check = Deadline(PARTITION_CHECK_S)
        self.retry_deadline: Deadline | None = None
        self.next_attempt = Deadline(0)
        self.backoff = cluster.new_backoff()
        self.is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def assigned(self) -> list[TopicPartition]:
        return sorted(self.consumer.positions)

    @property
    def is_settled(self) -> bool:
        """Whether the member has joined the group and applied its assignment."""
        return self.member.state is MemberState.STABLE and self.new_assignment is None

    @property
    def at_end(self) -> bool:
        """Whether `poll` has returned all records of this member's partitions."""
        return self.is_settled and self.consumer.at_end

    # ---- reading --------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> list[ConsumedRecord]:
        """Return new records; empty after the timeout. Raises ApiError if retries fail for the cluster's timeout."""
        deadline = Deadline(timeout_s)
        while True:
            self.poll_coordinator_with_retries()
            if self.consumer.positions:
                found = self.consumer.poll(min(deadline.left_s(), self.fetch_wait_s()))
                if found or deadline.passed:
                    return found
            elif deadline.passed:
                return []
            else:
                self.wait_for_coordinator(min(deadline.left_s(), self.heartbeat_s))

    def fetch_wait_s(self) -> float:
        """Maximum time to wait for records.

        It is short while a coordinator request is in flight: the response may announce a rebalance, for which the other
        members wait.
        """
        if self.link.in_flight is not None:
            return COORDINATOR_POLL_S
        due = self.next_heartbeat if self.next_attempt.passed else self.next_attempt
        return max(due.left_s(), BACKOFF_S_MIN)

    def processed(self, records: Iterable[ConsumedRecord] | None = None) -> None:
        """Mark records as processed, so that their offsets may be committed. None means all records from `poll`."""
        if records is None:
            self.to_commit |= self.consumer.positions
            return
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self.to_commit[partition] = record.offset + 1

    def wait_for_coordinator(self, seconds: float) -> None:
        if self.link.in_flight is not None:
            self.link.wait(seconds)
        else:
            pause(min(seconds, max(self.next_attempt.left_s(), BACKOFF_S_MIN)))

    # ---- membership -----------------------------------------------------------------------------------------------

    def poll_coordinator_with_retries(self) -> None:
        if not self.next_attempt.passed:
            return
        try:
            self.poll_coordinator()
        except ApiError as error:
            self.retry_deadline = self.retry_deadline or Deadline(self.cluster.timeout_s)
            if not error.code.retriable or self.retry_deadline.passed:
                raise
            self.disconnect()
            self.next_attempt = Deadline(self.backoff.next_s())
        else:
            self.retry_deadline = None
            self.backoff.reset()

    def disconnect(self) -> None:
        """Close the connection to the coordinator. A member that waits for its assignment must join again."""
        self.link.disconnect()
        self.is_joining = False
        if self.member.state is MemberState.JOINED:
            self.member.rejoin()

    def poll_coordinator(self) -> None:
        """Handle a response of the coordinator, and send the next request if it is due."""
        if self.link.in_flight is not None:
            answer = self.link.poll_response()
            if answer is None:
                return
            self.handle_response(answer)
        if self.new_assignment is not None:
            self.apply_assignment(self.new_assignment)
        match self.member.state:
            case MemberState.UNJOINED:
                if not self.is_cooperative:
                    self.revoke(list(self.consumer.positions))
                self.send_to_coordinator(
                    self.member.join(self.consumer.positions), JoinGroupResponse
                )
            case MemberState.JOINED:
                if self.member.is_leader:
                    self.assigned_counts = self.partition_counts(self.member.group_topics)
                self.send_to_coordinator(self.member.sync(self.assigned_counts), SyncGroupResponse)
            case MemberState.STABLE:
                self.maintain_membership()

    def maintain_membership(self) -> None:
        """Commit, look for new partitions, and send a heartbeat, each if it is due."""
        if self.commit_s is not None and self.next_commit.passed:
            self.commit_processed()
        if self.member.is_leader and self.next_partition_check.passed:
            self.next_partition_check = Deadline(PARTITION_CHECK_S)
            if self.partition_counts(self.assigned_counts) != self.assigned_counts:
                self.member.rejoin()
        if self.next_heartbeat.passed:
            self.next_heartbeat = Deadline(self.heartbeat_s)
            self.send_to_coordinator(self.member.heartbeat(), HeartbeatResponse)

    def send_to_coordinator(self, request: Message, response: type[Message]) -> None:
        response_timeout_s = self.cluster.timeout_s
        self.is_joining = isinstance(request, JoinGroupRequest)
        if self.is_joining:
            # The coordinator responds when all members have joined, or after the rebalance timeout.
            response_timeout_s += self.member.rebalance_timeout_ms / 1000
        self.link.send(request, response, response_timeout_s=response_timeout_s)

    def handle_response(self, answer: Message) -> None:
        self.is_joining = False
        match answer:
            case JoinGroupResponse():
                self.member.on_join(answer)
            case SyncGroupResponse():
                new_assignment = self.member.on_sync(answer)
                if self.member.state is MemberState.STABLE:
                    self.new_assignment = new_assignment
                    self.next_heartbeat = Deadline(self.heartbeat_s)
            case HeartbeatResponse():
                self.member.on_heartbeat(answer)
            case _:
                raise AssertionError(answer)
        if self.member.has_lost_partitions:
            self.lose_partitions()

    # ---- assignment -----------------------------------------------------------------------------------------------

    def apply_assignment(self, new_assignment: list[TopicPartition]) -> None:
        """Revoke and add partitions. Requests that can fail come first, so that a retry starts from the same state."""
        old_positions = self.consumer.positions
        added = [partition for partition in new_assignment if partition not in old_positions]
        revoked = [partition for partition in old_positions if partition not in new_assignment]
        committed = self.fetch_committed(added)
        starts = self.start_offsets([each for each in added if each not in committed])
        self.revoke(revoked)
        kept = {each: offset for each, offset in old_positions.items() if each in new_assignment}
        self.consumer.assign({**kept, **committed, **starts})
        if self.commit_s is not None:
            self.to_commit |= starts
        self.new_assignment = None
        self.on_assigned(added)
        if revoked:
            # Only another rebalance can assign the revoked partitions to other members.
            self.member.rejoin()

    def start_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found = resolve_starts(
            self.cluster,
            {each: self.start_position(each) for each in partitions},
            committed=self.consumer.is_committed_only,
        )
        if not isinstance(self.start, FromOffset):
            return found
        # The same offset may be out of range in some partitions.
        first = earliest_offsets(self.cluster, partitions)
        end = latest_offsets(self.cluster, partitions)
        return {each: min(max(at, first[each]), end[each]) for each, at in found.items()}

    def start_position(self, partition: TopicPartition) -> Start:
        """Return `start`, or Beginning for a partition that was added after this member first saw the topic."""
        count = self.initial_counts.get(partition.topic)
        if count is None:
            count = len(self.cluster.topic(partition.topic).partitions)
            self.initial_counts[partition.topic] = count
        return self.start if partition.partition < count else Beginning()

    def revoke(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        self.on_revoked(sorted(partitions))
        self.commit_processed()
        self.unassign(partitions)

    def lose_partitions(self) -> None:
        lost = self.assigned
        self.new_assignment = None
        self.unassign(lost)
        if lost:
            self.on_lost(lost)

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        rest = {each: at for each, at in self.consumer.positions.items() if each not in partitions}
        self.consumer.assign(rest)
        for partition in partitions:
            self.to_commit.pop(partition, None)

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Fetch the number of partitions of each topic; 0 if it does not exist."""
        names = sorted(topics)
        view = self.cluster.refresh(names)
        return {
            name: len(view.topics[name].partitions) if name in view.topics else 0 for name in names
        }

    # ---- offsets --------------------------------------------------------------------------------------------------

    def fetch_committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition that has one."""
        if not partitions:
            return {}
        request = offset_fetch_request(self.member.group_id, partitions, require_stable=True)
        response = self.link.exchange(
            request, OffsetFetchResponse, max_version=SINGLE_GROUP_VERSION
        )
        found = parse_committed_offsets(response, self.member.group_id)
        return {partition: offset.offset for partition, offset in found.items()}

    def committed_or_start(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition, or its start position if it has none. Retries."""
        committed = self.retry_coordinator(lambda: self.fetch_committed(partitions))
        missing = [each for each in partitions if each not in committed]
        return {**committed, **self.start_offsets(missing)}

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit these offsets, or those of all processed records, with retries.

        Raises ApiError if the coordinator rejects one.
        """
        wanted = dict(self.to_commit if offsets is None else offsets)
        if not wanted:
            return
        self.retry_coordinator(lambda: self.commit_once(wanted))

    def retry_coordinator(self, ask: Callable[[], T]) -> T:
        """Call `ask` until it succeeds. Raises ApiError as `Cluster.retry` does."""

        def attempt() -> T:
            try:
                return ask()
            except ApiError as error:
                if error.code.retriable:
                    self.disconnect()  # the next attempt looks up the coordinator
                raise

        return self.cluster.retry(attempt, refresh=False)

    def commit_once(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets without retries."""
        if self.is_joining:
            why = f"group {self.member.group_id} is rebalancing; commit after the rebalance"
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, why)
        response = self.link.exchange(self.commit_request(offsets), OffsetCommitResponse)
        raise_commit_error(response)
        self.forget_committed(offsets)

    def forget_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Remove committed offsets from those that are still to be committed."""
        for partition, offset in offsets.items():
            if self.to_commit.get(partition, offset) <= offset:
                self.to_commit.pop(partition, None)  # a later commit of it would go back

    def commit_request(self, offsets: Mapping[TopicPartition, int]) -> OffsetCommitRequest:
        return offset_commit_request(
            self.member.group_id,
            offsets,
            generation=self.member.generation,
            member_id=self.member.member_id,
        )

    def commit_processed(self) -> None:
        """Commit the offsets of processed records, unless `commit_s` is None. Retriable errors and REBALANCE_ERRORS are
        ignored: a later commit covers these offsets, or the next owner of the partition rereads the records."""
        self.next_commit = Deadline(self.commit_s or 0)
        if self.commit_s is None or not self.to_commit:
            return
        try:
            self.commit_once(dict(self.to_commit))
        except ApiError as error:
            if error.code in REBALANCE_ERRORS:
                return
            if not error.code.retriable:
                raise

    # ---- close ----------------------------------------------------------------------------------------------------

    def close(self, reason: str = "the consumer was closed") -> None:
        """Commit and leave the group. Idempotent.

        Uses new connections, because an interrupt may have left a partly read response on the old ones.
        """
        if self.is_closed:
            return
        self.is_closed = True
        if self.consumer.positions:
            self.on_revoked(self.assigned)
        self.link.disconnect()
        self.fetch_cluster.close()
        if self.member.member_id:
            with self.cluster.with_new_connections(timeout_s=CLOSE_TIMEOUT_S) as cluster:
                self.commit_and_leave(cluster, reason)

    def commit_and_leave(self, cluster: Cluster, reason: str) -> None:
        """Commit and leave, ignoring errors. If LeaveGroup fails, the member stays until its session times out."""
        if self.to_commit and self.commit_s is not None:
            with suppress(ApiError):
                ask_coordinator(
                    cluster,
                    self.member.group_id,
                    self.commit_request(self.to_commit),
                    OffsetCommitResponse,
                    codes=commit_codes,
                )
        with suppress(ApiError):
            ask_coordinator(
                cluster,
                self.member.group_id,
                self.member.leave(reason),
                LeaveGroupResponse,
                codes=lambda answer: [answer.error_code],
            )
