"""Loads groups from a partition of `__consumer_offsets` when this broker becomes its leader.

    leader            ─► reads the log from start to end, keeps the last record of each key ─► add_loaded_group
    no longer leader  ─► drop_partition; a load in progress is abandoned

A background task loads one partition at a time. Files are read in a thread. Records are decoded on the event loop, in
short steps. Meanwhile clients get COORDINATOR_LOAD_IN_PROGRESS and retry. Nothing is appended to the partition before
it is loaded. Compaction may run: if it replaces a segment during a read, the read is repeated.

Barnabas writes no transactions, but a log may contain offsets of transactions. Only committed transactions count.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from random import Random

from msgspec import Struct

from barnabas.batch.header import BatchHeader, batch_headers, crc_is_valid
from barnabas.batch.records import Record, records
from barnabas.errors import CorruptBatch, RemoteWireError, StorageError
from barnabas.groups.coordinator import GroupCoordinator
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
from barnabas.replication.partition import Partition
from barnabas.retry import Backoff
from barnabas.storage.segment_list import LogRead
from barnabas.tasks import Turns, in_thread
from barnabas.world.ports import Disk

logger = logging.getLogger("barnabas.groups")

NO_VALUE = (b"", -1)
RECORDS_PER_YIELD = 500
"""Records to process before other tasks run. `Turns` yields earlier if they take longer than a few milliseconds."""
REPAIR_ATTEMPTS = 30
REPAIR_RETRY_SECONDS = 1.0


class LatestRecords:
    """Last value of each key, and the base offset of its batch. Values are decoded later, since most are replaced."""

    def __init__(self) -> None:
        self.latest: dict[bytes, tuple[bytes, int]] = {}
        self.in_transactions: dict[int, list[tuple[bytes, bytes | None, int]]] = {}
        """Records of open transactions, by producer id."""

    def add(self, record: Record, header: BatchHeader) -> None:
        """Add a record of the batch. Raises RemoteWireError if the key is missing or invalid."""
        key = record.key
        if key is None:
            raise RemoteWireError("record without a key")
        if header.is_control:
            self.end_transaction(header.producer_id, is_committed=is_commit_marker(key))
        elif header.is_transactional:
            change = (key, record.value, header.base_offset)
            self.in_transactions.setdefault(header.producer_id, []).append(change)
        else:
            self.put(key, record.value, header.base_offset)

    def put(self, key: bytes, value: bytes | None, log_offset: int) -> None:
        """Set the value of a key, or remove it if `value` is None (tombstone)."""
        if value is None:
            self.latest.pop(key, None)
        elif self.latest.get(key, NO_VALUE)[1] <= log_offset:
            self.latest[key] = (value, log_offset)

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        for change in self.in_transactions.pop(producer_id, ()):
            if is_committed:
                self.put(*change)


class DecodedGroups:
    """Groups decoded from the last value of each key."""

    def __init__(self) -> None:
        self.snapshots: dict[str, GroupMetadataValue] = {}
        self.offsets: defaultdict[str, GroupOffsets] = defaultdict(GroupOffsets)
        self.topics: dict[str, str] = {}
        """One string object per topic name, which all groups share."""

    def add(self, key: bytes, value: bytes, log_offset: int) -> None:
        """Decode and add a record. Raises RemoteWireError if it cannot be decoded."""
        decoded_key = read_key(key)
        if isinstance(decoded_key, GroupMetadataKey):
            self.snapshots[decoded_key.group_id] = read_group(value)
        elif decoded_key is not None:
            group_id, topic, index = decoded_key
            partition = TopicPartition(self.topics.setdefault(topic, topic), index)
            self.offsets[group_id].put(partition, read_offset(value), log_offset)
        else:
            raise RemoteWireError("unknown key version")

    def groups(self, now_ms: int) -> Iterator[Group]:
        for group_id in self.snapshots | self.offsets:
            snapshot = self.snapshots.get(group_id)
            yield Group.restore(group_id, snapshot, self.offsets[group_id], now_ms)


class PartitionLoad(Struct, eq=False):
    """One load of a partition. Compared by identity, to distinguish it from a later load of the same partition."""

    partition: Partition


class GroupLoader:
    def __init__(self, store: GroupStore, coordinator: GroupCoordinator) -> None:
        self.store = store
        self.coordinator = coordinator
        self.replicas = store.replicas
        self.buffer_bytes = store.config.offsets_load_buffer_size
        self.loads: dict[int, PartitionLoad] = {}
        """Loads that wait or are in progress, by partition index."""
        self.wake = asyncio.Event()

    def leadership_changed(self, partition: Partition) -> None:
        """Called when this broker becomes leader of a partition, stays leader in a new epoch, or stops being leader."""
        store, index = self.store, partition.index
        if partition.leader == partition.broker_id and not partition.is_offline:
            load = self.loads.get(index)
            if index not in store.led and (load is None or load.partition is not partition):
                store.loading[index] = None
                self.loads[index] = PartitionLoad(partition)
                self.wake.set()
        elif index in store.led or index in store.loading:
            store.led.pop(index, None)
            store.loading.pop(index, None)
            self.loads.pop(index, None)
            self.coordinator.drop_partition(index)
            logger.debug("no longer coordinating partition=%s", partition)

    async def run(self) -> None:
        """Load the requested partitions, until cancelled."""
        while True:
            await self.wake.wait()
            self.wake.clear()
            while self.loads:
                load = next(iter(self.loads.values()))
                partition = load.partition
                try:
                    await self.load(load)
                except StorageError as error:
                    logger.error("cannot load groups partition=%s error=%s", partition, error)
                    self.replicas.fail(partition, error)
                except Exception:
                    # Serve the partition without its groups: clients would otherwise wait forever.
                    logger.exception("cannot load groups partition=%s", partition)
                if self.is_current(load):
                    del self.loads[partition.index]
                    del self.store.loading[partition.index]
                    self.store.led[partition.index] = None

    def is_current(self, load: PartitionLoad) -> bool:
        """Return False if this broker no longer leads the partition, or if a later load replaced this one."""
        return self.loads.get(load.partition.index) is load

    async def load(self, load: PartitionLoad) -> None:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        partition = load.partition
        decoded = await decode_groups(await self.read_records(load), partition)
        turns = Turns(RECORDS_PER_YIELD)
        groups = offsets = 0
        for group in decoded.groups(self.store.clock.now_ms()):
            await turns.yield_if_due()
            if not self.is_current(load):
                return
            self.coordinator.add_loaded_group(group, partition.index)
            groups += 1
            offsets += len(group.offsets)
        if self.is_current(load):
            logger.log(
                logging.INFO if groups else logging.DEBUG,
                "coordinating partition=%s epoch=%d groups=%d offsets=%d seconds=%.3f",
                partition,
                partition.leader_epoch,
                groups,
                offsets,
                loop.time() - started_at,
            )

    async def read_records(self, load: PartitionLoad) -> LatestRecords:
        """Read the whole log. Retry after a damaged batch, which may be repaired from a replica; finally skip it."""
        partition = load.partition
        backoff = Backoff(
            REPAIR_RETRY_SECONDS, REPAIR_RETRY_SECONDS, random=Random(partition.broker_id)
        )
        for _ in range(REPAIR_ATTEMPTS if len(partition.replicas) > 1 else 0):
            try:
                return await self.read(load, skip_damaged=False)
            except CorruptBatch as error:
                self.replicas.fail(partition, error)
                await backoff.wait()
        return await self.read(load, skip_damaged=True)

    async def read(self, load: PartitionLoad, *, skip_damaged: bool) -> LatestRecords:
        """Read the whole log once. Raises CorruptBatch at a damaged batch, or skips it."""
        partition = load.partition
        contents, log = LatestRecords(), partition.log
        offset = log.log_start_offset
        while offset < log.log_end_offset and self.is_current(load):
            reached = offset
            try:
                log_read = log.read(offset, self.buffer_bytes, log.log_end_offset)
                if not log_read.slices:
                    break
                data = await read_slice(log.disk, log_read)
                if data is None:
                    continue
                reached, is_damaged = await self.add_batches(contents, partition, data, offset)
                if is_damaged or reached == offset:
                    at = log_read.slices[0].position
                    problem = "a checksum does not match" if is_damaged else "invalid batch header"
                    raise CorruptBatch(slice_path(log_read), problem, at)
            except CorruptBatch as error:
                if not skip_damaged:
                    raise
                self.replicas.fail(partition, error)
                logger.error("damaged batch skipped, its commits are lost partition=%s", partition)
            offset = reached if reached > offset else log.next_segment_offset(offset)
        return contents

    async def add_batches(
        self, contents: LatestRecords, partition: Partition, data: bytes, offset: int
    ) -> tuple[int, bool]:
        """Add the records of the batches in `data`. Return the next offset to read, and whether a batch is damaged."""
        turns = Turns(RECORDS_PER_YIELD)
        view = memoryview(data)
        is_damaged = False
        for at, header in complete_batches(view):
            if not crc_is_valid(view, at, header):
                is_damaged = True  # its header is not trusted either
                continue
            for record in decode_batch(view[at : at + header.size], header):
                await turns.yield_if_due()
                try:
                    contents.add(record, header)
                except RemoteWireError as error:
                    log_skipped_record(partition, record.offset, error)
            offset = max(offset, header.next_offset)
        return offset, is_damaged


async def decode_groups(contents: LatestRecords, partition: Partition) -> DecodedGroups:
    """Decode all values. Log and skip those that cannot be decoded."""
    groups = DecodedGroups()
    turns = Turns(RECORDS_PER_YIELD)
    for key, (value, log_offset) in contents.latest.items():
        await turns.yield_if_due()
        try:
            groups.add(key, value, log_offset)
        except RemoteWireError as error:
            log_skipped_record(partition, log_offset, error)
    return groups


def log_skipped_record(partition: Partition, offset: int, error: RemoteWireError) -> None:
    logger.error("group record skipped partition=%s offset=%d error=%s", partition, offset, error)


async def read_slice(disk: Disk, log_read: LogRead) -> bytes | None:
    """Read the bytes in a thread. Return None if compaction replaced the segment meanwhile."""
    path = slice_path(log_read)
    (part,) = log_read.slices

    def read() -> bytes:
        file = disk.for_thread().open(path)
        try:
            return file.read(part.position, part.size)
        finally:
            file.close()

    try:
        data = await in_thread(read)
    except StorageError:
        if slice_path(log_read) == path:
            raise
        return None
    return data if slice_path(log_read) == path else None


def slice_path(log_read: LogRead) -> str:
    return log_read.slices[0].file.path


def complete_batches(view: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each complete batch, up to the first invalid header."""
    with suppress(RemoteWireError):
        yield from batch_headers(view)


def decode_batch(batch: memoryview, header: BatchHeader) -> Iterable[Record]:
    """Yield the records of a batch. At a record that cannot be decoded, log an error and stop."""
    try:
        yield from records(batch)
    except RemoteWireError as error:
        logger.error("cannot decode group batch offset=%d error=%s", header.base_offset, error)
