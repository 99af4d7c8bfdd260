"""Partitions of this broker: changes by the controller, ISR checks, flushes and disk failures.

    LeaderAndIsr ─► become_leader_or_follower ─► Partition.lead      stops the fetcher, opens the log, records the epoch
                                              ─► Partition.follow    opens the log, starts a fetcher
    StopReplica  ─► stop_replicas             ─► stops the fetcher; to delete: removes the partition and its log

Only LeaderAndIsr adds a partition. Partitions that only the metadata cache has are on other brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from barnabas.config import BrokerConfig, TopicConfig
from barnabas.errors import ApiError, CorruptBatch, ErrorCode, OutOfSpace, StorageError
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.topic_names import topic_name_error
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
from barnabas.replication.flushes import Flushes
from barnabas.replication.integrity import Integrity
from barnabas.replication.log_dir_moves import LogDirMoves
from barnabas.replication.lost_replicas import LostReplicas
from barnabas.replication.partition import LeaderContext, Partition
from barnabas.replication.quota import create_quota, update_quota
from barnabas.replication.traffic import Traffic
from barnabas.storage.checkpoints import HIGH_WATERMARK, RECOVERY_POINT, is_damaged_copy
from barnabas.storage.files import parent
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager
from barnabas.tasks import Tasks, Turns, in_chunks
from barnabas.wire.messages.control_plane import EPOCH_DURING_DELETE
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrTopicState,
)
from barnabas.wire.messages.stop_replica import StopReplicaPartitionState
from barnabas.world.ports import Clock, Disk, Network

logger = logging.getLogger("barnabas.replicas")

EPOCHS_SAVED_AT_ONCE = 100
"""Up to this number of new leaders, epochs are saved before LeaderAndIsr is answered."""
EPOCHS_SAVED_AFTER_SECONDS = 1.0
EPOCHS_DELAYS_MAX = 10
"""Saving is delayed while more partitions become leader, at most this number of times."""
CHANGES_PER_YIELD = 1000

ConfigOf = Callable[[str], TopicConfig]
Errors = dict[TopicPartition, ErrorCode]


class PartitionChange(NamedTuple):
    """A partition in a LeaderAndIsr request."""

    tp: TopicPartition
    topic_id: UUID
    state: LeaderAndIsrPartitionState


class ReplicaManager:
    def __init__(
        self,
        broker_id: BrokerId,
        logs: LogManager,
        disk: Disk,
        clock: Clock,
        *,
        network: Network,
        metadata: MetadataCache,
        registration: RegisteredBroker,
        config: BrokerConfig,
    ) -> None:
        self.broker_id = broker_id
        self.logs = logs
        self.disk = disk
        self.clock = clock
        self.metadata = metadata
        self.config = config
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.names: dict[UUID, str] = {}
        """Topic names by id. Fetches may name a topic by its id before UpdateMetadata arrives."""
        self.offline: dict[tuple[str, int], None] = {}
        """Partitions whose log could not be opened because of a disk failure."""
        self.traffic = Traffic()
        self.lost = LostReplicas(broker_id, metadata, logs)
        self.tasks = Tasks()
        self.integrity = Integrity(self, network, self.tasks)
        self.moves = LogDirMoves(self, self.tasks)
        self.flushes = Flushes(disk, self.tasks, self.fail_flush)
        self.fetchers = FetcherManager(self, network, registration)
        self.proposals = IsrProposals(
            broker_id, network, metadata, registration, config.inter_broker_listener
        )
        self.is_known_to_controller = True
        """False from the end of a registry session until the first LeaderAndIsr of the next one."""
        self.context = LeaderContext(
            now_ms=loop_ms,
            lag_max_ms=config.replica_lag_time_max_ms,
            is_alive=metadata.is_alive,
            is_known_to_controller=lambda: self.is_known_to_controller,
            propose=self.proposals.submit,
        )
        self.leader_quota = create_quota(config.leader_replication_throttled_rate, config, loop_ms)
        self.follower_quota = create_quota(
            config.follower_replication_throttled_rate, config, loop_ms
        )
        self.move_quota = create_quota(
            config.replica_alter_log_dirs_io_max_bytes_per_second, config, loop_ms
        )
        self.is_in_controlled_shutdown = False
        """During a controlled shutdown no fetcher starts. Otherwise the new leader could add this broker to the ISR
        again, and its acks=all writes would then wait for a broker that stops."""
        self.unsaved: dict[Partition, None] = {}
        """Leaders whose new epoch is not yet in the checkpoint file."""
        self.has_unsaved = asyncio.Event()
        self.recently_led = (0.0, 0)
        """Start of the current second, and the number of partitions that became leader in it."""
        self.on_leadership: dict[str, Callable[[Partition], None]] = {}
        """Callbacks by topic, called when the leadership of one of its partitions changes."""
        self.on_log_dir_failure: Callable[[], None] | None = None
        """Called when a log directory has failed, and to request LeaderAndIsr for lost replicas."""
        logs.on_offline = self.take_offline

    def start(self) -> None:
        self.tasks.start("alter-partition", self.proposals.run())
        self.tasks.start("isr", self.watch_isrs())
        self.tasks.start("epochs", self.save_epochs())
        rate = self.config.barnabas_scrub_bytes_per_second
        self.tasks.start("scrub", self.integrity.scrub(rate))
        if self.lost.topic_ids:
            self.tasks.start("lost", self.lost.request_assignments(self.report_log_dir_failure))

    def reconfigure(self, before: BrokerConfig, config: BrokerConfig) -> None:
        self.config = config
        self.leader_quota = update_quota(
            self.leader_quota, config.leader_replication_throttled_rate, config, loop_ms
        )
        self.follower_quota = update_quota(
            self.follower_quota, config.follower_replication_throttled_rate, config, loop_ms
        )
        self.move_quota = update_quota(
            self.move_quota,
            config.replica_alter_log_dirs_io_max_bytes_per_second,
            config,
            loop_ms,
        )
        self.logs.use_producer_expiration(config.producer_id_expiration_ms)
        if config.num_replica_fetchers != before.num_replica_fetchers:
            self.fetchers.redistribute(self.partitions)

    async def stop(self) -> None:
        """Stop all tasks. The caller flushes and closes the logs."""
        await self.fetchers.stop()
        await self.tasks.stop()

    def find(self, topic: str, index: int) -> Partition:
        """Return the partition. Raises ApiError if it is not on this broker."""
        partition = self.partitions.get((topic, index))
        if partition is None:
            raise self.missing_partition_error(topic, index)
        return partition

    def missing_partition_error(self, topic: str, index: int) -> ApiError:
        if (topic, index) in self.offline or (topic, index) in self.lost.topic_ids:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory is offline")
        if self.metadata.has_partition(topic, index):
            return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def has_all_assigned_partitions(self) -> bool:
        """Return whether LeaderAndIsr was received for all partitions of this broker in the metadata cache."""
        return all(
            (topic.name, index) in self.partitions
            or (topic.name, index) in self.offline
            or (topic.name, index) in self.lost.topic_ids
            for topic in self.metadata.topics.values()
            for index, state in topic.partitions.items()
            if self.broker_id in state.replicas
        )

    # ---- LeaderAndIsr

    def topics_without_log(self, topics: Iterable[LeaderAndIsrTopicState]) -> set[str]:
        """Return the names of topics without a replica on this broker.

        The caller loads their config. Other topics use the config of their existing partitions.
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
        """Apply all changes that are not stale. Return the error code of each partition."""
        errors: Errors = {}
        to_lead: list[PartitionChange] = []
        to_follow: list[PartitionChange] = []
        configs: dict[str, TopicConfig] = {}
        turns = Turns(CHANGES_PER_YIELD)
        for topic in topics:
            configs[topic.topic_name] = config_of(topic.topic_name)
            for state in topic.partition_states:
                change = PartitionChange(
                    TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state
                )
                code, must_apply = self.validate_change(change)
                errors[change.tp] = code
                if must_apply:
                    (to_lead if state.leader == self.broker_id else to_follow).append(change)
                await turns.yield_if_due()
        self.fetchers.remove(change.tp for change in to_lead)
        await self.apply_changes(to_lead, configs, self.make_leader, errors)
        if self.can_save_at_once(len(to_lead)):
            await self.save_unsaved_epochs()
        followed: list[Partition] = []

        def make_follower(change: PartitionChange, config: TopicConfig) -> None:
            partition = self.make_follower(change, config)
            if partition is not None:
                followed.append(partition)

        await self.apply_changes(to_follow, configs, make_follower, errors)
        self.fetchers.remove(TopicPartition(each.topic, each.index) for each in followed)
        if not self.is_in_controlled_shutdown:
            self.fetchers.add(each for each in followed if not each.is_offline)
        self.fetchers.stop_idle()
        self.moves.resume(change.tp for change in (*to_lead, *to_follow))
        self.is_known_to_controller = True
        if to_lead or to_follow:
            logger.info(
                "applied LeaderAndIsr leading=%d following=%d", len(to_lead), len(to_follow)
            )
        return errors

    def validate_change(self, change: PartitionChange) -> tuple[ErrorCode, bool]:
        """Return the error code of the partition, and whether the change must be applied."""
        tp, topic_id, state = change
        if topic_name_error(tp.topic) or tp.partition < 0:
            # The name would be used as a directory name.
            logger.error("invalid partition name=%r", str(tp))
            return ErrorCode.INVALID_TOPIC_EXCEPTION, False
        partition = self.partitions.get(tp)
        epoch = NO_EPOCH
        if tp in self.offline or (partition is not None and partition.is_offline):
            return ErrorCode.KAFKA_STORAGE_ERROR, False
        if tp in self.lost.topic_ids and self.lost.must_reject(tp, topic_id, state.leader):
            return ErrorCode.KAFKA_STORAGE_ERROR, False
        if partition is not None:
            epoch = partition.leader_epoch
            if topic_id not in (ZERO_ID, partition.topic_id) and partition.topic_id != ZERO_ID:
                logger.error(
                    "topic id does not match partition=%s topic_id=%s", tp, partition.topic_id
                )
                return ErrorCode.INCONSISTENT_TOPIC_ID, False
        if state.leader_epoch > epoch:
            if self.broker_id in state.replicas:
                return ErrorCode.NONE, True
            logger.warning(
                "this broker is not a replica partition=%s replicas=%s", tp, list(state.replicas)
            )
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False
        if state.leader_epoch == epoch and partition is not None:
            if partition.topic_id == ZERO_ID != topic_id:
                partition.topic_id = topic_id
                partition.log.assign_topic_id(topic_id)
                return ErrorCode.NONE, False
            if topic_id == ZERO_ID != partition.topic_id and state.leader != self.broker_id:
                return ErrorCode.NONE, False
        logger.debug(
            "stale leader epoch partition=%s leader_epoch=%d own=%d", tp, state.leader_epoch, epoch
        )
        return ErrorCode.STALE_CONTROLLER_EPOCH, False

    async def apply_changes(
        self,
        changes: list[PartitionChange],
        configs: Mapping[str, TopicConfig],
        apply: Callable[[PartitionChange, TopicConfig], None],
        errors: Errors,
    ) -> None:
        """Call `apply` for each change. A failure sets the error of its partition only."""
        turns = Turns()
        for change in changes:
            await turns.yield_if_due()
            try:
                apply(change, configs[change.tp.topic])
            except StorageError as error:
                logger.error("cannot open partition=%s error=%s", change.tp, error)
                errors[change.tp] = ErrorCode.KAFKA_STORAGE_ERROR
                if change.tp not in self.partitions and not isinstance(error, OutOfSpace):
                    self.offline[change.tp] = None
            except Exception:
                logger.exception("cannot change partition=%s", change.tp)
                errors[change.tp] = ErrorCode.KAFKA_STORAGE_ERROR

    def make_leader(self, change: PartitionChange, config: TopicConfig) -> None:
        tp, _, state = change
        partition = self.get_or_create_partition(change, config)
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
            "leading partition=%s leader_epoch=%d start=%d isr=%s",
            *(tp, state.leader_epoch, partition.epoch_start_offset, state.isr),
        )
        self.notify_leadership(partition)

    def make_follower(self, change: PartitionChange, config: TopicConfig) -> Partition | None:
        """Return the partition if a fetcher must be started for it."""
        tp, _, state = change
        partition = self.get_or_create_partition(change, config)
        self.partitions[tp] = partition
        if not self.metadata.is_alive(state.leader):
            # The log is kept open, so that its high watermark stays in the checkpoint. The leader epoch is not stored,
            # so that the same LeaderAndIsr is accepted when the leader is alive.
            logger.debug("no leader to follow partition=%s leader=%d", tp, state.leader)
            partition.stop_leading(NO_LEADER)
            self.notify_leadership(partition)
            self.fetchers.remove((tp,))
            return None
        is_new = partition.follow(
            BrokerId(state.leader),
            leader_epoch=LeaderEpoch(state.leader_epoch),
            replicas=self.metadata.share(state.replicas),
            partition_epoch=ZnodeVersion(state.partition_epoch),
        )
        self.notify_leadership(partition)
        return partition if is_new else None

    def notify_leadership(self, partition: Partition) -> None:
        if partition.topic in self.on_leadership:
            self.on_leadership[partition.topic](partition)

    def get_or_create_partition(self, change: PartitionChange, config: TopicConfig) -> Partition:
        tp, topic_id, state = change
        partition = self.partitions.get(tp)
        if partition is None:
            if self.logs.offline and not state.is_new and self.logs.get(tp) is None:
                # Its log may be in a failed directory, and an empty log would lose the records.
                raise next(iter(self.logs.offline.values()))
            log = self.get_or_create_log(tp, topic_id, config)
            traffic = self.traffic.add(tp.topic)
            partition = Partition(
                tp.topic, tp.partition, topic_id, self.broker_id, log, self.context, traffic
            )
            self.names[topic_id] = tp.topic
        elif partition.topic_id == ZERO_ID != topic_id:
            partition.topic_id = topic_id
            partition.log.assign_topic_id(topic_id)
        return partition

    def get_or_create_log(self, tp: TopicPartition, topic_id: UUID, config: TopicConfig) -> Log:
        """Return the log of the topic with this id, or create it.

        A log of a deleted topic with the same name may exist after a power loss. It is renamed to *-stray.
        """
        log = self.logs.get(tp)
        if log is not None and log.topic_id is not None and is_damaged_copy(log.topic_id, topic_id):
            logger.warning(
                "partition.metadata is damaged, rewriting it partition=%s found=%s topic_id=%s",
                *(tp, log.topic_id, topic_id),
            )
            log.assign_topic_id(topic_id)
        if log is not None and log.topic_id not in (None, topic_id) and topic_id != ZERO_ID:
            logger.warning(
                "log of a deleted topic, renaming it partition=%s topic_id=%s", tp, log.topic_id
            )
            self.moves.remove((tp,))
            self.logs.rename_to_stray(tp)
            log = None
        if log is None:
            return self.logs.create_log(tp, topic_id, config, self.clock.now_ms())
        log.use_config(config)
        if log.topic_id is None and topic_id != ZERO_ID:
            log.assign_topic_id(topic_id)
        return log

    async def save_epochs(self) -> None:
        """Write the epochs of new leaders to their checkpoint files, until cancelled.

        Runs after LeaderAndIsr is answered, since a broker failure may change thousands of leaders.
        """
        while True:
            await self.has_unsaved.wait()
            for _ in range(EPOCHS_DELAYS_MAX):
                before = self.recently_led
                await asyncio.sleep(EPOCHS_SAVED_AFTER_SECONDS)
                if self.recently_led == before:
                    break
            await self.save_unsaved_epochs()

    def can_save_at_once(self, new_leaders: int) -> bool:
        """Count new leaders, and return whether their epochs may be saved before LeaderAndIsr is answered.

        All new leaders of the current second count, because a controller may send many requests; so do unsaved epochs.
        """
        now = asyncio.get_running_loop().time()
        since, count = self.recently_led
        if now - since > EPOCHS_SAVED_AFTER_SECONDS:
            since, count = now, 0
        if new_leaders:
            self.recently_led = (since, count + new_leaders)
        return max(count + new_leaders, len(self.unsaved)) <= EPOCHS_SAVED_AT_ONCE

    async def save_unsaved_epochs(self) -> None:
        turns = Turns()
        while self.unsaved:
            partition = next(iter(self.unsaved))
            del self.unsaved[partition]
            if not partition.is_offline and self.holds(partition):
                try:
                    partition.log.save_epochs()
                except StorageError as error:
                    self.fail(partition, error)
            await turns.yield_if_due()
        self.has_unsaved.clear()

    def holds(self, partition: Partition) -> bool:
        """Return whether the partition was neither deleted nor replaced."""
        return self.partitions.get((partition.topic, partition.index)) is partition

    # ---- StopReplica

    async def stop_replicas(
        self, states: Mapping[TopicPartition, StopReplicaPartitionState]
    ) -> Errors:
        """Stop fetchers of the partitions, and delete those with `delete_partition`. Return all error codes."""
        errors: Errors = {}
        stopped: list[tuple[TopicPartition, bool]] = []
        turns = Turns(CHANGES_PER_YIELD)
        for tp, state in states.items():
            await turns.yield_if_due()
            partition = self.partitions.get(tp)
            if tp in self.offline or (partition is not None and partition.is_offline):
                errors[tp] = ErrorCode.KAFKA_STORAGE_ERROR
            elif partition is not None and is_fenced(state.leader_epoch, partition.leader_epoch):
                logger.warning(
                    "StopReplica has a stale leader epoch partition=%s leader_epoch=%d",
                    tp,
                    state.leader_epoch,
                )
                errors[tp] = ErrorCode.FENCED_LEADER_EPOCH
            else:
                errors[tp] = ErrorCode.NONE
                stopped.append((tp, state.delete_partition))
        async for chunk in in_chunks(tuple(stopped), CHANGES_PER_YIELD):
            self.fetchers.remove(tp for tp, _ in chunk)
            self.moves.remove(tp for tp, _ in chunk)
        directories: dict[str, None] = {}
        turns = Turns()
        for tp, delete in stopped:
            await turns.yield_if_due()
            for log in (self.logs.get(tp), self.logs.futures.get(tp)):
                if log is not None and delete:
                    directories[parent(log.directory)] = None
            try:
                self.stop_replica(tp, delete=delete)
            except StorageError as error:
                logger.error("cannot delete partition=%s error=%s", tp, error)
                errors[tp] = ErrorCode.KAFKA_STORAGE_ERROR
        self.remove_names(tp.topic for tp, delete in stopped if delete)
        if directories:
            # Checkpoint entries of a deleted log must not apply to a later log of the same name.
            self.logs.checkpoint(RECOVERY_POINT, directories)
            self.logs.checkpoint(HIGH_WATERMARK, directories)
        self.fetchers.stop_idle()
        return errors

    def stop_replica(self, tp: TopicPartition, *, delete: bool) -> None:
        """Fail waiting requests. Without `delete` the partition and its log stay until the next LeaderAndIsr."""
        if delete:
            self.lost.remove(tp)
        partition = self.partitions.get(tp)
        if partition is not None:
            if delete:
                del self.partitions[tp]
                partition.stop_leading(NO_LEADER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                self.notify_leadership(partition)
            else:
                partition.fail_promises(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if delete:
            self.logs.delete_log(tp, self.clock.now_ms())

    def remove_names(self, deleted: Iterable[str]) -> None:
        removed = set(deleted)
        if removed:
            removed -= {topic for topic, _ in self.partitions}
            self.traffic.remove(removed)
            self.names = {key: name for key, name in self.names.items() if name not in removed}

    # ---- in-sync replicas

    async def watch_isrs(self) -> None:
        period = max(self.config.replica_lag_time_max_ms / 2000, 0.001)
        while True:
            await asyncio.sleep(period)
            self.check_isrs()

    def check_isrs(self) -> None:
        for partition in list(self.partitions.values()):
            partition.check_isr()

    # ---- durability

    def flush(self, partition: Partition) -> asyncio.Future[None]:
        """Return a future that resolves when all records up to the current end are durable."""
        return self.flushes.flush(partition)

    def fail_flush(self, partition: Partition, error: StorageError) -> None:
        if self.holds(partition):
            # Otherwise its topic was deleted, and its files are closed: this is not a disk failure.
            self.fail(partition, error)

    def fail(self, partition: Partition, error: StorageError) -> None:
        """Handle a failed read or write: take all partitions of the log directory offline.

        A damaged batch is repaired instead. A full disk is a failure only if another in-sync replica can lead, since
        space may become free again.
        """
        if isinstance(error, CorruptBatch):
            self.integrity.report_batch(partition, error)
        elif not isinstance(error, OutOfSpace) or len(partition.isr) > 1:
            self.logs.mark_offline(parent(partition.log.directory), error)

    def take_offline(self, partitions: list[TopicPartition], error: StorageError) -> None:
        """Called by the log manager when a log directory has failed."""
        self.fetchers.remove(partitions)
        self.moves.remove(partitions)
        for tp in partitions:
            partition = self.partitions.get(tp)
            if partition is not None:
                partition.is_offline = True
                partition.fail_promises(ErrorCode.KAFKA_STORAGE_ERROR)
                self.notify_leadership(partition)
        self.report_log_dir_failure()

    def report_log_dir_failure(self) -> None:
        if self.on_log_dir_failure is not None:
            self.on_log_dir_failure()


def loop_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


def is_fenced(epoch: int, own: int) -> bool:
    """Return whether the epoch is stale. A deletion or a request without an epoch is never fenced."""
    return epoch < own and epoch not in (EPOCH_DURING_DELETE, NO_EPOCH)
