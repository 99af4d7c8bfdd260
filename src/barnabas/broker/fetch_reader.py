"""Reads of single partitions for a Fetch request: slices of the log, or an error code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.fetch_sessions import FetchEntry, FetchSession
from barnabas.errors import ApiError, CorruptBatch, ErrorCode, StorageError
from barnabas.model import ZERO_ID, BrokerId
from barnabas.replication.partition import Partition
from barnabas.replication.quota import is_throttled
from barnabas.security.acl.model import Operation
from barnabas.storage import read_committed
from barnabas.storage.log import Log
from barnabas.storage.segment_list import LogRead
from barnabas.wire.fast import FetchedPartition
from barnabas.wire.messages.fetch import (
    NO_DIVERGENCE,
    READ_COMMITTED,
    AbortedTransaction,
    DivergingEpoch,
    FetchRequest,
)
from barnabas.world.ports import FileSlice

ONE_BATCH_SINCE: Final = 3  # the first batch is complete even if it is larger than the limits
MAGIC_2_SINCE: Final = 4  # older versions require an older batch format
TOPIC_IDS_SINCE: Final = 13
ZSTD_SINCE: Final = 10
STORAGE_ERROR_SINCE: Final = 6  # older clients do not retry KAFKA_STORAGE_ERROR
ANY_REPLICA_SINCE: Final = 11  # a consumer may read from a follower

# With these errors Kafka returns an empty list of aborted transactions, with others null.
WITHOUT_LOG: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


class PartitionRead(NamedTuple):
    """Result of reading one partition."""

    entry: FetchEntry
    data: FetchedPartition
    partition: Partition | None
    has_unsent_batch: bool = False
    """There is a batch, but it exceeds the limits, or its checksum is not verified yet."""
    is_from_closed_segment: bool = False


class ReadCandidate(NamedTuple):
    """An in-sync follower that has the fetch offset and an endpoint on the client's listener."""

    broker: BrokerId
    rack: str | None
    log_end_offset: int
    last_caught_up_ms: float


class PartitionReader:
    """Reads the partitions of one Fetch request."""

    def __init__(
        self, context: BrokerContext, request: FetchRequest, version: int, connection: Connection
    ) -> None:
        self.context = context
        self.request = request
        self.version = version
        self.connection = connection
        self.listener = connection.listener_name
        self.access = context.security.access
        self.replica_id = BrokerId(
            request.replica_id if version < 15 else request.replica_state.replica_id
        )
        self.reads_committed = self.replica_id < 0 and request.isolation_level == READ_COMMITTED
        self.rack = ""
        """The rack of a consumer that may be redirected to another replica."""
        if self.replica_id < 0 and version >= ANY_REPLICA_SINCE:
            self.rack = request.rack_id if context.config.replica_selector_class else ""
        self.session: FetchSession | None = None
        self.has_recorded_offsets = False
        """Whether the follower's fetch offsets are recorded already. This happens once per request."""
        self.has_unchecked_batch = False
        """Whether a batch was found whose checksum is not verified yet."""

    def read_or_error(
        self, entry: FetchEntry, bytes_left: int, at_least_one: bool
    ) -> PartitionRead:
        """Read a partition. An ApiError or StorageError becomes an error code in the result."""
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
        aborted = () if code in WITHOUT_LOG else None
        return PartitionRead(
            entry, FetchedPartition(entry.index, code, aborted_transactions=aborted), None
        )

    def read(self, entry: FetchEntry, bytes_left: int, at_least_one: bool) -> PartitionRead:
        partition = self.find(entry)
        partition.traffic.fetches += 1
        from_follower = self.replica_id >= 0
        if from_follower or self.version < ANY_REPLICA_SINCE:
            partition.require_leader(entry.current_leader_epoch)
        else:
            partition.require_replica(entry.current_leader_epoch)
        log = partition.log
        nearer = self.find_nearer_replica(entry, partition) if self.rack else None
        if nearer is not None:
            offsets = (log.watermark, log.last_stable_offset, log.log_start_offset)
            data = FetchedPartition(entry.index, 0, *offsets, preferred_read_replica=nearer)
            return PartitionRead(entry, data, partition)
        if from_follower and self.replica_id not in partition.followers:
            # The follower is not in our assignment. If its request has a leader epoch (checked above to equal ours),
            # the follower has a newer assignment.
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH
                if entry.current_leader_epoch >= 0
                else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        if from_follower and self.is_from_earlier_registration(partition):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        diverging = self.find_divergence(entry, partition)
        slices: tuple[FileSlice, ...] = ()
        size = 0
        has_unsent_batch = is_from_closed_segment = False
        aborted: tuple[AbortedTransaction, ...] | None = () if self.reads_committed else None
        if diverging is NO_DIVERGENCE:
            if from_follower:
                bound = log.log_end_offset
            else:
                bound = log.last_stable_offset if self.reads_committed else log.watermark
            limit = min(entry.partition_max_bytes, bytes_left)
            if from_follower and self.is_over_quota(partition):
                limit, at_least_one = 0, False
            found = log.read(
                entry.fetch_offset, limit, upper_bound=bound, at_least_one=at_least_one
            )
            slices, size = found.slices, found.size
            has_unsent_batch = limit <= 0 and entry.fetch_offset < bound
            # A read ends at the end of its segment, so waiting for more bytes of a closed segment is useless.
            is_from_closed_segment = size > 0 and slices[0].file is not log.segments.active.log
            if found.first_incomplete and self.version >= ONE_BATCH_SINCE:
                # A partial batch is useless: a later response contains the complete batch.
                slices, size, has_unsent_batch = (), 0, True
            if found.unchecked_segment is not None:
                # The batch is sent after its checksum is verified. Watchers of the partition are notified then.
                self.has_unchecked_batch = True
                integrity = self.context.replicas.integrity
                integrity.check_before_fetch(
                    partition, found.unchecked_segment, found.slices[0].position
                )
                slices, size, has_unsent_batch, is_from_closed_segment = (), 0, True, False
            if size and self.reads_committed:
                aborted = find_aborted_for(log, entry.fetch_offset, found)
            if size and self.version < MAGIC_2_SINCE:
                raise ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
            if size and self.version < ZSTD_SINCE and log.config.compression_type == "zstd":
                raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if from_follower and not self.has_recorded_offsets:
                partition.record_fetch(
                    self.replica_id,
                    entry.fetch_offset,
                    entry.log_start_offset,
                    leader_end=log.log_end_offset,
                    session=self.session,
                    broker_epoch=self.request.replica_state.replica_epoch,
                )
        data = FetchedPartition(
            entry.index,
            0,
            log.watermark,
            log.last_stable_offset,
            log.log_start_offset,
            slices,
            size,
            aborted,
            diverging_epoch=diverging,
        )
        return PartitionRead(entry, data, partition, has_unsent_batch, is_from_closed_segment)

    def find_nearer_replica(self, entry: FetchEntry, partition: Partition) -> BrokerId | None:
        """Return a follower in the consumer's rack (KIP-392), or None to read here.

        The follower must be in sync and have the fetch offset. Otherwise the follower would return an error, and the
        leader would redirect the consumer to the same follower again.
        """
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

    def is_from_earlier_registration(self, partition: Partition) -> bool:
        """Whether the follower sent this fetch before it registered again. Its offset is stale then."""
        epoch = self.request.replica_state.replica_epoch
        return 0 <= epoch < partition.followers[self.replica_id].broker_epoch

    def is_over_quota(self, partition: Partition) -> bool:
        """Whether the replication quota forbids sending records to this follower now. In-sync replicas are exempt."""
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
        # The ACLs may have changed since the request arrived, or since the session was opened.
        if self.access.decider is not None and not self.may_read(entry.topic):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = self.context.replicas.find(entry.topic, entry.index)
        if entry.topic_id != ZERO_ID and partition.topic_id != entry.topic_id:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition

    def may_read(self, topic: str) -> bool:
        """Whether the principal may read a topic. Followers need permission for the whole cluster instead."""
        if self.replica_id >= 0:
            return self.access.is_broker(self.connection)
        return self.access.allows_topic(self.connection, Operation.READ, topic)

    def name_of(self, topic_id: UUID) -> str:
        """Return the name of a topic, or an empty string if the id is unknown.

        LeaderAndIsr arrives before UpdateMetadata, so a follower may fetch a topic that the metadata cache lacks.
        """
        name = self.context.metadata.names.get(topic_id)
        if name is None and self.replica_id >= 0:
            name = self.context.replicas.names.get(topic_id)
        return name or ""

    def find_divergence(self, entry: FetchEntry, partition: Partition) -> DivergingEpoch:
        """Return where the reader's log diverges from this one.

        Return NO_DIVERGENCE if it does not, or if the request has no last fetched epoch (-1).
        """
        if entry.last_fetched_epoch < 0:
            return NO_DIVERGENCE
        epoch, end = partition.end_offset_for(entry.last_fetched_epoch)
        if epoch < 0 or end < 0 or entry.fetch_offset < partition.log.log_start_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < entry.last_fetched_epoch or end < entry.fetch_offset:
            return DivergingEpoch(epoch=epoch, end_offset=end)
        return NO_DIVERGENCE


def select_read_replica(
    rack: str, leader_rack: str | None, followers: Iterable[ReadCandidate]
) -> BrokerId | None:
    """Return the follower to read from, or None for the leader.

    Prefers the largest log end offset, then the latest catch-up time, then the largest broker id.
    """
    if not rack or rack == leader_rack:
        return None
    near = [each for each in followers if each.rack == rack]
    if not near:
        return None
    return max(
        near, key=lambda each: (each.log_end_offset, each.last_caught_up_ms, each.broker)
    ).broker


def find_aborted_for(log: Log, offset: int, found: LogRead) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions for a response with the records of `found`, a read at `offset`."""
    return tuple(
        AbortedTransaction(each.producer_id, each.first_offset)
        for each in read_committed.aborted_in_read(log, offset, found)
    )


def storage_code(error: StorageError, partition: Partition | None) -> ErrorCode:
    """Return KAFKA_STORAGE_ERROR, which clients retry, or CORRUPT_MESSAGE if no other replica can repair the batch."""
    if isinstance(error, CorruptBatch) and (partition is None or len(partition.replicas) <= 1):
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.KAFKA_STORAGE_ERROR


def is_throttled_here(partition: Partition) -> bool:
    throttled = partition.log.config.leader_replication_throttled_replicas
    return is_throttled(throttled, partition.index, partition.broker_id)
