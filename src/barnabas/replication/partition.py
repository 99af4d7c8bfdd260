"""One partition as its leader sees it: who may append, how far consumers may read, who waits for that.

    log start ────────── high watermark ────────── log end
              readable by consumers      appended, may still be taken back

The high watermark is the offset below which every in-sync replica holds the record (isr.py says who counts). It never
moves back while this broker leads, since a consumer may already have read below it. A follower takes it over from its
leader, as far as its own log goes.

Two kinds of waiting. A *watcher* is told once that something about the partition changed and looks for itself, as
fetches do: those of consumers when the high watermark moves, those of followers when the log grows. A *promise* is a
future that resolves when the high watermark reaches an offset (acks=all).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from msgspec import Struct

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_EPOCH, NO_LEADER, BrokerId, LeaderEpoch, ZnodeVersion
from barnabas.replication import isr as in_sync
from barnabas.replication import topic_codec
from barnabas.replication.isr import Contact, FollowerState, IsrChange, Outcome
from barnabas.storage.acceptance import Validation
from barnabas.storage.log import AppendInfo, Log
from barnabas.wire.messages.control_plane import UNKNOWN_BROKER_EPOCH
from barnabas.wire.records import BatchHeader

logger = logging.getLogger("barnabas.isr")

Watcher = Callable[[], None]

PROMISES_LOOKED_THROUGH = 1024


class LeaderContext(Struct, frozen=True, kw_only=True):
    """What the leaders of one broker share: the time, who is alive, and the way to the controller."""

    now_ms: Callable[[], float] = lambda: 0.0
    """Of the loop's clock: the wall's may jump, and followers would fall out of sync by it."""
    lag_max_ms: float = 30_000.0
    is_alive: Callable[[BrokerId], bool] = lambda _: True
    is_recognised: Callable[[], bool] = lambda: True
    """Whether a controller has spoken to us since we were registered. If not, somebody else may lead by now."""
    propose: Callable[[Partition, IsrChange], None] = lambda _, __: None


ALONE = LeaderContext()
NOBODY: dict[BrokerId, FollowerState] = {}
"""The followers of most partitions of a small cluster: shared, and never written to."""


class Partition:
    """A partition whose log is on this broker."""

    __slots__ = (
        "broker_id",
        "context",
        "end_watchers",
        "epoch_start_offset",
        "flush_next",
        "flush_running",
        "followers",
        "index",
        "is_held",
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
        "watchers",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: UUID,
        broker_id: BrokerId,
        log: Log,
        context: LeaderContext = ALONE,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.broker_id = broker_id
        self.log = log
        self.context = context
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.epoch_start_offset = -1
        """Where our log ended when we began to lead; -1 while we do not."""
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr: tuple[BrokerId, ...] = ()
        """As the controller has it; empty on a follower, which need not know."""
        self.pending: IsrChange | None = None
        self.followers = NOBODY
        self.partition_epoch = ZnodeVersion(0)
        self.is_offline = False
        # The high watermark is held back while a flush that the topic's settings ask for is under way.
        self.is_held = False
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
        """Become leader, or lead on in a new epoch; False if what we know is newer. The epoch's first offset is
        recorded at once, before any write: a follower may ask for it."""
        if partition_epoch < self.partition_epoch:
            return False
        # Where an epoch is left out, somebody else may have led in it without our being told, and followers have cut
        # for its sake what they once said to hold.
        was_leading = self.leader == self.broker_id and leader_epoch == self.leader_epoch + 1
        is_new_epoch = leader_epoch > self.leader_epoch
        self.take_assignment(replicas, leader_epoch, partition_epoch)
        self.leader = self.broker_id
        self.isr = isr
        if replicas == (self.broker_id,):
            self.followers = NOBODY
        else:
            known = self.followers
            self.followers = {
                broker: known.get(broker) or FollowerState()
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
        """Become a follower; False if there is nothing new in it, so that whoever fetches may go on."""
        if partition_epoch < self.partition_epoch:
            return False
        is_new_epoch = leader_epoch > self.leader_epoch
        self.take_assignment(replicas, leader_epoch, partition_epoch)
        self.cease(leader)
        return is_new_epoch

    def cease(
        self, leader: BrokerId = NO_LEADER, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER
    ) -> None:
        """Lead no longer: whoever waits for us has to look elsewhere."""
        self.leader = leader
        self.isr = ()
        self.followers = NOBODY
        self.epoch_start_offset = -1
        self.is_held = False
        self.pending = None
        self.break_promises(code)

    def take_assignment(
        self,
        replicas: tuple[BrokerId, ...],
        leader_epoch: LeaderEpoch,
        partition_epoch: ZnodeVersion,
    ) -> None:
        self.replicas = replicas
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.pending = None  # whatever the controller says to it now, this came later

    def require_leader(self, current_leader_epoch: int) -> None:
        """Refuse who believes in another epoch, then whoever takes us for a leader we are not."""
        self.require_replica(current_leader_epoch)
        if self.leader != self.broker_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def require_replica(self, current_leader_epoch: int) -> None:
        """For who may read of any replica: refuse only who believes in another epoch."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise ApiError(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"epoch {current_leader_epoch} is older than {self.leader_epoch}",
                )
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"epoch {current_leader_epoch} is newer than {self.leader_epoch}",
            )
        if self.is_offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: the log directory is offline")
        if self.followers and self.leader == self.broker_id and not self.context.is_recognised():
            # What a leader of yesterday says of its end sounds to a consumer as if the log had been cut.
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Where an epoch ends in this log, as (epoch, end offset); (-1, -1) if that cannot be said."""
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)

    # ---- who is in sync

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        return self.isr if self.pending is None else self.pending.maximal_isr

    def has_enough_replicas(self) -> bool:
        """Of those in sync; min.insync.replicas cannot ask for more replicas than there are, counting those that a
        reassignment is adding."""
        in_sync = len(self.isr)
        return in_sync >= self.log.config.min_insync_replicas or (in_sync >= len(self.replicas) > 0)

    def fetched_by(
        self,
        replica: BrokerId,
        offset: int,
        log_start_offset: int,
        *,
        leader_end: int,
        contact: Contact | None = None,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> None:
        """A follower asked for `offset`: the high watermark may move, and it may be time for it to join the ISR."""
        follower = self.followers[replica]
        before = follower.log_end_offset
        former = follower.contact
        has_begun_later = follower.log_start_offset != log_start_offset
        follower.fetched(
            offset,
            log_start_offset,
            now_ms=self.context.now_ms(),
            leader_end=leader_end,
            contact=contact,
            broker_epoch=broker_epoch,
        )
        if former is not None and former is not contact:
            # A client may have passed for it. If it goes on with its own conversation, it is believed again: idle, it
            # would not name this partition by itself.
            former.ask_again(self.topic, self.topic_id, self.index)
        if self.pending is None:
            if replica not in self.isr:
                self.consider_expanding(replica, follower)
            elif offset < self.log.watermark:
                self.let_go_of(replica)
        if offset != before:
            self.advance_high_watermark()
        if has_begun_later and self.start_watchers:
            self.notify_start()

    def consider_expanding(self, replica: BrokerId, follower: FollowerState) -> None:
        ready = in_sync.may_join(
            follower.log_end_offset,
            high_watermark=self.log.watermark,
            epoch_start=self.epoch_start_offset,
        )
        if ready and self.context.is_alive(replica):
            change = in_sync.expansion(self.isr, replica, self.leader_epoch, self.partition_epoch)
            self.propose(change, "expanding")

    def let_go_of(self, replica: BrokerId) -> None:
        """It is in sync by name and lacks what all in sync must hold: it has lost its disk, or the end of its log with
        the power. Were it elected, that would be lost everywhere."""
        change = in_sync.shrinking(self.isr, (replica,), self.leader_epoch, self.partition_epoch)
        self.propose(change, "records lost by a follower, shrinking")

    def look_after_isr(self) -> None:
        """Now and then: propose to let go of who fell behind. Where somebody outside the ISR has stopped, the high
        watermark need not wait for them any longer."""
        if self.leader != self.broker_id or self.is_offline or not self.followers:
            return
        if self.pending is None and len(self.isr) > 1:
            leaving = in_sync.out_of_sync(
                self.broker_id,
                self.log.log_end_offset,
                self.isr,
                self.followers,
                now_ms=self.context.now_ms(),
                lag_max_ms=self.context.lag_max_ms,
            )
            if leaving:
                change = in_sync.shrinking(
                    self.isr, leaving, self.leader_epoch, self.partition_epoch
                )
                self.propose(change, "shrinking")
        self.advance_high_watermark()

    def propose(self, change: IsrChange, what: str) -> None:
        logger.info(
            "%s isr partition=%s from=%s to=%s high_watermark=%d log_end=%d followers=%s",
            what,
            self,
            list(self.isr),
            list(change.isr),
            self.log.watermark,
            self.log.log_end_offset,
            {broker: follower.log_end_offset for broker, follower in self.followers.items()},
        )
        self.pending = change
        self.context.propose(self, change)

    def isr_answered(
        self,
        change: IsrChange,
        code: int,
        *,
        isr: tuple[BrokerId, ...] = (),
        leader_epoch: int = NO_EPOCH,
        partition_epoch: int = -1,
    ) -> Outcome:
        """What the controller said to our proposal. An answer that a LeaderAndIsr has overtaken means nothing."""
        if self.pending is not change:
            return Outcome.STAY
        outcome = in_sync.outcome(code)
        if outcome is Outcome.COMMIT:
            if leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
                return Outcome.STAY
            self.isr = isr
            self.partition_epoch = ZnodeVersion(partition_epoch)
            logger.info("isr partition=%s isr=%s epoch=%d", self, list(isr), partition_epoch)
        else:
            logger.info(
                "isr change refused partition=%s code=%d then=%s", self, code, outcome.value
            )
        if outcome in (Outcome.COMMIT, Outcome.REVERT):
            self.pending = None
            self.advance_high_watermark()
        if outcome is Outcome.COMMIT:
            self.consider_others()
        return outcome

    def consider_others(self) -> None:
        """One change at a time: who caught up while it was under way is next. Not who has fallen silent: with too few
        in sync the high watermark stands, and who was let go of has reached it still."""
        for broker, follower in self.followers.items():
            if self.pending is None and broker not in self.isr and follower.contact is not None:
                is_caught_up = follower.is_caught_up(
                    self.log.log_end_offset,
                    now_ms=self.context.now_ms(),
                    lag_max_ms=self.context.lag_max_ms,
                )
                if is_caught_up:
                    self.consider_expanding(broker, follower)

    def epoch_of(self, broker: BrokerId) -> int:
        """The life in which this member of the ISR caught up; unknown for one that has not fetched from us yet."""
        follower = self.followers.get(broker)
        return UNKNOWN_BROKER_EPOCH if follower is None else follower.broker_epoch

    def low_watermark(self) -> int:
        """Where the logs of all living replicas have begun."""
        starts = (
            follower.log_start_offset
            for broker, follower in self.followers.items()
            if self.context.is_alive(broker)
        )
        return min((self.log.log_start_offset, *starts))

    # ---- appending

    def prepare(
        self, batch: memoryview, header: BatchHeader, now_ms: int
    ) -> tuple[memoryview, BatchHeader]:
        """Recompress and validate a batch for `append` with Validation.DONE. Safe to call in a thread."""
        log = self.log
        if not log.keeps_codec:
            batch, header = topic_codec.recompressed(batch, header, log.config)
        log.validator.validate(batch, header, now_ms)
        return batch, header

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        *,
        acks: int,
        now_ms: int,
        validation: Validation = Validation.FULL,
    ) -> AppendInfo:
        """Append one batch of a producer, whose header is valid. While the partition `is_held`, the caller must flush
        it. LargeBatch, with nothing done, if `prepare` has to be called in a thread first."""
        if self.is_offline or self.leader != self.broker_id:
            self.require_leader(-1)
        if acks == -1 and not self.has_enough_replicas():
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} in sync, min.insync.replicas={self.log.config.min_insync_replicas}",
            )
        log = self.log
        if not log.keeps_codec and validation is not Validation.DONE:
            if validation is Validation.IF_SMALL:
                topic_codec.require_small(batch, header, log.config)
            batch, header = topic_codec.recompressed(batch, header, log.config)
        try:
            info = log.append_as_leader(
                batch,
                header,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                validation=validation,
            )
        except ApiError as error:
            is_missing_one = error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if is_missing_one and not self.context.is_recognised():
                # It may stand in the log of another leader, and some producers never recover from being told so.
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from error
            raise
        if not info.duplicate:
            if log.log_end_offset - log.flush_state.recovery_point >= log.flush_messages:
                self.is_held = True
            if self.followers:
                self.tell_followers(info.first_offset)
            self.advance_high_watermark()
        return info

    def tell_followers(self, end_before: int) -> None:
        for follower in self.followers.values():
            follower.leader_moved_on(end_before)
        if self.end_watchers:
            self.notify_end()

    def mention_to_followers(self) -> None:
        """They follow the high watermark, too; it can wait until there is more to say to them."""
        for follower in self.followers.values():
            if follower.contact is not None:
                follower.contact.mention(self.topic, self.topic_id, self.index)

    def advance_high_watermark(self) -> None:
        """Alone, the leader's own end is what everybody holds."""
        log = self.log
        end = log.log_end_offset
        if not self.is_held and log.watermark < end and self.has_enough_replicas():
            if self.followers:
                end = self.replicated_end()
                if end <= log.watermark:
                    return
                self.mention_to_followers()
            log.watermark = end
            if self.promises:
                self.keep_promises()
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

    def flushed(self, up_to: int) -> None:
        """Everything below `up_to` is durable; release what was held for it."""
        if self.leader != self.broker_id:
            return
        self.is_held = self.log.log_end_offset > up_to and self.flush_next is not None
        if self.is_held:
            log = self.log
            if self.followers:
                up_to = min(up_to, self.replicated_end())
                self.mention_to_followers()
            if log.high_watermark < up_to and self.has_enough_replicas():
                log.high_watermark = up_to
                self.keep_promises()
                self.notify()
        else:
            self.advance_high_watermark()

    # ---- waiting

    def promise(self, end_offset: int) -> asyncio.Future[None]:
        """Resolves when the high watermark reaches `end_offset`; fails with ApiError when leadership is lost, or when
        fewer are in sync by then than must be."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.log.high_watermark >= end_offset:
            future.set_result(None)
        else:
            count = len(self.promises)
            if count >= PROMISES_LOOKED_THROUGH and not count & (count - 1):
                # At 1,024, 2,048, 4,096 …: while the high watermark stands, those who waited in vain are left behind.
                self.promises = [each for each in self.promises if not each[1].done()]
            self.promises.append((end_offset, future))
        return future

    def keep_promises(self) -> None:
        reached = self.log.high_watermark
        needed = min(self.log.config.min_insync_replicas, max(len(self.replicas), 1))
        is_enough = len(self.maximal_isr) >= needed
        waiting = []
        for end_offset, future in self.promises:
            if future.done():
                continue
            if end_offset > reached:
                waiting.append((end_offset, future))
            elif is_enough:
                future.set_result(None)
            else:
                future.set_exception(ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        self.promises = waiting

    def break_promises(self, code: ErrorCode) -> None:
        """This partition is no longer ours: nobody waits for it any longer."""
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
