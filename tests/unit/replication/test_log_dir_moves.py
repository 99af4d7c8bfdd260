"""Moves between log directories: the decisions of the mover, and moves while leaders change and fsyncs run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec.structs import replace

from barnabas.config import TopicConfig
from barnabas.errors import ErrorCode, StorageError
from barnabas.model import TopicPartition
from barnabas.replication.log_dir_moves import (
    CaughtUp,
    Copy,
    MoveStep,
    StartOver,
    Truncate,
    next_step,
)
from barnabas.storage.log import Log
from barnabas.world.disk import RealDisk
from barnabas.world.ports import File
from tests.unit.replication.nodes import TOPIC, Node, Nodes, eventually
from tests.unit.storage.builders import append, contents, forgetful_disk, new_log

Epochs = dict[int, int]
"""Leader epoch → number of records in it, in order."""


def log_with(epochs: Epochs, *, start: int = 0, name: str = "orders-0") -> Log:
    """A log from offset `start` on, with one record per batch."""
    log = new_log(forgetful_disk(), directory=f"/data/{name}")
    log.truncate_fully_and_start_at(start)
    for epoch, count in epochs.items():
        for _ in range(count):
            append(log, b"x", epoch=epoch)
    return log


@pytest.mark.parametrize(
    ("current", "future", "expected"),
    [
        pytest.param({}, {}, CaughtUp(), id="both empty"),
        pytest.param({0: 5}, {}, Copy(0), id="nothing copied"),
        pytest.param({0: 5}, {0: 3}, Copy(3), id="partly copied"),
        pytest.param({0: 5, 2: 5}, {0: 5}, Copy(5), id="next epoch"),
        pytest.param({0: 5, 2: 5}, {0: 5, 2: 5}, CaughtUp(), id="all copied"),
        pytest.param({0: 3}, {0: 5}, Truncate(3), id="log truncated"),
        pytest.param({0: 3}, {0: 3, 1: 2}, Truncate(3), id="last epoch truncated"),
        pytest.param({0: 3, 2: 9}, {0: 5}, Truncate(3), id="log truncated and written again"),
        pytest.param({0: 3, 2: 9}, {0: 3, 1: 4}, Truncate(3), id="other leader"),
        pytest.param({0: 3, 4: 9}, {0: 3, 1: 2, 2: 4}, Truncate(3), id="two other leaders"),
        pytest.param({}, {0: 5}, Truncate(0), id="log emptied"),
    ],
)
def test_next_step_follows_leader_epochs(
    current: Epochs, future: Epochs, expected: MoveStep
) -> None:
    assert next_step(log_with(current), log_with(future)) == expected


def test_copy_starts_over_when_log_starts_later() -> None:
    assert next_step(log_with({3: 5}, start=10), log_with({0: 5})) == StartOver(10)
    assert next_step(log_with({3: 5}, start=5), log_with({0: 5})) == Copy(5)


def test_copy_starts_over_when_it_lacks_first_records() -> None:
    assert next_step(log_with({0: 9}, start=2), log_with({0: 5}, start=4)) == StartOver(2)


def test_epoch_without_records_is_not_copied() -> None:
    current, future = log_with({0: 5}), log_with({0: 5})
    current.begin_epoch(7)
    assert next_step(current, future) == CaughtUp()


# ---- the task

TP = TopicPartition(TOPIC, 0)


class GatedDisk(RealDisk):
    """Disk whose fsync waits while `gate` is cleared, unless it is of a future log."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0

    async def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        if not any("-future/" in file.path for file in files):
            self.waiting += 1
            await self.gate.wait()
            self.waiting -= 1
        await super().sync(files, directories)


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    """Two brokers. Broker 1 has two log directories."""
    running = Nodes(Node(1), Node(2))
    running[1].disk = GatedDisk()
    running[1].directories = [f"{running[1].directory}/{name}" for name in ("one", "two")]
    await running.start()
    yield running
    await running.stop()


def other_directory(node: Node) -> str:
    return next(
        path for path in node.directories if not node.partition().log.directory.startswith(path)
    )


def move(node: Node) -> Log:
    """Begin a move to the other directory, and return the future log."""
    assert node.replicas.moves.alter(TP, other_directory(node)) is ErrorCode.NONE
    return node.logs.futures[TP]


async def test_future_log_replaces_log_of_partition(nodes: Nodes) -> None:
    await nodes.lead(1)
    node = nodes[1]
    for at in range(10):
        node.append(b"%d" % at)
    before = node.partition().log
    future = move(node)
    await eventually(lambda: node.partition().log is future)
    assert node.logs.logs == {TP: future}
    assert contents(future) == contents(before)
    node.append(b"after", acks=-1)
    await eventually(lambda: nodes[2].partition().log.log_end_offset == 11)
    await eventually(lambda: future.high_watermark == 11)


async def test_flush_that_spans_a_move_covers_new_log(nodes: Nodes) -> None:
    node = nodes[1]
    disk = node.disk
    assert isinstance(disk, GatedDisk)
    for each in (1, 2):
        nodes[each].topics.config = replace(TopicConfig(), flush_messages=1)
    await nodes.lead(1)
    node.append(b"one")
    disk.gate.clear()
    flush = node.replicas.flush(node.partition())
    await eventually(lambda: disk.waiting == 1)
    before = node.partition().log
    future = move(node)
    await eventually(lambda: node.partition().log is future)
    node.append(b"two")
    disk.gate.set()
    await asyncio.wait_for(flush, 30)
    assert future.recovery_point == 2, "the flush continues with the new log"
    assert before is not future
    assert not node.partition().is_offline


async def test_moving_follower_truncates_both_logs(nodes: Nodes) -> None:
    node = nodes[1]
    await nodes.lead(1)
    for _ in range(5):
        node.append(b"common")
    await eventually(lambda: nodes[2].partition().log.log_end_offset == 5)
    await nodes.lead(2, epoch=1, to=(2,))  # broker 1 does not know it
    for _ in range(5):
        node.append(b"lost")
        nodes[2].append(b"kept")
    future = move(node)
    await eventually(lambda: future.log_end_offset == 10)
    await eventually(lambda: node.partition().log is future)
    second = move(node)
    await nodes.lead(2, epoch=1, to=(1,))
    await eventually(lambda: node.partition().log is second)
    expected = dict(enumerate([b"common"] * 5 + [b"kept"] * 5))
    await eventually(lambda: contents(node.partition().log) == expected)
    assert node.partition().log.epochs.entries == nodes[2].partition().log.epochs.entries


async def test_new_replica_is_created_in_preferred_directory(nodes: Nodes) -> None:
    node = nodes[1]
    await nodes.send_metadata(partitions=1)
    preferred = node.directories[1]
    assert node.replicas.moves.alter(TP, preferred) is ErrorCode.REPLICA_NOT_AVAILABLE
    await nodes.lead(1)
    assert node.partition().log.directory == f"{preferred}/{TP}"


async def test_move_resumes_with_next_leader_and_isr(nodes: Nodes) -> None:
    node = nodes[1]
    await nodes.lead(1)
    for _ in range(5):
        node.append(b"x")
    future = move(node)
    node.replicas.moves.remove([TP])
    await asyncio.sleep(0)
    assert node.logs.futures[TP] is future
    await nodes.lead(1, epoch=1)
    await eventually(lambda: node.partition().log is future)


async def test_error_of_target_takes_only_target_offline(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = nodes[1]
    await nodes.lead(1)
    node.append(b"x")
    target = other_directory(node)
    future = move(node)

    def fail(*_: object) -> None:
        raise StorageError(future.directory, "broken")

    monkeypatch.setattr("barnabas.storage.log.Log.append_as_follower", fail)
    await eventually(lambda: list(node.logs.offline) == [target])
    await eventually(lambda: not node.replicas.moves.moves)
    assert not node.partition().is_offline
    node.append(b"after")


async def test_unexpected_error_delays_move(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    node = nodes[1]
    await nodes.lead(1)
    node.append(b"x")
    errors = []

    def fail(*_: object) -> None:
        errors.append(1)
        raise ValueError("unexpected")

    with monkeypatch.context() as patch:
        patch.setattr("barnabas.replication.log_dir_moves.next_step", fail)
        future = move(node)
        await eventually(lambda: bool(errors))
    await eventually(lambda: node.partition().log is future)
