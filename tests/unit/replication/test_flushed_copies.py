"""Where flush.messages asks for it, what a follower says it holds is on its disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec.structs import replace

from barnabas.config import TopicConfig
from barnabas.errors import StorageError
from barnabas.world.disk import RealDisk
from barnabas.world.ports import File
from tests.unit.replication.nodes import Node, Nodes, eventually


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
