"""Which partitions live on this broker: what the controller makes of them, and the background care of their logs.

    LeaderAndIsr ─► become_leader_or_follower ─► Partition.lead      fetcher stopped, log made, epoch recorded
                                              ─► Partition.follow    log made, fetcher toward the leader
    StopReplica  ─► stop_replicas             ─► fetcher stopped; to delete: out of the table, log moved away

Nothing but LeaderAndIsr puts a partition into the table. One that is not in it is known to the metadata cache, and then
somebody else has it, or to nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from msgspec import Struct

from barnabas.config import BrokerConfig, TopicConfig
from barnabas.errors import ApiError, CorruptBatch, ErrorCode, OutOfSpace, StorageError
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.topic_names import what_is_wrong_with
from barnabas.model import (
    NO_EPOCH,
    NO_LEADER,
    ZERO_ID,
    BrokerId,
    LeaderEpoch,
    TopicPartition,
    ZnodeVersion,
)
from barnabas.replication.alter_partition import IsrProposals, RegisteredBroker
from barnabas.replication.fetcher_manager import FetcherManager
from barnabas.replication.fetcher_settings import settings_of
from barnabas.replication.integrity import Integrity
from barnabas.replication.isr import IsrChange
from barnabas.replication.lost_replicas import LostReplicas
from barnabas.replication.partition import LeaderContext, Partition
from barnabas.replication.quota import ReplicationQuota, quota_of
from barnabas.storage.checkpoints import is_damaged_copy
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager
from barnabas.storage.paths import parent
from barnabas.tasks import Tasks, Turns
from barnabas.wire.messages.control_plane import EPOCH_DURING_DELETE
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrTopicState,
)
from barnabas.wire.messages.stop_replica import StopReplicaPartitionState
from barnabas.world.ports import Clock, Disk, Network

logger = logging.getLogger("barnabas.replicas")

EPOCHS_SAVED_AT_ONCE = 100
EPOCHS_SAVED_AFTER_SECONDS = 1.0
EPOCHS_WAIT_FOR_QUIET_MAX = 10
JUDGED_PER_TURN = 1000

ConfigOf = Callable[[str], TopicConfig]
Errors = dict[TopicPartition, ErrorCode]


class Fetchers(Protocol):
    """Who copies from the leaders; replication/fetcher.py."""

    def add(self, partitions: Iterable[Partition]) -> None: ...

    def remove(self, partitions: Iterable[TopicPartition]) -> None: ...

    def stop_idle(self) -> None: ...

    async def stop(self) -> None: ...


class Change(NamedTuple):
    """One partition of a LeaderAndIsr that is to be carried out."""

    tp: TopicPartition
    topic_id: UUID
    state: LeaderAndIsrPartitionState


class NoFetchers(Struct):
    """Of a broker that follows nobody."""

    def add(self, partitions: Iterable[Partition]) -> None:
        """Nothing is copied."""

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing was."""

    def stop_idle(self) -> None:
        """There are none."""

    async def stop(self) -> None:
        """Nothing runs."""


class ReplicaManager:
    """The partitions of this broker by (topic, index)."""

    def __init__(
        self,
        broker_id: BrokerId,
        logs: LogManager,
        disk: Disk,
        clock: Clock,
        *,
        network: Network | None = None,
        metadata: MetadataCache | None = None,
        control: RegisteredBroker | None = None,
        config: BrokerConfig | None = None,
    ) -> None:
        """Without a network it is alone: nothing is copied, and nobody is asked."""
        self.broker_id = broker_id
        self.logs = logs
        self.disk = disk
        self.clock = clock
        self.metadata = metadata if metadata is not None else MetadataCache("")
        self.config = config if config is not None else BrokerConfig()
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.names: dict[UUID, str] = {}
        """Of the topics in the table; a leader is asked for them by id before UpdateMetadata has come."""
        self.offline: dict[tuple[str, int], None] = {}
        """Partitions that could not even be opened: their directory is broken."""
        self.lost = LostReplicas(broker_id, self.metadata, logs)
        self.tasks = Tasks()
        self.integrity = Integrity(self, network, self.tasks)
        self.fetchers: Fetchers = NoFetchers()
        self.proposals: IsrProposals | None = None
        self.context = LeaderContext(
            now_ms=loop_ms,
            lag_max_ms=self.config.replica_lag_time_max_ms,
            is_alive=self.metadata.is_alive,
            is_recognised=lambda: self.is_recognised,
            propose=self.propose,
        )
        self.leader_quota = self.quota(self.config.leader_replication_throttled_rate)
        self.follower_quota = self.quota(self.config.follower_replication_throttled_rate)
        if network is not None:
            assert control is not None
            self.fetchers = FetcherManager(self, network, control, settings_of(self.config))
            self.proposals = IsrProposals(
                broker_id, network, self.metadata, control, self.config.inter_broker_listener
            )
        self.is_recognised = True
        """False from the end of a registry session until a controller has told us what we lead in the next one."""
        self.is_leaving = False
        """What we have handed over is not copied back: whoever leads it now would ask to take us back into the ISR, and
        acknowledge nothing without us until it was told that we are about to leave."""
        self.unsaved: dict[Partition, None] = {}
        """Leaders whose new epoch is not in its file yet."""
        self.has_unsaved = asyncio.Event()
        self.lately_led = (0.0, 0)
        """Since when, and how many partitions began to be led here."""
        self.on_leadership: dict[str, Callable[[Partition], None]] = {}
        """By topic, who is told when one of its partitions begins or ceases to be led here."""
        self.on_broken: Callable[[], None] | None = None
        """Called when a log directory has broken."""
        logs.on_offline = self.take_offline

    def quota(self, bytes_per_second: int) -> ReplicationQuota | None:
        return quota_of(
            bytes_per_second,
            loop_ms,
            windows=self.config.replication_quota_window_num,
            window_s=self.config.replication_quota_window_size_seconds,
        )

    def start(self) -> None:
        if self.proposals is not None:
            self.tasks.start("alter-partition", self.proposals.run())
        self.tasks.start("isr", self.watch_isrs())
        self.tasks.start("epochs", self.save_epochs())
        rate = self.config.barnabas_scrub_bytes_per_second
        self.tasks.start("scrub", self.integrity.scrub(rate))
        if self.lost.topics:
            self.tasks.start("lost", self.lost.ask_for(self.tell_of_broken_disk))

    async def stop(self) -> None:
        """Copy, propose and flush nothing more. Who opened the logs closes them, and flushes the rest."""
        await self.fetchers.stop()
        await self.tasks.stop()

    def find(self, topic: str, index: int) -> Partition:
        partition = self.partitions.get((topic, index))
        if partition is None:
            raise self.missing(topic, index)
        return partition

    def missing(self, topic: str, index: int) -> ApiError:
        """Why a partition is not in the table."""
        if (topic, index) in self.offline or (topic, index) in self.lost.topics:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory is offline")
        if self.metadata.knows(topic, index):
            return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def has_all_it_should(self) -> bool:
        """Whether every partition that the metadata places here has been handed to us."""
        return all(
            (topic.name, index) in self.partitions
            or (topic.name, index) in self.offline
            or (topic.name, index) in self.lost.topics
            for topic in self.metadata.topics.values()
            for index, state in topic.partitions.items()
            if self.broker_id in state.replicas
        )

    # ---- LeaderAndIsr

    def topics_without_log(self, topics: Iterable[LeaderAndIsrTopicState]) -> set[str]:
        """Return those of these topics of which this broker has no replica yet.

        A partition that is added later gets the settings that the topic's other partitions here use.
        """
        return {
            topic.topic_name
            for topic in topics
            if not self.has_replica_of(topic.topic_id)
            and any(
                (topic.topic_name, state.partition_index) not in self.partitions
                for state in topic.partition_states
            )
        }

    def has_replica_of(self, topic_id: UUID) -> bool:
        return topic_id != ZERO_ID and topic_id in self.names

    async def become_leader_or_follower(
        self, topics: Iterable[LeaderAndIsrTopicState], config_of: ConfigOf
    ) -> Errors:
        """Carry out what is newer than what we know; what became of each partition. One that fails fails alone."""
        errors: Errors = {}
        to_lead: list[Change] = []
        to_follow: list[Change] = []
        configs: dict[str, TopicConfig] = {}
        turns = Turns(JUDGED_PER_TURN)
        for topic in topics:
            configs[topic.topic_name] = config_of(topic.topic_name)
            for state in topic.partition_states:
                change = Change(
                    TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state
                )
                code, is_to_be_done = self.judge(change)
                errors[change.tp] = code
                if is_to_be_done:
                    (to_lead if state.leader == self.broker_id else to_follow).append(change)
                await turns.leave()
        self.fetchers.remove(change.tp for change in to_lead)
        await self.carry_out(to_lead, configs, self.make_leader, errors)
        if self.are_few(len(to_lead)):
            await self.save_those_unsaved()
        followed: list[Partition] = []

        def make_follower(change: Change, config: TopicConfig) -> None:
            partition = self.make_follower(change, config)
            if partition is not None:
                followed.append(partition)

        await self.carry_out(to_follow, configs, make_follower, errors)
        self.fetchers.remove(TopicPartition(each.topic, each.index) for each in followed)
        if not self.is_leaving:
            self.fetchers.add(each for each in followed if not each.is_offline)
        self.fetchers.stop_idle()
        self.is_recognised = True
        if to_lead or to_follow:
            logger.info("leading=%d following=%d", len(to_lead), len(to_follow))
        return errors

    def judge(self, change: Change) -> tuple[ErrorCode, bool]:
        """The answer for this partition so far, and whether there is anything to be done."""
        tp, topic_id, state = change
        if what_is_wrong_with(tp.topic) or tp.partition < 0:
            # It would become the name of a directory.
            logger.error("not a partition name=%r", str(tp))
            return ErrorCode.INVALID_TOPIC_EXCEPTION, False
        partition = self.partitions.get(tp)
        epoch = NO_EPOCH
        if tp in self.offline or (partition is not None and partition.is_offline):
            return ErrorCode.KAFKA_STORAGE_ERROR, False
        if tp in self.lost.topics and self.lost.must_refuse(tp, topic_id, state.leader):
            return ErrorCode.KAFKA_STORAGE_ERROR, False
        if partition is not None:
            epoch = partition.leader_epoch
            if topic_id not in (ZERO_ID, partition.topic_id) and partition.topic_id != ZERO_ID:
                logger.error("other topic id partition=%s id=%s", tp, partition.topic_id)
                return ErrorCode.INCONSISTENT_TOPIC_ID, False
        if state.leader_epoch > epoch:
            if self.broker_id in state.replicas:
                return ErrorCode.NONE, True
            logger.warning("not ours partition=%s replicas=%s", tp, list(state.replicas))
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False
        if state.leader_epoch == epoch and partition is not None:
            if partition.topic_id == ZERO_ID != topic_id:
                partition.topic_id = topic_id
                partition.log.assign_topic_id(topic_id)
                return ErrorCode.NONE, False
            if topic_id == ZERO_ID != partition.topic_id and state.leader != self.broker_id:
                return ErrorCode.NONE, False
        logger.debug("stale partition=%s epoch=%d own=%d", tp, state.leader_epoch, epoch)
        return ErrorCode.STALE_CONTROLLER_EPOCH, False

    async def carry_out(
        self,
        changes: list[Change],
        configs: Mapping[str, TopicConfig],
        work: Callable[[Change, TopicConfig], None],
        errors: Errors,
    ) -> None:
        turns = Turns()
        for change in changes:
            await turns.leave()
            try:
                work(change, configs[change.tp.topic])
            except StorageError as error:
                logger.error("cannot open partition=%s error=%s", change.tp, error)
                errors[change.tp] = ErrorCode.KAFKA_STORAGE_ERROR
                if change.tp not in self.partitions and not isinstance(error, OutOfSpace):
                    self.offline[change.tp] = None
            except Exception:
                logger.exception("cannot change partition=%s", change.tp)
                errors[change.tp] = ErrorCode.KAFKA_STORAGE_ERROR

    def make_leader(self, change: Change, config: TopicConfig) -> None:
        tp, _, state = change
        partition = self.partition_of(change, config)
        partition.lead(
            leader_epoch=LeaderEpoch(state.leader_epoch),
            replicas=self.metadata.share(state.replicas),
            isr=self.metadata.share(state.isr),
            partition_epoch=ZnodeVersion(state.partition_epoch),
        )
        self.partitions[tp] = partition
        if partition.log.epochs.unsaved:
            self.unsaved[partition] = None
            self.has_unsaved.set()
        logger.debug(
            "leading partition=%s epoch=%d start=%d isr=%s",
            tp,
            state.leader_epoch,
            partition.epoch_start_offset,
            state.isr,
        )
        self.tell_of_leadership(partition)

    def make_follower(self, change: Change, config: TopicConfig) -> Partition | None:
        """The partition, if a fetcher is to be started for it."""
        tp, _, state = change
        partition = self.partition_of(change, config)
        self.partitions[tp] = partition
        if not self.metadata.is_alive(state.leader):
            # The log is there all the same, so that its high watermark stays in the checkpoint. The epoch is not taken
            # over: the controller may say the same again when the leader is known.
            logger.debug("no leader to follow partition=%s leader=%d", tp, state.leader)
            partition.cease(NO_LEADER)
            self.tell_of_leadership(partition)
            self.fetchers.remove((tp,))
            return None
        is_new = partition.follow(
            BrokerId(state.leader),
            leader_epoch=LeaderEpoch(state.leader_epoch),
            replicas=self.metadata.share(state.replicas),
            partition_epoch=ZnodeVersion(state.partition_epoch),
        )
        self.tell_of_leadership(partition)
        return partition if is_new else None

    def tell_of_leadership(self, partition: Partition) -> None:
        if partition.topic in self.on_leadership:
            self.on_leadership[partition.topic](partition)

    def partition_of(self, change: Change, config: TopicConfig) -> Partition:
        tp, topic_id, state = change
        partition = self.partitions.get(tp)
        if partition is None:
            if self.logs.offline and not state.is_new and self.logs.get(tp) is None:
                # What there is of it may be in the broken directory: to begin anew would lose it.
                raise next(iter(self.logs.offline.values()))
            log = self.log_of(tp, topic_id, config)
            partition = Partition(
                tp.topic, tp.partition, topic_id, self.broker_id, log, self.context
            )
            self.names[topic_id] = tp.topic
        elif partition.topic_id == ZERO_ID != topic_id:
            partition.topic_id = topic_id
            partition.log.assign_topic_id(topic_id)
        return partition

    def log_of(self, tp: TopicPartition, topic_id: UUID, config: TopicConfig) -> Log:
        """The log of this very topic. One of a former topic of that name is never served; it is kept for somebody to
        look at, as when the power went before its deletion was on the disk."""
        log = self.logs.get(tp)
        if log is not None and log.topic_id is not None and is_damaged_copy(log.topic_id, topic_id):
            logger.warning(
                "partition.metadata is damaged, rewriting it partition=%s found=%s topic_id=%s",
                tp,
                log.topic_id,
                topic_id,
            )
            log.assign_topic_id(topic_id)
        if log is not None and log.topic_id not in (None, topic_id) and topic_id != ZERO_ID:
            logger.warning("setting aside partition=%s of former topic id=%s", tp, log.topic_id)
            self.logs.set_aside(tp)
            log = None
        if log is None:
            return self.logs.create_log(tp, topic_id, config, self.clock.now_ms())
        log.use_config(config)
        if log.topic_id is None and topic_id != ZERO_ID:
            log.assign_topic_id(topic_id)
        return log

    async def save_epochs(self) -> None:
        """Write the epochs of new leaders to their files, behind those who wait to hear who leads: thousands of files
        when a broker has died."""
        while True:
            await self.has_unsaved.wait()
            for _ in range(EPOCHS_WAIT_FOR_QUIET_MAX):
                before = self.lately_led
                await asyncio.sleep(EPOCHS_SAVED_AFTER_SECONDS)
                if self.lately_led == before:
                    break
            await self.save_those_unsaved()

    def are_few(self, led: int) -> bool:
        """Whether those who became leaders in this second, and those before whose files are still to be written, are so
        few that nobody waits long for them. A controller may tell of thousands in many requests, and for seconds."""
        now = asyncio.get_running_loop().time()
        since, count = self.lately_led
        if now - since > EPOCHS_SAVED_AFTER_SECONDS:
            since, count = now, 0
        if led:
            self.lately_led = (since, count + led)
        return max(count + led, len(self.unsaved)) <= EPOCHS_SAVED_AT_ONCE

    async def save_those_unsaved(self) -> None:
        turns = Turns()
        while self.unsaved:
            partition = next(iter(self.unsaved))
            del self.unsaved[partition]
            if not partition.is_offline and self.holds(partition):
                try:
                    partition.log.save_epochs()
                except StorageError as error:
                    self.fail(partition, error)
            await turns.leave()
        self.has_unsaved.clear()

    def holds(self, partition: Partition) -> bool:
        return self.partitions.get((partition.topic, partition.index)) is partition

    # ---- StopReplica

    async def stop_replicas(
        self, states: Mapping[TopicPartition, StopReplicaPartitionState]
    ) -> Errors:
        errors: Errors = {}
        stopped: list[tuple[TopicPartition, bool]] = []
        for tp, state in states.items():
            partition = self.partitions.get(tp)
            if tp in self.offline or (partition is not None and partition.is_offline):
                errors[tp] = ErrorCode.KAFKA_STORAGE_ERROR
            elif partition is not None and is_fenced(state.leader_epoch, partition.leader_epoch):
                logger.warning("fenced partition=%s epoch=%d", tp, state.leader_epoch)
                errors[tp] = ErrorCode.FENCED_LEADER_EPOCH
            else:
                errors[tp] = ErrorCode.NONE
                stopped.append((tp, state.delete_partition))
        self.fetchers.remove(tp for tp, _ in stopped)
        directories: dict[str, None] = {}
        turns = Turns()
        for tp, delete in stopped:
            await turns.leave()
            if (log := self.logs.get(tp)) is not None and delete:
                directories[parent(log.directory)] = None
            try:
                self.stop_one(tp, delete=delete)
            except StorageError as error:
                logger.error("cannot delete partition=%s error=%s", tp, error)
                errors[tp] = ErrorCode.KAFKA_STORAGE_ERROR
        self.forget_names(tp.topic for tp, delete in stopped if delete)
        if directories:
            # What the checkpoints say of a deleted log must not be taken for the next one of that name.
            self.logs.checkpoint(self.logs.recovery_points(directories))
            self.logs.checkpoint(self.logs.high_watermarks(directories))
        self.fetchers.stop_idle()
        return errors

    def stop_one(self, tp: TopicPartition, *, delete: bool) -> None:
        """Whoever waits for it is told. Not to `delete`: it stays in the table, for the next LeaderAndIsr."""
        if delete:
            self.lost.forget(tp)
        partition = self.partitions.get(tp)
        if partition is not None:
            if delete:
                del self.partitions[tp]
                partition.cease(NO_LEADER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                self.tell_of_leadership(partition)
            else:
                partition.break_promises(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if delete and self.logs.get(tp) is not None:
            self.logs.delete_log(tp, self.clock.now_ms())

    def forget_names(self, deleted: Iterable[str]) -> None:
        gone = set(deleted)
        if gone:
            gone -= {topic for topic, _ in self.partitions}
            self.names = {known: name for known, name in self.names.items() if name not in gone}

    # ---- in-sync replicas

    def propose(self, partition: Partition, change: IsrChange) -> None:
        if self.proposals is not None:
            self.proposals.submit(partition, change)

    async def watch_isrs(self) -> None:
        period = max(self.config.replica_lag_time_max_ms / 2000, 0.001)
        while True:
            await asyncio.sleep(period)
            self.look_after_isrs()

    def look_after_isrs(self) -> None:
        for partition in list(self.partitions.values()):
            partition.look_after_isr()

    # ---- durability

    def flush(self, partition: Partition) -> asyncio.Future[None]:
        """Durable up to the present end when the future resolves. Calls that come while a sync is under way share
        the next one."""
        if partition.flush_next is None:
            partition.flush_next = asyncio.get_running_loop().create_future()
            if not partition.flush_running:
                partition.flush_running = True
                self.tasks.start("flush", self.run_flushes(partition))
        return partition.flush_next

    async def run_flushes(self, partition: Partition) -> None:
        try:
            while (future := partition.flush_next) is not None:
                partition.flush_next = None
                try:
                    flush = partition.log.begin_flush()
                    await self.disk.sync(flush.files, flush.directories)
                except StorageError as error:
                    # A topic deleted meanwhile has its files closed: that is no fault of the disk.
                    if self.partitions.get((partition.topic, partition.index)) is partition:
                        # After a failed fsync nobody knows what is on the disk, whatever the reason.
                        self.fail(partition, StorageError(error.path, error.why))
                    future.set_exception(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
                    future.exception()  # nobody may be waiting for it (acks=0)
                    continue
                except asyncio.CancelledError:
                    future.cancel()
                    raise
                partition.log.end_flush(flush)
                partition.flushed(flush.up_to_offset)
                if not future.done():
                    future.set_result(None)
        finally:
            partition.flush_running = False

    def fail(self, partition: Partition, error: StorageError) -> None:
        """The disk broke: take every partition of that log directory offline. One that is full took nothing and may
        have room again, so that is waited for unless somebody else can lead; one broken batch is no broken disk."""
        if isinstance(error, CorruptBatch):
            self.integrity.found(partition, error)
        elif not isinstance(error, OutOfSpace) or len(partition.isr) > 1:
            self.logs.mark_offline(parent(partition.log.directory), error)

    def take_offline(self, gone: list[TopicPartition], error: StorageError) -> None:
        self.fetchers.remove(gone)
        for tp in gone:
            partition = self.partitions.get(tp)
            if partition is not None:
                partition.is_offline = True
                partition.break_promises(ErrorCode.KAFKA_STORAGE_ERROR)
                self.tell_of_leadership(partition)
        self.tell_of_broken_disk()

    def tell_of_broken_disk(self) -> None:
        if self.on_broken is not None:
            self.on_broken()


def loop_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


def is_fenced(epoch: int, own: int) -> bool:
    """A topic that is being deleted, and a request too old to have epochs, are obeyed whatever we know."""
    return epoch < own and epoch not in (EPOCH_DURING_DELETE, NO_EPOCH)
