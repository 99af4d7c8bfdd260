"""Random histories of three replicas: leaders change, brokers die and come back, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.messages.alter_partition import (
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResponse,
)
from tests.unit.replication.nodes import Node, Nodes, eventually
from tests.unit.storage.builders import contents

CONTROLLER = 1  # broker 1 is the way to it, so that one does not die
STEPS = 25


class History:
    """The controller's truth, and what producers were promised."""

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
                self.nodes[self.leader].partition()
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
        (wanted,) = topic.partitions
        isr = tuple(each.broker_id for each in wanted.new_isr_with_epochs)
        code = ErrorCode.NONE
        if wanted.leader_epoch < self.epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif wanted.partition_epoch < self.version:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(broker not in self.alive for broker in isr):
            code = ErrorCode.INELIGIBLE_REPLICA
        else:
            self.isr = isr
            self.version += 1
        answer = AlterPartitionPartitionResponse(
            wanted.partition_index, code, self.leader, self.epoch, self.isr, 0, self.version
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

    # ---- what happens

    async def elect(self) -> None:
        candidates = [broker for broker in self.isr if broker in self.alive]
        await self.change(self.random.choice(candidates), self.isr)

    async def kill(self) -> None:
        victims = [broker for broker in self.alive if broker != CONTROLLER]
        if not victims or not any(broker in self.isr for broker in self.alive):
            return
        victim = self.random.choice(victims)
        left = tuple(broker for broker in self.isr if broker != victim)
        if not left:
            return  # the last one in sync: nobody could lead
        await self.nodes[victim].stop()
        self.alive.remove(victim)
        await self.nodes.tell_brokers(*self.alive)
        await self.change(self.leader if self.leader != victim else left[0], left)

    async def revive(self) -> None:
        dead = [broker for broker in (2, 3) if broker not in self.alive]
        if dead:
            broker = self.random.choice(dead)
            await self.nodes[broker].start()
            self.alive.append(broker)
            await self.nodes.tell_brokers(*self.alive)
            await self.nodes.lead(
                self.leader, epoch=self.epoch, isr=self.isr, version=self.version, to=(broker,)
            )

    async def produce(self) -> None:
        for _ in range(self.random.randint(1, 5)):
            self.written += 1
            value = b"%d" % self.written
            try:
                info = self.nodes[self.leader].append(value, acks=-1)
            except ApiError:
                continue
            partition = self.nodes[self.leader].partition()
            promise = partition.promise(info.last_offset + 1)
            self.waiting.append(asyncio.create_task(self.wait(promise, info.last_offset, value)))

    async def wait(self, promise: asyncio.Future[None], offset: int, value: bytes) -> None:
        try:
            await promise
        except ApiError:
            return
        assert self.acknowledged.setdefault(offset, value) == value, "two records at one offset"

    # ---- in the end

    async def settle(self) -> None:
        while len(self.alive) < 3:
            await self.revive()
        await eventually(lambda: sorted(self.isr) == [1, 2, 3], 20)
        log = self.nodes[self.leader].partition().log
        await eventually(lambda: log.high_watermark == log.log_end_offset, 20)
        for broker in (1, 2, 3):
            await self.is_copied(broker)
        for task in self.waiting:
            if task.done():
                task.result()

    async def is_copied(self, broker: int) -> None:
        end = self.nodes[self.leader].partition().log.log_end_offset
        log = self.nodes[broker].partition().log
        await eventually(lambda: log.log_end_offset == end == log.high_watermark, 20)

    def check(self) -> None:
        logs = [contents(self.nodes[broker].partition().log) for broker in (1, 2, 3)]
        assert logs[0] == logs[1] == logs[2]
        assert {offset: logs[0].get(offset) for offset in self.acknowledged} == self.acknowledged
        epochs = [written(self.nodes[broker]) for broker in (1, 2, 3)]
        assert epochs[0] == epochs[1] == epochs[2]


def written(node: Node) -> list[tuple[int, int]]:
    """The history of epochs, but for one in which nothing was written: only its leader knows of it."""
    log = node.partition().log
    return [entry for entry in log.epochs.entries if entry[1] < log.log_end_offset]


@pytest.mark.parametrize("seed", range(12))
async def test_what_was_acknowledged_is_kept_and_all_replicas_agree(seed: int) -> None:
    await History(seed).run()
