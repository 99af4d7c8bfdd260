"""Random histories of three replicas: leaders change, brokers die and come back, and nothing acknowledged is lost.

In the second kind brokers hear of it when they hear of it: each at its own pace, and what a controller did not get to
say before the next one came it never says. So there are leaders that were replaced and do not know it, and they are
written to as well; and everybody shows what it takes for committed, which must never change.
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
        if self.isr == (victim,):
            return  # the last one in sync: nobody could lead
        # It is in no new ISR from now on; but others may still fall out of the present one while it dies.
        self.alive.remove(victim)
        await self.nodes[victim].stop()
        await self.nodes.tell_brokers(*self.alive)
        left = tuple(broker for broker in self.isr if broker != victim)
        await self.change(self.leader if self.leader != victim else left[0], left)

    async def revive(self) -> None:
        dead = [broker for broker in (2, 3) if broker not in self.alive]
        if dead:
            broker = self.random.choice(dead)
            await self.nodes[broker].start()
            self.alive.append(broker)
            await self.nodes.tell_brokers(*self.alive)
            await self.say(broker)

    async def say(self, broker: int) -> None:
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


class Word(NamedTuple):
    """What a controller has to say."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    version: int


class HistoryOfLateNews(History):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.unsaid: dict[int, list[Word]] = {1: [], 2: [], 3: []}
        self.seen: dict[int, bytes | None] = {}
        self.is_heard = asyncio.Lock()
        """Nobody is spoken to while it dies."""

    async def run(self) -> None:
        telling = [asyncio.create_task(self.tell(broker)) for broker in (1, 2, 3)]
        try:
            await super().run()
        finally:
            for task in telling:
                task.cancel()
            for ended in await asyncio.gather(*telling, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended

    @property
    def word(self) -> Word:
        return Word(self.leader, self.epoch, self.isr, self.version)

    async def announce(self) -> None:
        is_another_controller = self.random.random() < 0.3
        for broker in self.alive:
            if is_another_controller:
                self.unsaid[broker].clear()
            self.unsaid[broker].append(self.word)
        if self.epoch == 0:
            await eventually(lambda: not any(self.unsaid.values()))
            await eventually(lambda: all(self.held_by(broker) for broker in (1, 2, 3)))

    async def tell(self, broker: int) -> None:
        while True:
            await asyncio.sleep(self.random.random() ** 3 * 0.06)
            async with self.is_heard:
                if self.unsaid[broker] and broker in self.alive:
                    word = self.unsaid[broker].pop(0)
                    held = self.held_by(broker)
                    if held is None or held.leader_epoch < word.epoch:
                        await self.nodes.lead(**word._asdict(), to=(broker,))

    def held_by(self, broker: int) -> Partition | None:
        return self.nodes[broker].replicas.partitions.get((TOPIC, 0))

    async def elect(self) -> None:
        await self.look()
        await super().elect()

    async def kill(self) -> None:
        before = list(self.alive)
        async with self.is_heard:
            await super().kill()
        for broker in before:
            if broker not in self.alive:
                self.unsaid[broker].clear()

    async def say(self, broker: int) -> None:
        self.unsaid[broker] = [self.word]

    async def produce(self) -> None:
        """To all who take themselves for the leader."""
        for broker in list(self.alive):
            held = self.held_by(broker)
            if held is not None and held.leader == broker:
                self.write_to(broker)

    async def look(self) -> None:
        """At what each replica shows."""
        for broker in list(self.alive):
            held = self.held_by(broker)
            if held is not None:
                for offset, value in contents(held.log).items():
                    if offset < held.log.high_watermark:
                        assert self.seen.setdefault(offset, value) == value, "shown, and taken back"

    async def settle(self) -> None:
        while len(self.alive) < 3:
            await self.revive()
        await self.change(self.leader, self.isr)
        await eventually(lambda: not any(self.unsaid.values()), 20)
        await super().settle()
        await self.look()


@pytest.mark.parametrize("seed", range(6))
async def test_whoever_hears_of_it_late_nothing_is_lost_and_nothing_shown_is_taken_back(
    seed: int,
) -> None:
    await HistoryOfLateNews(seed).run()


@pytest.mark.parametrize("seed", range(8))
async def test_what_was_acknowledged_is_kept_and_all_replicas_agree(seed: int) -> None:
    await History(seed).run()
