"""GroupConsumer: a member of a consumer group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypedDict

from barnabas.api.connection import Connection, existing_topic
from barnabas.api.partition_reader import PartitionReader
from barnabas.api.settings import (
    parse_assignors,
    parse_auto_offset_reset,
    require_positive,
    require_text_list,
)
from barnabas.client import group_consumer as client_group_consumer
from barnabas.client.consumer import ConsumedRecord
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.group_consumer import (
    DEFAULT_ASSIGNORS,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    ignore_partitions,
)
from barnabas.client.transactions import GroupSender
from barnabas.errors import ConfigError
from barnabas.model import TopicPartition
from barnabas.security.client_sources import SecuritySource

AUTO_COMMIT_INTERVAL_MS = 5_000
HEARTBEAT_INTERVAL_MS = 3_000

PartitionsListener = Callable[[list[TopicPartition]], None]


class GroupConsumerSettings(TypedDict, total=False):
    """Settings of a GroupConsumer, for `Client.group_consumer`."""

    auto_offset_reset: Literal["earliest", "latest"]
    enable_auto_commit: bool
    auto_commit_interval_ms: float
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: float
    partition_assignment_strategy: Iterable[str]
    consumer_timeout_ms: float | None
    isolation_level: Literal["read_uncommitted", "read_committed"]
    on_assigned: PartitionsListener
    on_revoked: PartitionsListener
    on_lost: PartitionsListener


class GroupConsumer(PartitionReader):
    """A member of the group `group_id`. The members share the partitions of their topics.

    A record counts as processed when the caller asks for the next one, with `poll` or in a loop, or closes the
    consumer. If a `with` block raises an exception, the records that it was processing do not count. With
    `enable_auto_commit`, offsets of processed records are committed every `auto_commit_interval_ms`, before a
    rebalance, and on close. Without it, call `commit`. Delivery is at least once; with
    `Producer.send_offsets_to_transaction` instead of commits, it is exactly once.

    There is no background thread: `poll` and loops also send heartbeats. The group removes a member that does not ask
    for records within `session_timeout_ms`.

    Iteration ends if no record arrives for `consumer_timeout_ms`, counted from the time when the member has joined.
    `auto_offset_reset` is the start position in a partition without a committed offset. `on_assigned` is called with
    new partitions, `on_revoked` with partitions before other members get them, and `on_lost` with partitions that
    other members may have already.
    """

    def __init__(
        self,
        bootstrap_servers: Connection | str | Sequence[str],
        group_id: str,
        topics: Iterable[str],
        *,
        auto_offset_reset: Literal["earliest", "latest"] = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: float = AUTO_COMMIT_INTERVAL_MS,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
        heartbeat_interval_ms: float = HEARTBEAT_INTERVAL_MS,
        partition_assignment_strategy: Iterable[str] = DEFAULT_ASSIGNORS,
        consumer_timeout_ms: float | None = None,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        on_assigned: PartitionsListener = ignore_partitions,
        on_revoked: PartitionsListener = ignore_partitions,
        on_lost: PartitionsListener = ignore_partitions,
        security: SecuritySource = None,
    ) -> None:
        start = parse_auto_offset_reset(auto_offset_reset)
        assignors = parse_assignors(partition_assignment_strategy)
        self._topics = require_text_list("topics", topics)
        commit_s = require_positive("auto_commit_interval_ms", auto_commit_interval_ms) / 1000
        heartbeat_s = require_positive("heartbeat_interval_ms", heartbeat_interval_ms) / 1000
        self._on_revoked, self._on_lost = on_revoked, on_lost
        self._returned: list[ConsumedRecord] = []
        """Records that the caller may be processing."""
        super().__init__(
            bootstrap_servers,
            consumer_timeout_ms=consumer_timeout_ms,
            isolation_level=isolation_level,
            security=security,
        )
        self._member = client_group_consumer.GroupConsumer(
            self._connection._cluster,
            group_id,
            self._topics,
            start=start,
            reset=start,
            assignors=assignors,
            commit_s=commit_s if enable_auto_commit else None,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            heartbeat_s=heartbeat_s,
            is_committed_only=self._is_committed_only,
            on_assigned=on_assigned,
            on_revoked=self._handle_revoked,
            on_lost=self._handle_lost,
        )
        try:
            for topic in self._topics:
                existing_topic(self._connection._cluster, topic)
        except BaseException:
            self._close(is_failed=True)
            raise

    @property
    def group_id(self) -> str:
        """The id of the group."""
        return self._member.member.group_id

    def subscription(self) -> list[str]:
        """Return the topics of this member."""
        return list(self._topics)

    def commit(self, offsets: ConsumedRecord | Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the offset after a record, the given offsets, or by default those after all records returned so far.

        A committed offset is the next one to read. Raises ApiError, for example REBALANCE_IN_PROGRESS: another member
        may own the partition now, and will read the records again.
        """
        self._open_cluster()
        if isinstance(offsets, ConsumedRecord):
            offsets = {TopicPartition(offsets.topic, offsets.partition): offsets.offset + 1}
        if offsets is None:
            self._mark_processed()
        self._member.commit(offsets)

    def committed(self, partition: TopicPartition) -> int | None:
        """Return the offset that the group has committed in this partition; None if it has none."""
        # Not with the member's connection, where the request would wait for a JoinGroup in flight.
        admin = GroupAdmin(self._open_cluster())
        found = admin.committed_offsets(self.group_id, [TopicPartition(*partition)])
        return found[partition].offset if partition in found else None

    def seek_to_committed(self) -> None:
        """Continue to read the assigned partitions at their committed offsets, as after an aborted transaction.

        A partition without a committed offset continues at `auto_offset_reset`.
        """
        self._open_cluster()
        assigned = list(self._positions())
        committed = self._member.committed_or_start(assigned)
        self._drop_fetched(assigned)
        self._returned = []
        self._positions().update(committed)
        self._member.to_commit.clear()

    def close(self) -> None:
        """Commit, leave the group, and release the connections. Idempotent."""
        super().close()

    def _uncommitted(self) -> dict[TopicPartition, int]:
        """Return the offsets after all records returned so far that are not committed, for a transaction.

        Raises ConfigError with automatic commits: they would commit offsets of records whose transaction may abort.
        """
        self._open_cluster()
        if self._member.commit_s is not None:
            why = "must be False if the offsets are part of transactions"
            raise ConfigError("enable_auto_commit", why)
        self._mark_processed()
        return dict(self._member.to_commit)

    def _sender(self) -> GroupSender:
        """Return the group and this member, for a commit of offsets in a transaction."""
        member = self._member.member
        return GroupSender(member.group_id, member.generation, member.member_id)

    def _prepare(self) -> None:
        super()._prepare()
        self._mark_processed()
        if self._fetched:  # otherwise a fetch follows, which does this too
            self._member.poll_coordinator_with_retries()

    def _hand_out(self, records: list[ConsumedRecord]) -> None:
        self._returned = records

    def _mark_processed(self) -> None:
        self._member.processed(self._returned)
        self._returned = []

    def _poll_cluster(self, timeout_s: float) -> list[ConsumedRecord]:
        return self._member.poll(timeout_s)

    def _is_settled(self) -> bool:
        return self._member.is_settled

    def _positions(self) -> dict[TopicPartition, int]:
        return self._member.consumer.positions

    def _move(self, offsets: Mapping[TopicPartition, int]) -> None:
        super()._move(offsets)
        self._returned = [each for each in self._returned if each[:2] not in offsets]
        self._member.to_commit |= offsets

    def _handle_revoked(self, partitions: list[TopicPartition]) -> None:
        self._drop_fetched(partitions)
        self._on_revoked(partitions)

    def _handle_lost(self, partitions: list[TopicPartition]) -> None:
        self._drop_fetched(partitions)
        self._on_lost(partitions)

    def _finish_work(self, *, is_failed: bool) -> None:
        if not is_failed:
            self._mark_processed()
        self._member.close()
