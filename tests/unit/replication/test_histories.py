"""Random histories of three replicas with leader changes and broker failures: no acknowledged
record is lost.

The second kind of history delivers the controller's requests to each broker with a delay, and drops
those that a former controller did not send. Replaced leaders that do not know it yet get writes as
well. Records below a high watermark must never change.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import NamedTuple

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.replication.partition import Partition
from barnabas.wire.messages.alter_partition import (
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResponse,
)
from tests.unit.replication.nodes import TOPIC, Node, Nodes, eventually
from tests.unit.storage.builders import contents

CONTROLLER = 1  # broker 1 is the connection to the controller, so it is never killed
STEPS = 25


class RandomHistory:
    """State of the controller, and the records acknowledged to producers."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.nodes = Nodes(*(Node(broker, replica_lag_time_max_ms=1000) for broker in (1, 2, 3)))
        self.alive = [1, 2, 3]
        self.leader = 1
        self.epoch = 0
        self.version = 0
        self.isr: tuple[int, ...] = (1, 2, 3)
        self.acknowledged: dict[int, bytes] = {}
        self.written = 0
        self.waiting: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        await self.nodes.start()
        self.nodes[CONTROLLER].controller.answer = self.alter
        try:
            await self.announce()
            for _ in range(STEPS):
                step = self.random.choice(
                    (self.produce, self.produce, self.produce, self.elect, self.kill, self.revive)
                )
                await step()
                if self.random.random() < 0.5:
                    await asyncio.sleep(self.random.random() * 0.02)
            await self.settle()
            self.check()
        finally:
            for task in self.waiting:
                task.cancel()
            for broker in (1, 2, 3):
                if broker not in self.alive:
                    await self.nodes[broker].start()
            await self.nodes.stop()

    # ---- the controller

    def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        (topic,) = request.topics
        (change,) = topic.partitions
        isr = tuple(each.broker_id for each in change.new_isr_with_epochs)
        code = ErrorCode.NONE
        if change.leader_epoch < self.epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif change.partition_epoch < self.version:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(broker not in self.alive for broker in isr):
            code = ErrorCode.INELIGIBLE_REPLICA
        else:
            self.isr = isr
            self.version += 1
        answer = AlterPartitionPartitionResponse(
            change.partition_index, code, self.leader, self.epoch, self.isr, 0, self.version
        )
        return AlterPartitionResponse(
            topics=(AlterPartitionTopicResponse(topic_id=topic.topic_id, partitions=(answer,)),)
        )

    async def announce(self) -> None:
        to = list(self.alive)
        self.random.shuffle(to)
        await self.nodes.lead(
            self.leader, epoch=self.epoch, isr=self.isr, version=self.version, to=tuple(to)
        )

    async def change(self, leader: int, isr: tuple[int, ...]) -> None:
        self.leader, self.isr = leader, isr
        self.epoch += 1
        self.version += 1
        await self.announce()

    # ---- events

    async def elect(self) -> None:
        candidates = [broker for broker in self.isr if broker in self.alive]
        await self.change(self.random.choice(candidates), self.isr)

    async def kill(self) -> None:
        victims = [broker for broker in self.alive if broker != CONTROLLER]
        if not victims or not any(broker in self.isr for broker in self.alive):
            return
        victim = self.random.choice(victims)
        if self.isr == (victim,):
            return  # the last in-sync replica: no leader would be left
        # It joins no new ISR from now on, but others may still leave the current one while it
        # stops.
        self.alive.remove(victim)
        await self.nodes[victim].stop()
        await self.nodes.send_metadata(*self.alive)
        left = tuple(broker for broker in self.isr if broker != victim)
        await self.change(self.leader if self.leader != victim else left[0], left)

    async def revive(self) -> None:
        dead = [broker for broker in (2, 3) if broker not in self.alive]
        if dead:
            broker = self.random.choice(dead)
            await self.nodes[broker].start()
            self.alive.append(broker)
            await self.nodes.send_metadata(*self.alive)
            await self.send_state(broker)

    async def send_state(self, broker: int) -> None:
        await self.nodes.lead(
            self.leader, epoch=self.epoch, isr=self.isr, version=self.version, to=(broker,)
        )

    async def produce(self) -> None:
        self.write_to(self.leader)

    def write_to(self, broker: int) -> None:
        for _ in range(self.random.randint(1, 5)):
            self.written += 1
            value = b"%d" % self.written
            try:
                info = self.nodes[broker].append(value, acks=-1)
            except ApiError:
                continue
            partition = self.nodes[broker].partition()
            promise = partition.promise(info.last_offset + 1)
            self.waiting.append(
                asyncio.create_task(self.record_acknowledgement(promise, info.last_offset, value))
            )

    async def record_acknowledgement(
        self, promise: asyncio.Future[None], offset: int, value: bytes
    ) -> None:
        try:
            await promise
        except ApiError:
            return
        assert self.acknowledged.setdefault(offset, value) == value, "two records at one offset"

    # ---- final checks

    async def settle(self) -> None:
        while len(self.alive) < 3:
            await self.revive()
        await eventually(lambda: sorted(self.isr) == [1, 2, 3], 20)
        log = self.nodes[self.leader].partition().log
        await eventually(lambda: log.high_watermark == log.log_end_offset, 20)
        for broker in (1, 2, 3):
            await self.wait_until_copied(broker)
        for task in self.waiting:
            if task.done():
                task.result()

    async def wait_until_copied(self, broker: int) -> None:
        end = self.nodes[self.leader].partition().log.log_end_offset
        log = self.nodes[broker].partition().log
        await eventually(lambda: log.log_end_offset == end == log.high_watermark, 20)

    def check(self) -> None:
        logs = [contents(self.nodes[broker].partition().log) for broker in (1, 2, 3)]
        assert logs[0] == logs[1] == logs[2]
        assert {offset: logs[0].get(offset) for offset in self.acknowledged} == self.acknowledged
        epochs = [epochs_with_records(self.nodes[broker]) for broker in (1, 2, 3)]
        assert epochs[0] == epochs[1] == epochs[2]


def epochs_with_records(node: Node) -> list[tuple[int, int]]:
    """Return the leader epochs that have records. Only its leader knows an epoch without records."""
    log = node.partition().log
    return [entry for entry in log.epochs.entries if entry[1] < log.log_end_offset]


class LeaderState(NamedTuple):
    """Leadership that a controller announces."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    version: int


class DelayedHistory(RandomHistory):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.undelivered: dict[int, list[LeaderState]] = {1: [], 2: [], 3: []}
        self.committed: dict[int, bytes | None] = {}
        self.delivery_lock = asyncio.Lock()
        """Held while a broker stops, so that nothing is delivered to it."""

    async def run(self) -> None:
        deliveries = [asyncio.create_task(self.deliver(broker)) for broker in (1, 2, 3)]
        try:
            await super().run()
        finally:
            for task in deliveries:
                task.cancel()
            for ended in await asyncio.gather(*deliveries, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended

    @property
    def state(self) -> LeaderState:
        return LeaderState(self.leader, self.epoch, self.isr, self.version)

    async def announce(self) -> None:
        is_new_controller = self.random.random() < 0.3
        for broker in self.alive:
            if is_new_controller:
                self.undelivered[broker].clear()
            self.undelivered[broker].append(self.state)
        if self.epoch == 0:
            await eventually(lambda: not any(self.undelivered.values()))
            await eventually(lambda: all(self.replica_on(broker) for broker in (1, 2, 3)))

    async def deliver(self, broker: int) -> None:
        while True:
            await asyncio.sleep(self.random.random() ** 3 * 0.06)
            async with self.delivery_lock:
                if self.undelivered[broker] and broker in self.alive:
                    state = self.undelivered[broker].pop(0)
                    partition = self.replica_on(broker)
                    if partition is None or partition.leader_epoch < state.epoch:
                        await self.nodes.lead(**state._asdict(), to=(broker,))

    def replica_on(self, broker: int) -> Partition | None:
        return self.nodes[broker].replicas.partitions.get((TOPIC, 0))

    async def elect(self) -> None:
        await self.check_committed()
        await super().elect()

    async def kill(self) -> None:
        before = list(self.alive)
        async with self.delivery_lock:
            await super().kill()
        for broker in before:
            if broker not in self.alive:
                self.undelivered[broker].clear()

    async def send_state(self, broker: int) -> None:
        self.undelivered[broker] = [self.state]

    async def produce(self) -> None:
        """Write to every broker that considers itself the leader."""
        for broker in list(self.alive):
            partition = self.replica_on(broker)
            if partition is not None and partition.leader == broker:
                self.write_to(broker)

    async def check_committed(self) -> None:
        """Check that committed records of each replica have not changed."""
        for broker in list(self.alive):
            partition = self.replica_on(broker)
            if partition is not None:
                for offset, value in contents(partition.log).items():
                    if offset < partition.log.high_watermark:
                        assert self.committed.setdefault(offset, value) == value, (
                            "a committed record changed"
                        )

    async def settle(self) -> None:
        while len(self.alive) < 3:
            await self.revive()
        await self.change(self.leader, self.isr)
        await eventually(lambda: not any(self.undelivered.values()), 20)
        await super().settle()
        await self.check_committed()


@pytest.mark.parametrize("seed", range(6))
async def test_delayed_leader_changes_lose_no_committed_record(
    seed: int,
) -> None:
    await DelayedHistory(seed).run()


@pytest.mark.parametrize("seed", range(8))
async def test_acknowledged_records_survive_and_replicas_agree(seed: int) -> None:
    await RandomHistory(seed).run()
