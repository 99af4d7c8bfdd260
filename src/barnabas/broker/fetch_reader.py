"""Read one partition for a fetch: slices of its log, or the error that the client gets."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from barnabas.broker.context import BrokerContext
from barnabas.broker.fetch_sessions import FetchEntry, FetchSession
from barnabas.errors import ApiError, CorruptBatch, ErrorCode, StorageError
from barnabas.model import ZERO_ID, BrokerId
from barnabas.replication.partition import Partition
from barnabas.replication.quota import is_throttled
from barnabas.replication.read_replica import ReadCandidate, select_read_replica
from barnabas.wire.fast import FetchedPartition
from barnabas.wire.messages.fetch import NO_DIVERGENCE, EpochEndOffset, FetchRequest
from barnabas.world.ports import FileSlice

ONE_BATCH_SINCE = 3  # the first batch comes whole even if it is larger than the limits
MAGIC_2_SINCE = 4  # older versions would need batches converted down
TOPIC_IDS_SINCE = 13
ZSTD_SINCE = 10
STORAGE_ERROR_SINCE = 6  # older clients would take it for an error that does not pass
ANY_REPLICA_SINCE = 11  # a consumer may read what a follower has below its high watermark

# Answered without a log in sight, and Kafka's answers then have an empty list where others have none.
ABOUT_NO_LOG = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)


class Look(NamedTuple):
    """What one partition has for this fetch."""

    entry: FetchEntry
    data: FetchedPartition
    partition: Partition | None
    is_held_back: bool = False
    """There is a batch, but what is left of the limits does not hold it."""
    is_older: bool = False
    """The batches come from a closed segment."""


class PartitionReader:
    """Reads partitions as one fetch request asks for them."""

    def __init__(
        self, context: BrokerContext, request: FetchRequest, version: int, listener: str
    ) -> None:
        self.context = context
        self.request = request
        self.version = version
        self.listener = listener
        self.replica_id = BrokerId(
            request.replica_id if version < 15 else request.replica_state.replica_id
        )
        self.rack = ""
        """The rack of a consumer that may be sent to another replica."""
        if self.replica_id < 0 and version >= ANY_REPLICA_SINCE:
            self.rack = request.rack_id if context.config.replica_selector_class else ""
        self.session: FetchSession | None = None
        self.has_arrived = False
        """The position of a follower is taken from its fetch once, on arrival."""
        self.has_unchecked = False
        """A batch was found whose checksum is being verified."""

    def look_at(self, entry: FetchEntry, bytes_left: int, at_least_one: bool) -> Look:
        try:
            return self.read(entry, bytes_left, at_least_one)
        except ApiError as error:
            code = error.code
        except StorageError as error:
            partition = self.context.replicas.partitions.get((entry.topic, entry.index))
            if partition is not None:
                self.context.replicas.fail(partition, error)
            code = storage_code(error, partition)
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self.version < STORAGE_ERROR_SINCE:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        aborted = () if code in ABOUT_NO_LOG else None
        return Look(entry, FetchedPartition(entry.index, code, aborted_transactions=aborted), None)

    def read(self, entry: FetchEntry, bytes_left: int, at_least_one: bool) -> Look:
        partition = self.find(entry)
        from_follower = self.replica_id >= 0
        if from_follower or self.version < ANY_REPLICA_SINCE:
            partition.require_leader(entry.current_leader_epoch)
        else:
            partition.require_replica(entry.current_leader_epoch)
        log = partition.log
        nearer = self.nearer_replica(entry, partition) if self.rack else None
        if nearer is not None:
            high_watermark = log.watermark
            told = (entry.index, 0, high_watermark, high_watermark, log.log_start_offset)
            return Look(entry, FetchedPartition(*told, preferred_read_replica=nearer), partition)
        if from_follower and self.replica_id not in partition.followers:
            # With our epoch, it knows of an assignment we have not heard of; without one, who can tell.
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH
                if entry.current_leader_epoch >= 0
                else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        if from_follower and self.is_of_a_former_life(partition):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        diverging = self.divergence(entry, partition)
        slices: tuple[FileSlice, ...] = ()
        size = 0
        is_held_back = is_older = False
        if diverging is NO_DIVERGENCE:
            bound = log.log_end_offset if from_follower else log.watermark
            limit = min(entry.partition_max_bytes, bytes_left)
            if from_follower and self.must_wait(partition):
                limit, at_least_one = 0, False
            found = log.read(
                entry.fetch_offset, limit, upper_bound=bound, at_least_one=at_least_one
            )
            slices, size = found.slices, found.size
            is_held_back = limit <= 0 and entry.fetch_offset < bound
            # The rest of a closed segment is all that one read gives: waiting would not add to it.
            is_older = size > 0 and slices[0].file is not log.segments.active.log
            if found.first_incomplete and self.version >= ONE_BATCH_SINCE:
                # Part of a batch is of no use to a client that is promised a whole one in some later answer.
                slices, size, is_held_back = (), 0, True
            if found.unchecked is not None:
                # Not before it is known to be right; whoever waits for the partition is told.
                self.has_unchecked = True
                integrity = self.context.replicas.integrity
                integrity.check_before_fetch(partition, found.unchecked, found.slices[0].position)
                slices, size, is_held_back, is_older = (), 0, True, False
            if size and self.version < MAGIC_2_SINCE:
                raise ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
            if size and self.version < ZSTD_SINCE and log.config.compression_type == "zstd":
                raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if from_follower and not self.has_arrived:
                partition.record_fetch(
                    self.replica_id,
                    entry.fetch_offset,
                    entry.log_start_offset,
                    leader_end=log.log_end_offset,
                    session=self.session,
                    broker_epoch=self.request.replica_state.replica_epoch,
                )
        high_watermark = log.watermark
        data = FetchedPartition(
            entry.index,
            0,
            high_watermark,
            high_watermark,
            log.log_start_offset,
            slices,
            size,
            () if self.request.isolation_level == 1 else None,
            diverging_epoch=diverging,
        )
        return Look(entry, data, partition, is_held_back, is_older)

    def nearer_replica(self, entry: FetchEntry, partition: Partition) -> BrokerId | None:
        """Who in the consumer's rack has what it asks for; None if it had better stay with us."""
        if partition.leader != partition.broker_id:
            return None
        metadata, offset = self.context.metadata, entry.fetch_offset
        followers = [
            ReadCandidate(broker, known.rack, follower.log_end_offset, follower.last_caught_up_ms)
            for broker, follower in partition.followers.items()
            if broker in partition.isr
            and follower.log_start_offset <= offset <= follower.log_end_offset
            and (known := metadata.brokers.get(broker)) is not None
            and metadata.endpoint(known, self.listener) is not None
        ]
        return select_read_replica(self.rack, self.context.config.broker_rack, followers)

    def is_of_a_former_life(self, partition: Partition) -> bool:
        """What a process that was replaced holds says nothing about what the broker of that id holds now."""
        epoch = self.request.replica_state.replica_epoch
        return 0 <= epoch < partition.followers[self.replica_id].broker_epoch

    def must_wait(self, partition: Partition) -> bool:
        """Whether this follower gets nothing for now, lest replication take more than it may. One in sync is spared."""
        quota = self.context.replicas.leader_quota
        return (
            quota is not None
            and self.replica_id not in partition.isr
            and is_throttled_here(partition)
            and quota.is_exceeded()
        )

    def find(self, entry: FetchEntry) -> Partition:
        if self.version >= TOPIC_IDS_SINCE:
            # The name may have become known, or the topic may have been deleted, since the session was opened.
            entry.topic = self.name_of(entry.topic_id)
            if not entry.topic:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self.context.replicas.find(entry.topic, entry.index)
        if entry.topic_id != ZERO_ID and partition.topic_id != entry.topic_id:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition

    def name_of(self, topic_id: UUID) -> str:
        """LeaderAndIsr comes before UpdateMetadata: a follower may ask for a topic that only its replicas know yet."""
        name = self.context.metadata.names.get(topic_id)
        if name is None and self.replica_id >= 0:
            name = self.context.replicas.names.get(topic_id)
        return name or ""

    def divergence(self, entry: FetchEntry, partition: Partition) -> EpochEndOffset:
        """Where the reader's history leaves ours, if it says which epoch it read last."""
        if entry.last_fetched_epoch < 0:
            return NO_DIVERGENCE
        epoch, end = partition.end_offset_for(entry.last_fetched_epoch)
        if epoch < 0 or end < 0 or entry.fetch_offset < partition.log.log_start_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < entry.last_fetched_epoch or end < entry.fetch_offset:
            return EpochEndOffset(epoch=epoch, end_offset=end)
        return NO_DIVERGENCE


def storage_code(error: StorageError, partition: Partition | None) -> ErrorCode:
    """A damaged batch that another replica has will be there again: clients retry one code and not the other."""
    if isinstance(error, CorruptBatch) and (partition is None or len(partition.replicas) <= 1):
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.KAFKA_STORAGE_ERROR


def is_throttled_here(partition: Partition) -> bool:
    listed = partition.log.config.leader_replication_throttled_replicas
    return is_throttled(listed, partition.index, partition.broker_id)
