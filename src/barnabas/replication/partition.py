"""One partition on this broker, as leader or follower: appends, high watermark, ISR and waiting requests.

    log start ────────── high watermark ────────── log end
              readable by consumers      not committed, may be truncated

All in-sync replicas have the records below the high watermark (isr.py). It never decreases while this broker leads,
since consumers may have read up to it. A follower takes the high watermark of its leader, up to its own log end.

Requests wait in two ways. A *watcher* is a callback that is called once: `watchers` (consumer fetches) when the high
watermark advances, `end_watchers` (follower fetches) when the log grows, `start_watchers` (DeleteRecords) when the log
start offset of a follower changes. A *promise* is a future that resolves when the high watermark reaches an offset
(acks=all).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID

from msgspec import Struct

from barnabas.batch.header import BatchHeader
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_EPOCH, NO_LEADER, BrokerId, LeaderEpoch, ZnodeVersion
from barnabas.replication import isr as in_sync
from barnabas.replication.isr import FollowerSession, FollowerState, IsrChange, IsrChangeOutcome
from barnabas.storage.log import AppendInfo, Log
from barnabas.storage.producers import Verification
from barnabas.wire.messages.control_plane import UNKNOWN_BROKER_EPOCH

logger = logging.getLogger("barnabas.isr")

Watcher = Callable[[], None]

PROMISES_PRUNED_FROM: Final = 1024
"""Number of promises at which completed ones are removed for the first time."""


class LeaderContext(Struct, frozen=True, kw_only=True):
    """Dependencies that all partitions of a broker share."""

    now_ms: Callable[[], float] = lambda: 0.0
    """Loop time. Wall-clock time may jump, and followers would leave the ISR."""
    lag_max_ms: float = 30_000.0
    is_alive: Callable[[BrokerId], bool] = lambda _: True
    is_known_to_controller: Callable[[], bool] = lambda: True
    """Whether a controller has sent LeaderAndIsr since this broker registered. If not, another broker may lead."""
    propose: Callable[[Partition, IsrChange], None] = lambda _, __: None
    """Sends an ISR change to the controller."""


DEFAULT_CONTEXT: Final = LeaderContext()
NO_FOLLOWERS: Final[dict[BrokerId, FollowerState]] = {}
"""Shared by all partitions without followers. Must not be modified."""


class TopicTraffic:
    """Counters of one topic on this broker, shared by its partitions."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "produces",
        "records_in",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.records_in = self.bytes_in = self.bytes_out = 0
        self.produces = self.failed_produces = self.fetches = self.failed_fetches = 0
        self.replication_bytes_in = self.replication_bytes_out = 0


class Partition:
    __slots__ = (
        "broker_id",
        "context",
        "end_watchers",
        "epoch_start_offset",
        "flush_next",
        "flush_running",
        "followers",
        "index",
        "is_offline",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "partition_epoch",
        "pending",
        "promises",
        "replicas",
        "start_watchers",
        "topic",
        "topic_id",
        "traffic",
        "waits_for_flush",
        "watchers",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: UUID,
        broker_id: BrokerId,
        log: Log,
        context: LeaderContext = DEFAULT_CONTEXT,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.broker_id = broker_id
        self.log = log
        self.context = context
        self.traffic = traffic or TopicTraffic()
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.epoch_start_offset = -1
        """Log end offset when this broker became leader; -1 on a follower."""
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr: tuple[BrokerId, ...] = ()
        """ISR that the controller committed; empty on a follower."""
        self.pending: IsrChange | None = None
        """Proposed change without a response."""
        self.followers = NO_FOLLOWERS
        self.partition_epoch = ZnodeVersion(0)
        self.is_offline = False
        self.waits_for_flush = False
        """The high watermark waits for a flush that flush.messages requires."""
        self.flush_running = False
        self.flush_next: asyncio.Future[None] | None = None
        self.watchers: dict[Watcher, None] = {}
        self.end_watchers: dict[Watcher, None] = {}
        self.start_watchers: dict[Watcher, None] = {}
        self.promises: list[tuple[int, asyncio.Future[None]]] = []

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    # ---- leadership

    def lead(
        self,
        *,
        leader_epoch: LeaderEpoch,
        replicas: tuple[BrokerId, ...],
        isr: tuple[BrokerId, ...],
        partition_epoch: ZnodeVersion,
    ) -> bool:
        """Become leader, or stay leader in a new epoch. Return False if the partition epoch is stale.

        The start offset of the epoch is recorded before the first append, since followers may request it.
        """
        if partition_epoch < self.partition_epoch:
            return False
        # If an epoch was skipped, another broker may have led in it, and followers may have truncated reported records.
        was_leading = self.leader == self.broker_id and leader_epoch == self.leader_epoch + 1
        is_new_epoch = leader_epoch > self.leader_epoch
        self.set_assignment(replicas, leader_epoch, partition_epoch)
        self.leader = self.broker_id
        self.isr = isr
        if replicas == (self.broker_id,):
            self.followers = NO_FOLLOWERS
        else:
            previous = self.followers
            self.followers = {
                broker: previous.get(broker) or FollowerState()
                for broker in replicas
                if broker != self.broker_id
            }
        if is_new_epoch:
            end = self.log.log_end_offset
            self.log.begin_epoch(leader_epoch)
            self.epoch_start_offset = end
            for broker, follower in self.followers.items():
                follower.begin_epoch(
                    now_ms=self.context.now_ms(),
                    leader_end=end,
                    is_in_sync=broker in isr,
                    was_leading=was_leading,
                )
        self.advance_high_watermark()
        return True

    def follow(
        self,
        leader: BrokerId,
        *,
        leader_epoch: LeaderEpoch,
        replicas: tuple[BrokerId, ...],
        partition_epoch: ZnodeVersion,
    ) -> bool:
        """Become a follower. Return True if the leader epoch is new, so that a new fetch must start."""
        if partition_epoch < self.partition_epoch:
            return False
        is_new_epoch = leader_epoch > self.leader_epoch
        self.set_assignment(replicas, leader_epoch, partition_epoch)
        self.stop_leading(leader)
        return is_new_epoch

    def stop_leading(
        self, leader: BrokerId = NO_LEADER, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER
    ) -> None:
        """Clear the leader state, and fail all waiting requests with `code`."""
        self.leader = leader
        self.isr = ()
        self.followers = NO_FOLLOWERS
        self.epoch_start_offset = -1
        self.waits_for_flush = False
        self.pending = None
        self.fail_promises(code)

    def set_assignment(
        self,
        replicas: tuple[BrokerId, ...],
        leader_epoch: LeaderEpoch,
        partition_epoch: ZnodeVersion,
    ) -> None:
        self.replicas = replicas
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.pending = None  # the assignment is newer than any response to the change

    def require_leader(self, current_leader_epoch: int) -> None:
        """Raise ApiError unless this broker leads the partition, in `current_leader_epoch` if that is not -1."""
        self.require_replica(current_leader_epoch)
        if self.leader != self.broker_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def require_replica(self, current_leader_epoch: int) -> None:
        """Raise ApiError unless the replica can be read, in `current_leader_epoch` if that is not -1."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise ApiError(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"leader epoch {current_leader_epoch} is older than {self.leader_epoch}",
                )
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"leader epoch {current_leader_epoch} is newer than {self.leader_epoch}",
            )
        if self.is_offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: the log directory is offline")
        if (
            self.followers
            and self.leader == self.broker_id
            and not self.context.is_known_to_controller()
        ):
            # The log end offset of a former leader may be stale. A consumer would take it for a truncation.
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch up to `epoch` (LeaderEpochs.end_offset_for)."""
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)

    # ---- ISR

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        return self.isr if self.pending is None else self.pending.maximal_isr

    def has_enough_replicas(self) -> bool:
        """Return whether the ISR has min.insync.replicas, or all replicas if there are fewer.

        Replicas that a reassignment adds count too.
        """
        in_sync = len(self.isr)
        return in_sync >= self.log.config.min_insync_replicas or (in_sync >= len(self.replicas) > 0)

    def record_fetch(
        self,
        replica: BrokerId,
        offset: int,
        log_start_offset: int,
        *,
        leader_end: int,
        session: FollowerSession | None = None,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> None:
        """Record a fetch of `offset` by a follower. This may advance the high watermark and change the ISR."""
        follower = self.followers[replica]
        before = follower.log_end_offset
        previous_session = follower.session
        has_new_start = follower.log_start_offset != log_start_offset
        follower.record_fetch(
            offset,
            log_start_offset,
            now_ms=self.context.now_ms(),
            leader_end=leader_end,
            session=session,
            broker_epoch=broker_epoch,
        )
        if previous_session is not None and previous_session is not session:
            # Another client may have fetched with this replica id. When the follower continues its own session, its
            # offset must be used again, even if its request does not include this partition.
            previous_session.recheck(self.topic, self.topic_id, self.index)
        if self.pending is None:
            if replica not in self.isr:
                self.propose_expansion(replica, follower)
            elif offset < self.log.watermark:
                self.propose_removal(replica)
        if offset != before:
            self.advance_high_watermark()
        if has_new_start and self.start_watchers:
            self.notify_start()

    def propose_expansion(self, replica: BrokerId, follower: FollowerState) -> None:
        can_join = in_sync.can_join_isr(
            follower.log_end_offset,
            high_watermark=self.log.watermark,
            epoch_start=self.epoch_start_offset,
        )
        if can_join and self.context.is_alive(replica):
            self.propose((*self.isr, replica), "expanding")

    def propose_removal(self, replica: BrokerId) -> None:
        """Propose removing an ISR member that fetches below the high watermark.

        It lost its disk, or the end of its log in a power loss. As leader it would lose committed records.
        """
        remaining = tuple(broker for broker in self.isr if broker != replica)
        self.propose(remaining, "records lost by a follower, shrinking")

    def check_isr(self) -> None:
        """Propose removing lagging followers from the ISR, and advance the high watermark.

        Called periodically. The high watermark may advance when a follower outside the ISR is no longer caught up.
        """
        if self.leader != self.broker_id or self.is_offline or not self.followers:
            return
        if self.pending is None and len(self.isr) > 1:
            out_of_sync = in_sync.out_of_sync_replicas(
                self.broker_id,
                self.log.log_end_offset,
                self.isr,
                self.followers,
                now_ms=self.context.now_ms(),
                lag_max_ms=self.context.lag_max_ms,
            )
            if out_of_sync:
                remaining = tuple(broker for broker in self.isr if broker not in out_of_sync)
                self.propose(remaining, "shrinking")
        self.advance_high_watermark()

    def propose(self, isr: tuple[BrokerId, ...], action: str) -> None:
        logger.info(
            "%s isr partition=%s from=%s to=%s high_watermark=%d log_end=%d followers=%s",
            action,
            self,
            list(self.isr),
            list(isr),
            self.log.watermark,
            self.log.log_end_offset,
            {broker: follower.log_end_offset for broker, follower in self.followers.items()},
        )
        maximal_isr = tuple(dict.fromkeys((*self.isr, *isr)))
        change = IsrChange(isr, self.leader_epoch, self.partition_epoch, maximal_isr)
        self.pending = change
        self.context.propose(self, change)

    def complete_isr_change(
        self,
        change: IsrChange,
        code: int,
        *,
        isr: tuple[BrokerId, ...] = (),
        leader_epoch: int = NO_EPOCH,
        partition_epoch: int = -1,
    ) -> IsrChangeOutcome:
        """Apply the response of the controller. It is ignored if a LeaderAndIsr made the change obsolete."""
        if self.pending is not change:
            return IsrChangeOutcome.STAY
        outcome = in_sync.isr_change_outcome(code)
        if outcome is IsrChangeOutcome.COMMIT:
            if leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
                return IsrChangeOutcome.STAY
            self.isr = isr
            self.partition_epoch = ZnodeVersion(partition_epoch)
            logger.info(
                "isr changed partition=%s isr=%s partition_epoch=%d",
                *(self, list(isr), partition_epoch),
            )
        else:
            logger.info(
                "isr change rejected partition=%s code=%d outcome=%s", self, code, outcome.value
            )
        if outcome in (IsrChangeOutcome.COMMIT, IsrChangeOutcome.REVERT):
            self.pending = None
            self.advance_high_watermark()
        if outcome is IsrChangeOutcome.COMMIT:
            self.propose_next_expansion()
        return outcome

    def propose_next_expansion(self) -> None:
        """Propose adding a follower that caught up while another change was pending.

        A follower that no longer fetches is not added, even if it has reached the high watermark: with too few in-sync
        replicas the high watermark does not advance.
        """
        for broker, follower in self.followers.items():
            if self.pending is None and broker not in self.isr and follower.session is not None:
                is_caught_up = follower.is_caught_up(
                    self.log.log_end_offset,
                    now_ms=self.context.now_ms(),
                    lag_max_ms=self.context.lag_max_ms,
                )
                if is_caught_up:
                    self.propose_expansion(broker, follower)

    def follower_broker_epoch(self, broker: BrokerId) -> int:
        """Return the broker epoch of the follower's last fetch, or UNKNOWN_BROKER_EPOCH if it has not fetched yet."""
        follower = self.followers.get(broker)
        return UNKNOWN_BROKER_EPOCH if follower is None else follower.broker_epoch

    def low_watermark(self) -> int:
        """Return the smallest log start offset of all live replicas."""
        starts = (
            follower.log_start_offset
            for broker, follower in self.followers.items()
            if self.context.is_alive(broker)
        )
        return min((self.log.log_start_offset, *starts))

    # ---- appending

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        *,
        acks: int,
        now_ms: int,
        verification: Verification | None = None,
        checks_sequence: bool = True,
    ) -> AppendInfo:
        """Append a batch that `log.validator` has accepted, or a transaction marker (Log.append_as_leader). The caller
        must flush the partition if it `waits_for_flush`. Raises ApiError or StorageError."""
        traffic = self.traffic
        traffic.produces += 1
        if self.is_offline or self.leader != self.broker_id:
            self.require_leader(-1)
        if acks == -1 and not self.has_enough_replicas():
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} in sync, min.insync.replicas={self.log.config.min_insync_replicas}",
            )
        log = self.log
        try:
            info = log.append_as_leader(
                batch,
                header,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                verification=verification,
                checks_sequence=checks_sequence,
            )
        except ApiError as error:
            has_sequence_gap = error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if has_sequence_gap and not self.context.is_known_to_controller():
                # Another leader may have the missing batch, and some producers do not recover from this error.
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from error
            raise
        if not info.is_duplicate:
            traffic.records_in += header.count
            traffic.bytes_in += len(batch)
            if log.log_end_offset - log.flush_state.recovery_point >= log.flush_messages:
                self.waits_for_flush = True
            if self.followers:
                self.record_append(info.first_offset)
            self.advance_high_watermark()
        return info

    def record_append(self, previous_end: int) -> None:
        for follower in self.followers.values():
            follower.record_leader_append(previous_end)
        if self.end_watchers:
            self.notify_end()

    def announce_to_followers(self) -> None:
        """Send the new high watermark and log start offset with the next response to each follower."""
        for follower in self.followers.values():
            if follower.session is not None:
                follower.session.include_in_response(self.topic, self.topic_id, self.index)

    def advance_high_watermark(self) -> None:
        """Advance the high watermark to the end of the replicated records, if there are enough in-sync replicas."""
        log = self.log
        end = log.log_end_offset
        if not self.waits_for_flush and log.watermark < end and self.has_enough_replicas():
            if self.followers:
                end = self.replicated_end()
                if end <= log.watermark:
                    return
                self.announce_to_followers()
            log.watermark = end
            if self.promises:
                self.resolve_promises()
            if self.watchers:
                self.notify()

    def replicated_end(self) -> int:
        context = self.context
        return in_sync.replicated_end(
            self.log.log_end_offset,
            self.followers,
            self.maximal_isr,
            now_ms=context.now_ms(),
            lag_max_ms=context.lag_max_ms,
            is_alive=context.is_alive,
        )

    def finish_flush(self, up_to: int) -> None:
        """Advance the high watermark after a flush: records below `up_to` are durable."""
        if self.leader != self.broker_id:
            return
        self.waits_for_flush = self.log.log_end_offset > up_to and self.flush_next is not None
        if self.waits_for_flush:
            log = self.log
            if self.followers:
                up_to = min(up_to, self.replicated_end())
                self.announce_to_followers()
            if log.high_watermark < up_to and self.has_enough_replicas():
                log.high_watermark = up_to
                self.resolve_promises()
                self.notify()
        else:
            self.advance_high_watermark()

    # ---- waiting requests

    def promise(self, end_offset: int) -> asyncio.Future[None]:
        """Return a future that resolves when the high watermark reaches `end_offset`.

        It fails with ApiError if leadership is lost, or if there are too few in-sync replicas by then.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.log.high_watermark >= end_offset:
            future.set_result(None)
        else:
            count = len(self.promises)
            if count >= PROMISES_PRUNED_FROM and not count & (count - 1):
                # At 1,024, 2,048, 4,096 …: remove promises that timed out while the high watermark did not move.
                self.promises = [each for each in self.promises if not each[1].done()]
            self.promises.append((end_offset, future))
        return future

    def resolve_promises(self) -> None:
        reached = self.log.high_watermark
        needed = min(self.log.config.min_insync_replicas, max(len(self.replicas), 1))
        has_enough = len(self.maximal_isr) >= needed
        waiting = []
        for end_offset, future in self.promises:
            if future.done():
                continue
            if end_offset > reached:
                waiting.append((end_offset, future))
            elif has_enough:
                future.set_result(None)
            else:
                future.set_exception(ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        self.promises = waiting

    def fail_promises(self, code: ErrorCode) -> None:
        promises, self.promises = self.promises, []
        for _, future in promises:
            if not future.done():
                future.set_exception(ApiError(code))
        self.notify()
        self.notify_end()
        self.notify_start()

    def notify(self) -> None:
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers:
            watcher()

    def notify_end(self) -> None:
        watchers, self.end_watchers = self.end_watchers, {}
        for watcher in watchers:
            watcher()

    def notify_start(self) -> None:
        watchers, self.start_watchers = self.start_watchers, {}
        for watcher in watchers:
            watcher()
