"""With flush.messages, a follower acknowledges only records that are on its disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest
from msgspec.structs import replace

from barnabas.config import TopicConfig
from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.world.disk import RealDisk
from barnabas.world.ports import File
from simulator.disk import ForgetfulDisk
from tests.unit.replication.nodes import TOPIC, Node, Nodes, eventually
from tests.unit.storage.builders import contents


class SlowSyncDisk(RealDisk):
    """Disk whose fsync waits until the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_sync = asyncio.Event()
        self.syncs_started = 0
        self.is_broken = False

    async def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        self.syncs_started += 1
        await self.may_sync.wait()
        if self.is_broken:
            raise StorageError(files[-1].path, "Input/output error")
        await super().sync(files, directories)


@pytest.fixture
async def disk() -> SlowSyncDisk:
    return SlowSyncDisk()


@pytest.fixture
async def two_nodes(disk: SlowSyncDisk) -> AsyncIterator[Nodes]:
    nodes = Nodes(Node(1), Node(2))
    nodes[2].disk = disk
    await nodes.start()
    yield nodes
    disk.may_sync.set()
    await nodes.stop()


def use_config(nodes: Nodes, config: TopicConfig) -> None:
    for node in nodes.nodes.values():
        node.topics.config = config


async def test_record_is_committed_after_followers_synced_it(
    two_nodes: Nodes, disk: SlowSyncDisk
) -> None:
    use_config(two_nodes, replace(TopicConfig(), flush_messages=1))
    await two_nodes.lead(1)
    leader = two_nodes[1].partition()
    info = two_nodes[1].append(b"one", acks=-1)
    await two_nodes[1].replicas.flush(leader)
    await eventually(lambda: disk.syncs_started == 1)
    follower = two_nodes[2].partition().log
    assert follower.log_end_offset == info.last_offset + 1
    assert follower.recovery_point == leader.log.high_watermark == 0
    disk.may_sync.set()
    await asyncio.wait_for(leader.promise(info.last_offset + 1), 30)
    assert follower.recovery_point == info.last_offset + 1


async def test_default_config_waits_for_no_fsync(two_nodes: Nodes, disk: SlowSyncDisk) -> None:
    await two_nodes.lead(1)
    info = two_nodes[1].append(b"one", acks=-1)
    await asyncio.wait_for(two_nodes[1].partition().promise(info.last_offset + 1), 30)
    assert disk.syncs_started == 0


async def test_follower_with_failed_disk_does_not_acknowledge(
    two_nodes: Nodes, disk: SlowSyncDisk
) -> None:
    use_config(two_nodes, replace(TopicConfig(), flush_messages=1))
    await two_nodes.lead(1)
    leader = two_nodes[1].partition()
    two_nodes[1].append(b"one", acks=-1)
    await two_nodes[1].replicas.flush(leader)
    disk.is_broken = True
    disk.may_sync.set()
    await eventually(lambda: two_nodes[2].partition().is_offline)
    # The session continues without the partition; the leader only knows the follower's first
    # offset.
    assert leader.followers[two_nodes[2].id].log_end_offset == 0
    assert leader.log.high_watermark == 0


async def test_fsync_pending_at_shutdown_is_no_disk_failure(
    two_nodes: Nodes, disk: SlowSyncDisk
) -> None:
    use_config(two_nodes, replace(TopicConfig(), flush_messages=1))
    await two_nodes.lead(1)
    two_nodes[1].append(b"one", acks=-1)
    await eventually(lambda: disk.syncs_started == 1)
    awaited = two_nodes[2].replicas.flush(two_nodes[2].partition())  # the next one, not started yet
    await two_nodes[2].stop(clean=True)
    disk.may_sync.set()
    await asyncio.wait([awaited], timeout=0.1)
    assert not two_nodes[2].logs.offline
    assert disk.syncs_started == 1
    await two_nodes[2].start()
    kept = two_nodes[2].logs.get(TopicPartition(TOPIC, 0))
    assert kept is not None
    assert contents(kept) == {0: b"one"}


# ---- power loss on all brokers


class UnsafeNodes:
    """Three brokers whose disks lose data that was not fsynced at a power loss."""

    def __init__(self, config: TopicConfig) -> None:
        self.nodes = Nodes(Node(1), Node(2), Node(3))
        self.disks = {node.id: ForgetfulDisk() for node in self.nodes.nodes.values()}
        for node in self.nodes.nodes.values():
            self.disks[node.id].make_directory("/logs")
            self.disks[node.id].sync_now((), ("/",))
            node.temporary.cleanup()
            node.disk, node.directory = cast(RealDisk, self.disks[node.id]), "/logs"
        use_config(self.nodes, config)

    async def lose_power(self) -> None:
        for node in self.nodes.nodes.values():
            await node.stop()
            self.disks[node.id] = self.disks[node.id].crash()
            node.disk = cast(RealDisk, self.disks[node.id])

    async def start(self) -> None:
        await self.nodes.start()

    async def stop(self) -> None:
        for node in self.nodes.nodes.values():
            await node.stop()


@pytest.mark.parametrize("messages", [1, 4])
async def test_flushed_records_survive_power_loss_of_all_brokers(
    messages: int,
) -> None:
    cluster = UnsafeNodes(replace(TopicConfig(), flush_messages=messages))
    nodes = cluster.nodes
    await cluster.start()
    try:
        await nodes.lead(1)
        leader = nodes[1].partition()
        written = 0
        for number in range(20):
            info = nodes[1].append(b"%d" % number, acks=-1)
            if leader.waits_for_flush:
                await nodes[1].replicas.flush(leader)
                await asyncio.wait_for(leader.promise(info.last_offset + 1), 10)
                written = info.last_offset + 1
        assert written == 20
        await cluster.lose_power()
        await cluster.start()
        for node in nodes.nodes.values():
            found = node.logs.get(TopicPartition(TOPIC, 0))
            assert found is not None, "the log directory is missing"
            assert list(contents(found)) == list(range(written))
    finally:
        await cluster.stop()
