"""Loads groups from a partition of `__consumer_offsets` (see replication/internal_topic_loader.py).

Offsets of a transaction count when its commit marker is read. Those of open transactions stay pending.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator

from barnabas.batch.header import BatchHeader
from barnabas.batch.records import Record
from barnabas.errors import RemoteWireError
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.consumer_records import (
    ConsumerRecord,
    is_consumer_key,
    read_consumer_record,
)
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.coordinator_timers import AnyGroup
from barnabas.groups.group import Group
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    is_commit_marker,
    read_group,
    read_key,
    read_offset,
)
from barnabas.groups.store import GroupStore
from barnabas.model import TopicPartition
from barnabas.replication.internal_topic_loader import (
    RECORDS_PER_YIELD,
    InternalTopicLoader,
    PartitionLoad,
)
from barnabas.replication.partition import Partition
from barnabas.tasks import Turns

logger = logging.getLogger("barnabas.groups")

NO_VALUE = (b"", -1)


class LatestRecords:
    """Last value of each key, and the base offset of its batch. Values are decoded later, since most are replaced."""

    def __init__(self) -> None:
        self.latest: dict[bytes, tuple[bytes, int]] = {}
        self.in_transactions: dict[int, dict[bytes, tuple[bytes | None, int]]] = {}
        """Last value of each key in open transactions, by producer id."""

    def add(self, record: Record, header: BatchHeader) -> None:
        """Add a record of the batch. Raises RemoteWireError if the key is missing or invalid."""
        key = record.key
        if key is None:
            raise RemoteWireError("record without a key")
        if header.is_control:
            self.end_transaction(header.producer_id, is_committed=is_commit_marker(key))
        elif header.is_transactional:
            changes = self.in_transactions.setdefault(header.producer_id, {})
            changes[key] = (record.value, header.base_offset)
        else:
            self.put(key, record.value, header.base_offset)
            if record.value is None:
                # Deleting an offset discards its commits in open transactions too.
                for changes in self.in_transactions.values():
                    changes.pop(key, None)

    def put(self, key: bytes, value: bytes | None, log_offset: int) -> None:
        """Set the value of a key, or remove it if `value` is None (tombstone)."""
        if value is None:
            self.latest.pop(key, None)
        elif self.latest.get(key, NO_VALUE)[1] <= log_offset:
            self.latest[key] = (value, log_offset)

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        changes = self.in_transactions.pop(producer_id, {})
        if is_committed:
            for key, (value, log_offset) in changes.items():
                self.put(key, value, log_offset)


class DecodedGroups:
    """Groups decoded from the last value of each key."""

    def __init__(self) -> None:
        self.snapshots: dict[str, GroupMetadataValue] = {}
        self.consumer_records: defaultdict[str, list[ConsumerRecord]] = defaultdict(list)
        """Records of groups of the new consumer protocol."""
        self.offsets: defaultdict[str, GroupOffsets] = defaultdict(GroupOffsets)
        self.topics: dict[str, str] = {}
        """One string object per topic name, which all groups share."""

    def add(self, key: bytes, value: bytes, log_offset: int) -> None:
        """Decode and add a record. Raises RemoteWireError if it cannot be decoded."""
        if is_consumer_key(key):
            record = read_consumer_record(key, value)
            self.consumer_records[record.key.group_id].append(record)
            return
        decoded_key = read_key(key)
        if isinstance(decoded_key, GroupMetadataKey):
            self.snapshots[decoded_key.group_id] = read_group(value)
        elif decoded_key is not None:
            group_id, topic, index = decoded_key
            partition = TopicPartition(self.topics.setdefault(topic, topic), index)
            self.offsets[group_id].put(partition, read_offset(value), log_offset)
        else:
            raise RemoteWireError("unknown key version")

    def add_in_transaction(
        self, producer_id: int, key: bytes, value: bytes | None, log_offset: int
    ) -> None:
        """Decode and add an offset of an open transaction. Raises RemoteWireError if it cannot be decoded."""
        decoded_key = read_key(key)
        if decoded_key is None or isinstance(decoded_key, GroupMetadataKey) or value is None:
            raise RemoteWireError("not an offset commit")
        group_id, topic, index = decoded_key
        partition = TopicPartition(self.topics.setdefault(topic, topic), index)
        commits = {partition: read_offset(value)}
        self.offsets[group_id].begin_in_transaction(producer_id, commits, log_offset)

    def groups(self, now_ms: int) -> Iterator[AnyGroup]:
        """Yield each group. A classic group wins, if a damaged log has both kinds of records for a group."""
        for group_id in self.snapshots | self.consumer_records | self.offsets:
            snapshot = self.snapshots.get(group_id)
            offsets = self.offsets.get(group_id, GroupOffsets())
            group: AnyGroup | None = None
            if snapshot is None and group_id in self.consumer_records:
                records = self.consumer_records[group_id]
                group = ConsumerGroup.restore(group_id, records, offsets)
            if group is None and (snapshot is not None or group_id in self.offsets):
                group = Group.restore(group_id, snapshot, offsets, now_ms)
            if group is not None:
                yield group


class GroupLoader(InternalTopicLoader[LatestRecords]):
    def __init__(self, store: GroupStore, coordinator: GroupCoordinator) -> None:
        super().__init__(store, store.config.offsets_load_buffer_size, logger)
        self.clock = store.clock
        self.coordinator = coordinator

    def new_records(self) -> LatestRecords:
        return LatestRecords()

    async def add_state(self, load: PartitionLoad, found: LatestRecords) -> str:
        decoded = await self.decode_groups(found, load.partition)
        turns = Turns(RECORDS_PER_YIELD)
        groups = offsets = 0
        for group in decoded.groups(self.clock.now_ms()):
            await turns.yield_if_due()
            if not self.is_current(load):
                break
            if isinstance(group, ConsumerGroup):
                # Its records may not be replicated yet. A response waits until they are.
                group.end_offset = load.partition.log.log_end_offset
            self.coordinator.add_loaded_group(group, load.partition.index)
            groups += 1
            offsets += len(group.offsets)
        return f"groups={groups} offsets={offsets}" if groups else ""

    def drop_state(self, index: int) -> None:
        self.coordinator.drop_partition(index)

    async def decode_groups(self, found: LatestRecords, partition: Partition) -> DecodedGroups:
        """Decode all values. Log and skip those that cannot be decoded."""
        groups = DecodedGroups()
        turns = Turns(RECORDS_PER_YIELD)
        for key, (value, log_offset) in found.latest.items():
            await turns.yield_if_due()
            try:
                groups.add(key, value, log_offset)
            except RemoteWireError as error:
                self.log_skipped(partition, log_offset, error)
        for producer_id, changes in found.in_transactions.items():
            for key, (new_value, log_offset) in changes.items():
                await turns.yield_if_due()
                try:
                    groups.add_in_transaction(producer_id, key, new_value, log_offset)
                except RemoteWireError as error:
                    self.log_skipped(partition, log_offset, error)
        return groups
