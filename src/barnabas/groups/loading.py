"""Taking over groups: when this broker begins to lead a partition of `__consumer_offsets`, it reads what stands there.

    led ─► loading ─► the log read from its start to its end, the last record of each key counts ─► coordinator.take
    no longer led  ─► coordinator.drop, and what is being read is given up

One partition after the other, in a background task. Files are read in a thread, records are opened on the loop, a few
at a time, so that nobody waits for long; meanwhile clients hear COORDINATOR_LOAD_IN_PROGRESS and ask again. Nothing is
appended to the partition before it is loaded, and compaction may go on: a segment that it replaces while its bytes are
on their way here is looked for again.

Offsets that were committed in transactions, by a broker that has them, count when their transaction was committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from random import Random
from typing import NamedTuple, Protocol

from barnabas.errors import CorruptBatch, RemoteWireError, StorageError
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import (
    GroupKey,
    GroupSnapshot,
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
from barnabas.wire.records import BatchHeader, Record, batch_headers, crc_is_valid, records
from barnabas.world.ports import Disk

logger = logging.getLogger("barnabas.groups")

NOTHING = (b"", -1)
RECORDS_PER_TURN = 500
"""If they take no longer than a turn may: whoever waits for these groups waits for every turn of everybody else."""
REPAIRS_WAITED_FOR = 30
REPAIR_SECONDS = 1.0


class LoadedGroup(NamedTuple):
    """What the log says of one group. No snapshot: it has only ever kept offsets."""

    group_id: str
    snapshot: GroupSnapshot | None
    offsets: GroupOffsets


class Coordinator(Protocol):
    """Who is given the groups; coordinator.py."""

    def take(self, partition: int, groups: Iterable[LoadedGroup]) -> None: ...

    def drop(self, partition: int) -> None: ...


class Contents:
    """The last value of each key, as far as the log was read. They are opened at the end: most were written over."""

    def __init__(self) -> None:
        self.latest: dict[bytes, tuple[bytes, int]] = {}
        self.in_transactions: dict[int, list[tuple[bytes, bytes | None, int]]] = {}
        """By producer, what it committed since its transaction began."""

    def take(self, record: Record, header: BatchHeader) -> None:
        """RemoteWireError if it cannot be understood."""
        key = record.key
        if key is None:
            raise RemoteWireError("a record without a key")
        if header.is_control:
            self.end_transaction(header.producer_id, is_committed=is_commit_marker(key))
        elif header.is_transactional:
            change = (key, record.value, header.base_offset)
            self.in_transactions.setdefault(header.producer_id, []).append(change)
        else:
            self.put(key, record.value, header.base_offset)

    def put(self, key: bytes, value: bytes | None, log_offset: int) -> None:
        if value is None:
            self.latest.pop(key, None)
        elif self.latest.get(key, NOTHING)[1] <= log_offset:
            self.latest[key] = (value, log_offset)

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        for change in self.in_transactions.pop(producer_id, ()):
            if is_committed:
                self.put(*change)


class Groups:
    """What those values say."""

    def __init__(self) -> None:
        self.snapshots: dict[str, GroupSnapshot] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self.topics: dict[str, str] = {}

    def take(self, key: bytes, value: bytes, log_offset: int) -> None:
        """RemoteWireError if it cannot be understood."""
        found = read_key(key)
        if isinstance(found, GroupKey):
            self.snapshots[found.group_id] = read_group(found.group_id, value)
        elif found is not None:
            group_id, topic, index = found
            offsets = self.offsets.get(group_id)
            if offsets is None:
                offsets = self.offsets[group_id] = GroupOffsets()
            # A thousand groups share the topic's name.
            partition = TopicPartition(self.topics.setdefault(topic, topic), index)
            offsets.load(partition, read_offset(value), log_offset)
        else:
            raise RemoteWireError("an unknown kind of key")

    def all(self) -> Iterator[LoadedGroup]:
        for group_id in self.snapshots | self.offsets:
            offsets = self.offsets.get(group_id)
            yield LoadedGroup(
                group_id,
                self.snapshots.get(group_id),
                GroupOffsets() if offsets is None else offsets,
            )


class Load:
    """One time that a partition is loaded. It may be led again, with other records, before the last time has ended."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition


class GroupLoader:
    def __init__(self, store: GroupStore, coordinator: Coordinator) -> None:
        self.store = store
        self.coordinator = coordinator
        self.replicas = store.replicas
        self.buffer_bytes = store.config.offsets_load_buffer_size
        self.wanted: dict[int, Load] = {}
        """Those to come, and the one that is under way."""
        self.wake = asyncio.Event()

    def leadership_changed(self, partition: Partition) -> None:
        """Whenever a partition of the topic begins or ceases to be led here, or goes on in a new epoch."""
        store, index = self.store, partition.index
        if partition.leader == partition.broker_id and not partition.is_offline:
            wanted = self.wanted.get(index)
            if index not in store.led and (wanted is None or wanted.partition is not partition):
                store.loading[index] = None
                self.wanted[index] = Load(partition)
                self.wake.set()
        elif index in store.led or index in store.loading:
            store.led.pop(index, None)
            store.loading.pop(index, None)
            self.wanted.pop(index, None)
            self.coordinator.drop(index)
            logger.debug("no longer coordinating partition=%s", partition)

    async def run(self) -> None:
        """For as long as the broker runs."""
        while True:
            await self.wake.wait()
            self.wake.clear()
            while self.wanted:
                load = next(iter(self.wanted.values()))
                partition = load.partition
                try:
                    await self.load(load)
                except StorageError as error:
                    logger.error("cannot load groups partition=%s error=%s", partition, error)
                    self.replicas.fail(partition, error)
                except Exception:
                    # Clients would wait for ever. What is lost to them is told, and the partition takes new commits.
                    logger.exception("cannot load groups partition=%s", partition)
                if self.is_wanted(load):
                    del self.wanted[partition.index]
                    del self.store.loading[partition.index]
                    self.store.led[partition.index] = None

    def is_wanted(self, load: Load) -> bool:
        return self.wanted.get(load.partition.index) is load

    async def load(self, load: Load) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        partition = load.partition
        found = await opened_in_turns(await self.contents_of(load), partition)
        turns = Turns(RECORDS_PER_TURN)
        groups = offsets = 0
        for group in found.all():
            await turns.leave()
            if not self.is_wanted(load):
                return
            self.coordinator.take(partition.index, (group,))
            groups += 1
            offsets += len(group.offsets)
        if self.is_wanted(load):
            logger.log(
                logging.INFO if groups else logging.DEBUG,
                "coordinating partition=%s epoch=%d groups=%d offsets=%d seconds=%.3f",
                partition,
                partition.leader_epoch,
                groups,
                offsets,
                loop.time() - began,
            )

    async def contents_of(self, load: Load) -> Contents:
        """All that stands in it. Where a batch is damaged another replica may have it, and is waited for."""
        partition = load.partition
        backoff = Backoff(REPAIR_SECONDS, REPAIR_SECONDS, random=Random(partition.broker_id))
        for _ in range(REPAIRS_WAITED_FOR if len(partition.replicas) > 1 else 0):
            try:
                return await self.read(load, skip_damaged=False)
            except CorruptBatch as error:
                self.replicas.fail(partition, error)
                await backoff.wait()
        return await self.read(load, skip_damaged=True)

    async def read(self, load: Load, *, skip_damaged: bool) -> Contents:
        partition = load.partition
        contents, log = Contents(), partition.log
        offset = log.log_start_offset
        while offset < log.log_end_offset and self.is_wanted(load):
            reached = offset
            try:
                found = log.read(offset, self.buffer_bytes, log.log_end_offset)
                if not found.slices:
                    break
                data = await bytes_of(log.disk, found)
                if data is None:
                    continue
                reached, is_damaged = await self.take_all(contents, partition, data, offset)
                if is_damaged or reached == offset:
                    at = found.slices[0].position
                    raise CorruptBatch(path_of(found), "the checksum does not match", at)
            except CorruptBatch as error:
                if not skip_damaged:
                    raise
                self.replicas.fail(partition, error)
                logger.error("damaged batch, its commits are lost partition=%s", partition)
            offset = reached if reached > offset else log.next_segment_offset(offset)
        return contents

    async def take_all(
        self, contents: Contents, partition: Partition, data: bytes, offset: int
    ) -> tuple[int, bool]:
        """Take what these batches hold: how far they go, and whether one of them is not what was written."""
        turns = Turns(RECORDS_PER_TURN)
        view = memoryview(data)
        is_damaged = False
        for at, header in whole_batches(view):
            if not crc_is_valid(view, at, header):
                is_damaged = True  # and nothing in it is believed, nor how far it goes
                continue
            for record in opened(view[at : at + header.size], header):
                await turns.leave()
                take(contents, record, header, partition)
            offset = max(offset, header.next_offset)
        return offset, is_damaged


async def opened_in_turns(contents: Contents, partition: Partition) -> Groups:
    groups = Groups()
    turns = Turns(RECORDS_PER_TURN)
    for key, (value, log_offset) in contents.latest.items():
        await turns.leave()
        try:
            groups.take(key, value, log_offset)
        except RemoteWireError as error:
            tell_of_unknown(partition, log_offset, error)
    return groups


def take(contents: Contents, record: Record, header: BatchHeader, partition: Partition) -> None:
    try:
        contents.take(record, header)
    except RemoteWireError as error:
        tell_of_unknown(partition, record.offset, error)


def tell_of_unknown(partition: Partition, offset: int, error: RemoteWireError) -> None:
    logger.error(
        "a record of groups is passed over partition=%s offset=%d error=%s",
        partition,
        offset,
        error,
    )


async def bytes_of(disk: Disk, found: LogRead) -> bytes | None:
    """Read in a thread; None if the segment was replaced meanwhile, and another file may have its name."""
    path = path_of(found)
    (part,) = found.slices

    def read() -> bytes:
        file = disk.aside().open(path)
        try:
            return file.read(part.position, part.size)
        finally:
            file.close()

    try:
        data = await in_thread(read)
    except StorageError:
        if path_of(found) == path:
            raise
        return None
    return data if path_of(found) == path else None


def path_of(found: LogRead) -> str:
    return found.slices[0].file.path


def whole_batches(view: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Up to where something stands that cannot be one."""
    with suppress(RemoteWireError):
        yield from batch_headers(view)


def opened(batch: memoryview, header: BatchHeader) -> Iterable[Record]:
    try:
        yield from records(batch)
    except RemoteWireError as error:
        logger.error("cannot open a batch of groups offset=%d error=%s", header.base_offset, error)
