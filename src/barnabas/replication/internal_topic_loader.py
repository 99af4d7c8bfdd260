"""Loads the state in a partition of an internal topic when this broker becomes its leader.

    leader            ─► reads the log from start to end ─► adds the state to the coordinator ─► clients are served
    no longer leader  ─► drops the state; a load in progress is abandoned

A background task loads one partition at a time. Files are read in a thread. Records are decoded on the event loop, in
short steps. Meanwhile clients get COORDINATOR_LOAD_IN_PROGRESS and retry. Nothing is appended to the partition before
it is loaded. Compaction may run: if it replaces a segment during a read, the read is repeated.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from barnabas.batch.header import BatchHeader, batch_headers, crc_is_valid
from barnabas.batch.records import Record, records
from barnabas.errors import CorruptBatch, RemoteWireError, StorageError
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.retry import Backoff
from barnabas.storage.segment_list import LogRead
from barnabas.tasks import Turns, in_thread
from barnabas.world.ports import Disk

RECORDS_PER_YIELD = 500
"""Records to process before other tasks run. `Turns` yields earlier if they take longer than a few milliseconds."""
REPAIR_ATTEMPTS = 30
REPAIR_RETRY_SECONDS = 1.0


class LoadedRecords(Protocol):
    """The last value of each key in a log."""

    def add(self, record: Record, header: BatchHeader) -> None:
        """Add a record of the batch. Raises RemoteWireError if its key cannot be decoded."""


class LoadingStore(Protocol):
    replicas: ReplicaManager
    led: dict[int, int]
    """Partitions that this broker leads and has loaded, with the leader epoch."""
    loading: dict[int, None]
    """Partitions that this broker leads and is loading."""


R = TypeVar("R", bound=LoadedRecords)


class PartitionLoad(Struct, eq=False):
    """One load of a partition. Compared by identity, to distinguish it from a later load of the same partition."""

    partition: Partition


class LoadTimes(Struct):
    """Number of loads, and their durations, for metrics."""

    count: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total_s += seconds
        self.longest_s = max(self.longest_s, seconds)


class InternalTopicLoader(ABC, Generic[R]):
    def __init__(self, store: LoadingStore, buffer_bytes: int, logger: logging.Logger) -> None:
        self.led = store.led
        self.loading = store.loading
        self.replicas = store.replicas
        self.buffer_bytes = buffer_bytes
        self.logger = logger
        self.loads: dict[int, PartitionLoad] = {}
        """Loads that wait or are in progress, by partition index."""
        self.wake = asyncio.Event()
        self.load_times = LoadTimes()

    # ---- the state, which differs by topic

    @abstractmethod
    def new_records(self) -> R:
        """Return an object for the records of one log."""

    @abstractmethod
    async def add_state(self, load: PartitionLoad, found: R) -> str:
        """Add the state to the coordinator, as long as the load is current. Return its size, for the log."""

    @abstractmethod
    def drop_state(self, index: int) -> None:
        """Drop the state of a partition that this broker no longer leads."""

    def loaded(self, index: int) -> None:
        """Called when the state of a partition is complete."""

    # ---- loading

    def leadership_changed(self, partition: Partition) -> None:
        """Called when this broker becomes leader of a partition, stays leader in a new epoch, or stops being leader."""
        index = partition.index
        if partition.leader == partition.broker_id and not partition.is_offline:
            load = self.loads.get(index)
            if index in self.led:
                self.led[index] = partition.leader_epoch
            elif load is None or load.partition is not partition:
                self.loading[index] = None
                self.loads[index] = PartitionLoad(partition)
                self.wake.set()
        elif index in self.led or index in self.loading:
            self.led.pop(index, None)
            self.loading.pop(index, None)
            self.loads.pop(index, None)
            self.drop_state(index)
            self.logger.debug("no longer coordinating partition=%s", partition)

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
                    self.logger.error("cannot load partition=%s error=%s", partition, error)
                    self.replicas.fail(partition, error)
                except Exception:
                    # Serve the partition without its state: clients would otherwise wait forever.
                    self.logger.exception("cannot load partition=%s", partition)
                if self.is_current(load):
                    del self.loads[partition.index]
                    del self.loading[partition.index]
                    self.led[partition.index] = partition.leader_epoch
                    self.loaded(partition.index)

    def is_current(self, load: PartitionLoad) -> bool:
        """Return False if this broker no longer leads the partition, or if a later load replaced this one."""
        return self.loads.get(load.partition.index) is load

    async def load(self, load: PartitionLoad) -> None:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        size = await self.add_state(load, await self.read_records(load))
        if self.is_current(load):
            seconds = loop.time() - started_at
            self.load_times.add(seconds)
            self.logger.log(
                logging.INFO if size else logging.DEBUG,
                "coordinating partition=%s epoch=%d %s seconds=%.3f",
                load.partition,
                load.partition.leader_epoch,
                size or "empty",
                seconds,
            )

    # ---- reading

    async def read_records(self, load: PartitionLoad) -> R:
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

    async def read(self, load: PartitionLoad, *, skip_damaged: bool) -> R:
        """Read the whole log once. Raises CorruptBatch at a damaged batch, or skips it."""
        partition = load.partition
        found, log = self.new_records(), partition.log
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
                reached, is_damaged = await self.add_batches(found, partition, data, offset)
                if is_damaged or reached == offset:
                    at = log_read.slices[0].position
                    problem = "a checksum does not match" if is_damaged else "invalid batch header"
                    raise CorruptBatch(slice_path(log_read), problem, at)
            except CorruptBatch as error:
                if not skip_damaged:
                    raise
                self.replicas.fail(partition, error)
                self.logger.error(
                    "damaged batch skipped, its records are lost partition=%s", partition
                )
            offset = reached if reached > offset else log.next_segment_offset(offset)
        return found

    async def add_batches(
        self, found: R, partition: Partition, data: bytes, offset: int
    ) -> tuple[int, bool]:
        """Add the records of the batches in `data`. Return the next offset to read, and whether a batch is damaged."""
        turns = Turns(RECORDS_PER_YIELD)
        view = memoryview(data)
        is_damaged = False
        for at, header in complete_batches(view):
            if not crc_is_valid(view, at, header):
                is_damaged = True  # its header is not trusted either
                continue
            try:
                for record in records(view[at : at + header.size]):
                    await turns.yield_if_due()
                    try:
                        found.add(record, header)
                    except RemoteWireError as error:
                        self.log_skipped(partition, record.offset, error)
            except RemoteWireError as error:
                self.log_skipped(partition, header.base_offset, error)
            offset = max(offset, header.next_offset)
        return offset, is_damaged

    def log_skipped(self, partition: Partition, offset: int, error: RemoteWireError) -> None:
        self.logger.error(
            "record skipped partition=%s offset=%d error=%s", partition, offset, error
        )


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
