"""Where flush.messages asks for it, what a follower says it holds is on its disk."""

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


class HeldDisk(RealDisk):
    """An fsync takes until the test lets it come to an end."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = asyncio.Event()
        self.begun = 0
        self.is_broken = False

    async def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        self.begun += 1
        await self.let_go.wait()
        if self.is_broken:
            raise StorageError(files[-1].path, "Input/output error")
        await super().sync(files, directories)


@pytest.fixture
async def disk() -> HeldDisk:
    return HeldDisk()


@pytest.fixture
async def two(disk: HeldDisk) -> AsyncIterator[Nodes]:
    nodes = Nodes(Node(1), Node(2))
    nodes[2].disk = disk
    await nodes.start()
    yield nodes
    disk.let_go.set()
    await nodes.stop()


def use(nodes: Nodes, config: TopicConfig) -> None:
    for node in nodes.nodes.values():
        node.topics.config = config


async def test_nothing_is_acknowledged_before_it_is_on_the_disks_of_its_followers(
    two: Nodes, disk: HeldDisk
) -> None:
    use(two, replace(TopicConfig(), flush_messages=1))
    await two.lead(1)
    leader = two[1].partition()
    info = two[1].append(b"one", acks=-1)
    await two[1].replicas.flush(leader)
    await eventually(lambda: disk.begun == 1)
    follower = two[2].partition().log
    assert follower.log_end_offset == info.last_offset + 1
    assert follower.recovery_point == leader.log.high_watermark == 0
    disk.let_go.set()
    await asyncio.wait_for(leader.promise(info.last_offset + 1), 30)
    assert follower.recovery_point == info.last_offset + 1


async def test_who_does_not_ask_for_it_does_not_wait_for_any_disk(
    two: Nodes, disk: HeldDisk
) -> None:
    await two.lead(1)
    info = two[1].append(b"one", acks=-1)
    await asyncio.wait_for(two[1].partition().promise(info.last_offset + 1), 30)
    assert disk.begun == 0


async def test_a_follower_whose_disk_fails_meanwhile_says_nothing_of_it(
    two: Nodes, disk: HeldDisk
) -> None:
    use(two, replace(TopicConfig(), flush_messages=1))
    await two.lead(1)
    leader = two[1].partition()
    two[1].append(b"one", acks=-1)
    await two[1].replicas.flush(leader)
    disk.is_broken = True
    disk.let_go.set()
    await eventually(lambda: two[2].partition().is_offline)
    # Its session goes on without the partition: the leader has heard no more of it than where it began.
    assert leader.followers[two[2].id].log_end_offset == 0
    assert leader.log.high_watermark == 0


async def test_an_fsync_under_way_ends_with_its_broker_and_is_no_broken_disk(
    two: Nodes, disk: HeldDisk
) -> None:
    use(two, replace(TopicConfig(), flush_messages=1))
    await two.lead(1)
    two[1].append(b"one", acks=-1)
    await eventually(lambda: disk.begun == 1)
    awaited = two[2].replicas.flush(two[2].partition())  # the next one, not begun yet
    await two[2].stop(clean=True)
    disk.let_go.set()
    await asyncio.wait([awaited], timeout=0.1)
    assert not two[2].logs.offline
    assert disk.begun == 1
    await two[2].start()
    kept = two[2].logs.get(TopicPartition(TOPIC, 0))
    assert kept is not None
    assert contents(kept) == {0: b"one"}


# ---- the power goes for all of them at once


class PoweredNodes:
    """Three brokers on disks that forget what was not fsynced when they lose their power."""

    def __init__(self, config: TopicConfig) -> None:
        self.nodes = Nodes(Node(1), Node(2), Node(3))
        self.disks = {node.id: ForgetfulDisk() for node in self.nodes.nodes.values()}
        for node in self.nodes.nodes.values():
            self.disks[node.id].make_directory("/logs")
            self.disks[node.id].sync_now((), ("/",))
            node.temporary.cleanup()
            node.disk, node.directory = cast(RealDisk, self.disks[node.id]), "/logs"
        use(self.nodes, config)

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
async def test_what_has_to_be_on_all_disks_is_there_after_all_lost_their_power(
    messages: int,
) -> None:
    powered = PoweredNodes(replace(TopicConfig(), flush_messages=messages))
    nodes = powered.nodes
    await powered.start()
    try:
        await nodes.lead(1)
        leader = nodes[1].partition()
        written = 0
        for number in range(20):
            info = nodes[1].append(b"%d" % number, acks=-1)
            if leader.is_held:
                await nodes[1].replicas.flush(leader)
                await asyncio.wait_for(leader.promise(info.last_offset + 1), 10)
                written = info.last_offset + 1
        assert written == 20
        await powered.lose_power()
        await powered.start()
        for node in nodes.nodes.values():
            found = node.logs.get(TopicPartition(TOPIC, 0))
            assert found is not None, "not even its directory is there"
            assert list(contents(found)) == list(range(written))
    finally:
        await powered.stop()
