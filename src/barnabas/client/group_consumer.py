"""A consumer in a group: the members share the partitions of their topics, and the group remembers how far it has read.

    with GroupConsumer(cluster, "billing", ["orders"]) as consumer:
        while True:
            records = consumer.poll(1.0)
            ...                             # do what is to be done with them
            consumer.processed()            # from here on they may be committed

Laws. Only what was declared processed is committed: now and then, before partitions are given up, and on closing; so a
record is done at least once. Where the group has no offset yet, the place it begins at is committed too, or what is
written while nobody reads would be skipped. The member lives by `poll`, which also sends its heartbeats: who does not
come back within the session timeout has left, and others take over. Closing tells the group at once.

With `cooperative-sticky` as its only assignor a member reads on through a rebalance and gives up only what others get.
With any other it gives up everything first, as the members of other clients do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Self

from barnabas.client.blocking import Deadline, pause
from barnabas.client.cluster import PAUSE_S_MIN, Cluster
from barnabas.client.consumer import (
    NEW_PARTITIONS_S,
    Beginning,
    ConsumedRecord,
    Consumer,
    End,
    FromOffset,
    Start,
    resolve,
)
from barnabas.client.group_assignors import COOPERATIVE_STICKY, RANGE
from barnabas.client.group_coordinator import CoordinatorLink, ask_coordinator
from barnabas.client.group_member import Member, Standing
from barnabas.client.group_offsets import commit_request, committed_in, fetch_request, refused_in
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
HEARD_S = 0.05
COMMIT_S = 1.0
CLOSE_TIMEOUT_S = 2.0
ASSIGNORS = (RANGE, COOPERATIVE_STICKY)

MOVED_ON = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""The partitions may be another's by now, who will read again what was not committed."""

Told = Callable[[list[TopicPartition]], None]


def ignore(_: list[TopicPartition]) -> None:
    pass


class GroupConsumer:
    """`start` is where to begin in a partition the group has no offset for, `reset` where to go on when its offset is
    gone. `on_assigned` and `on_revoked` are told what was added and what is about to be given up; `on_lost` what
    another member may read already."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Iterable[str],
        *,
        start: Start | None = None,
        reset: Start | None = None,
        assignors: Sequence[str] = ASSIGNORS,
        commit_s: float | None = COMMIT_S,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
        heartbeat_s: float = HEARTBEAT_S,
        on_assigned: Told = ignore,
        on_revoked: Told = ignore,
        on_lost: Told = ignore,
    ) -> None:
        self.cluster = cluster
        self.member = Member(
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
        # Over connections of its own: a fetch that waits for records would hold up what is asked behind it, and with
        # that a rebalance for which others wait.
        self.reading = cluster.afresh(timeout_s=cluster.timeout_s)
        self.reader = Consumer(self.reading, {}, reset=Beginning() if reset is None else reset)
        self.to_commit: dict[TopicPartition, int] = {}
        self.given: list[TopicPartition] | None = None
        """Assigned, and not yet taken up."""
        self.counts: dict[str, int] = {}
        """What this member, as the leader, has shared out."""
        self.first_counts: dict[str, int] = {}
        """How many partitions its topics had when it began."""
        self.link = CoordinatorLink(cluster, group_id)
        self.is_joining = False
        self.next_heartbeat = Deadline(0)
        self.next_commit = Deadline(commit_s or 0)
        self.next_count = Deadline(NEW_PARTITIONS_S)
        self.trouble: Deadline | None = None
        self.next_try = Deadline(0)
        self.backoff = cluster.new_backoff()
        self.is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def assigned(self) -> list[TopicPartition]:
        return sorted(self.reader.positions)

    @property
    def is_settled(self) -> bool:
        """It is in the group and reads what it was given."""
        return self.member.standing is Standing.IN and self.given is None

    @property
    def at_end(self) -> bool:
        """Everything there is in this member's partitions has been handed out."""
        return self.is_settled and self.reader.at_end

    # ---- reading --------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> list[ConsumedRecord]:
        """What has arrived; empty if nothing came in time. ApiError when trouble lasts."""
        deadline = Deadline(timeout_s)
        while True:
            self.attend_or_note_trouble()
            if self.reader.positions:
                found = self.reader.poll(min(deadline.left_s(), self.undisturbed_s()))
                if found or deadline.passed:
                    return found
            elif deadline.passed:
                return []
            else:
                self.wait_for_the_coordinator(min(deadline.left_s(), self.heartbeat_s))

    def undisturbed_s(self) -> float:
        """How long it may wait for records. While the coordinator is asked, not for long: it may call for a rebalance,
        and then all the others wait for this member."""
        if self.link.asked is not None:
            return HEARD_S
        due = self.next_heartbeat if self.next_try.passed else self.next_try
        return max(due.left_s(), PAUSE_S_MIN)

    def processed(self, records: Iterable[ConsumedRecord] | None = None) -> None:
        """These records are done; None: all that `poll` has handed out."""
        if records is None:
            self.to_commit |= self.reader.positions
            return
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self.to_commit[partition] = record.offset + 1

    def wait_for_the_coordinator(self, seconds: float) -> None:
        if self.link.asked is not None:
            self.link.wait(seconds)
        else:
            pause(min(seconds, max(self.next_try.left_s(), PAUSE_S_MIN)))

    # ---- membership -----------------------------------------------------------------------------------------------

    def attend_or_note_trouble(self) -> None:
        if not self.next_try.passed:
            return
        try:
            self.attend()
        except ApiError as error:
            self.trouble = self.trouble or Deadline(self.cluster.timeout_s)
            if not error.code.retriable or self.trouble.passed:
                raise
            self.hang_up()
            self.next_try = Deadline(self.backoff.next_s())
        else:
            self.trouble = None
            self.backoff.reset()

    def hang_up(self) -> None:
        """The coordinator is gone, or is another one by now. A member that was on its way in begins anew."""
        self.link.hang_up()
        self.is_joining = False
        if self.member.standing is Standing.JOINED:
            self.member.rejoin()

    def attend(self) -> None:
        """Hear what the coordinator answered, and ask it what is due."""
        if self.link.asked is not None:
            answer = self.link.answer()
            if answer is None:
                return
            self.hear(answer)
        if self.given is not None:
            self.take_up(self.given)
        match self.member.standing:
            case Standing.OUT:
                self.prepare_to_join()
                owned = self.reader.positions if self.is_cooperative else ()
                self.ask(self.member.join(owned), JoinGroupResponse)
            case Standing.JOINED:
                if self.member.is_leader:
                    self.counts = self.partition_counts(self.member.topics_of_all)
                self.ask(self.member.sync(self.counts), SyncGroupResponse)
            case Standing.IN:
                self.stay()

    def stay(self) -> None:
        if self.commit_s is not None and self.next_commit.passed:
            self.commit_what_is_processed()
        if self.member.is_leader and self.next_count.passed:
            self.next_count = Deadline(NEW_PARTITIONS_S)
            if self.partition_counts(self.counts) != self.counts:
                self.member.rejoin()
        if self.next_heartbeat.passed:
            self.next_heartbeat = Deadline(self.heartbeat_s)
            self.ask(self.member.heartbeat(), HeartbeatResponse)

    def ask(self, request: Message, response: type[Message]) -> None:
        patience_s = self.cluster.timeout_s
        self.is_joining = isinstance(request, JoinGroupRequest)
        if self.is_joining:
            # Answered when the slowest member has come, or its time is over.
            patience_s += self.member.rebalance_timeout_ms / 1000
        self.link.ask(request, response, patience_s=patience_s)

    def hear(self, answer: Message) -> None:
        self.is_joining = False
        match answer:
            case JoinGroupResponse():
                self.member.on_join(answer)
            case SyncGroupResponse():
                given = self.member.on_sync(answer)
                if self.member.standing is Standing.IN:
                    self.given = given
                    self.next_heartbeat = Deadline(self.heartbeat_s)
            case HeartbeatResponse():
                self.member.on_heartbeat(answer)
            case _:
                raise AssertionError(answer)
        if self.member.is_forgotten:
            self.lose_all()

    # ---- partitions come and go -----------------------------------------------------------------------------------

    def take_up(self, given: list[TopicPartition]) -> None:
        """Everything that can fail comes first: then it is tried again as if it had never begun."""
        before = self.reader.positions
        added = [partition for partition in given if partition not in before]
        revoked = [partition for partition in before if partition not in given]
        committed = self.committed(added)
        fresh = [partition for partition in added if partition not in committed]
        begun = self.beginnings(fresh)
        self.give_up(revoked)
        kept = {partition: before[partition] for partition in before if partition in given}
        self.reader.assign({**kept, **committed, **begun})
        if self.commit_s is not None:
            self.to_commit |= begun
        self.given = None
        self.on_assigned(added)
        if revoked:
            # Others wait for these, and are given them in a rebalance that somebody has to begin.
            self.member.rejoin()

    def beginnings(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found = resolve(self.cluster, {each: self.start_in(each) for each in partitions})
        if not isinstance(self.start, FromOffset):
            return found
        # One offset may suit one partition and not another: it is moved into each one's range.
        first = earliest_offsets(self.cluster, partitions)
        end = latest_offsets(self.cluster, partitions)
        return {each: min(max(at, first[each]), end[each]) for each, at in found.items()}

    def start_in(self, partition: TopicPartition) -> Start:
        """A partition that the topic did not have when this member began is new as a whole, and read as a whole."""
        count = self.first_counts.get(partition.topic)
        if count is None:
            count = len(self.cluster.topic(partition.topic).partitions)
            self.first_counts[partition.topic] = count
        return self.start if partition.partition < count else Beginning()

    def prepare_to_join(self) -> None:
        if not self.is_cooperative:
            self.give_up(list(self.reader.positions))

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        self.on_revoked(sorted(partitions))
        self.commit_what_is_processed()
        self.let_go(partitions)

    def lose_all(self) -> None:
        lost = self.assigned
        self.given = None
        self.let_go(lost)
        if lost:
            self.on_lost(lost)

    def let_go(self, partitions: Collection[TopicPartition]) -> None:
        rest = {each: at for each, at in self.reader.positions.items() if each not in partitions}
        self.reader.assign(rest)
        for partition in partitions:
            self.to_commit.pop(partition, None)

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Topics that do not exist have none."""
        names = sorted(topics)
        view = self.cluster.refresh(names)
        return {
            name: len(view.topics[name].partitions) if name in view.topics else 0 for name in names
        }

    # ---- offsets --------------------------------------------------------------------------------------------------

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Of those that have an offset."""
        if not partitions:
            return {}
        request, at_most = fetch_request(self.member.group_id, partitions, require_stable=True)
        response = self.link.exchange(request, OffsetFetchResponse, at_most=at_most)
        found = committed_in(response, self.member.group_id)
        return {partition: offset.offset for partition, offset in found.items()}

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """These, or all that was declared processed, now. ApiError if the group did not take them."""
        wanted = dict(self.to_commit if offsets is None else offsets)
        if not wanted:
            return
        if self.is_joining:
            why = f"group {self.member.group_id} rebalances; commit when it is done"
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, why)
        response = self.link.exchange(self.commit_request(wanted), OffsetCommitResponse)
        for error in refused_in(response).values():
            raise error
        for partition, offset in wanted.items():
            if self.to_commit.get(partition) == offset:
                del self.to_commit[partition]

    def commit_request(self, offsets: Mapping[TopicPartition, int]) -> OffsetCommitRequest:
        return commit_request(
            self.member.group_id,
            offsets,
            generation=self.member.generation,
            member_id=self.member.member_id,
        )

    def commit_what_is_processed(self) -> None:
        """What is not taken now is taken the next time, or is read again by whoever has the partition then."""
        self.next_commit = Deadline(self.commit_s or 0)
        if self.commit_s is None or not self.to_commit:
            return
        try:
            self.commit()
        except ApiError as error:
            if error.code in MOVED_ON:
                return
            if not error.code.retriable:
                raise

    # ---- the end --------------------------------------------------------------------------------------------------

    def close(self, reason: str = "the consumer was closed") -> None:
        """Commit and leave, within moments. An interruption may have struck in the middle of an answer, so everything
        goes over new connections."""
        if self.is_closed:
            return
        self.is_closed = True
        if self.reader.positions:
            self.on_revoked(self.assigned)
        self.link.hang_up()
        self.reading.close()
        if self.member.member_id:
            with self.cluster.afresh(timeout_s=CLOSE_TIMEOUT_S) as cluster:
                self.say_goodbye(cluster, reason)

    def say_goodbye(self, cluster: Cluster, reason: str) -> None:
        """As far as the group can be reached: it will miss this member in any case."""
        if self.to_commit and self.commit_s is not None:
            with suppress(ApiError):
                ask_coordinator(
                    cluster,
                    self.member.group_id,
                    self.commit_request(self.to_commit),
                    OffsetCommitResponse,
                    codes=lambda answer: [error.code for error in refused_in(answer).values()],
                )
        with suppress(ApiError):
            ask_coordinator(
                cluster,
                self.member.group_id,
                self.member.leave(reason),
                LeaveGroupResponse,
                codes=lambda answer: [answer.error_code],
            )
