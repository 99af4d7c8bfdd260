"""Members of aiokafka's, each with a loop of its own."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from threading import Event

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

from tests.groups.clients.script import POLL_S, Member, serve

ASSIGNORS = {"range": RangePartitionAssignor}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: AIOKafkaConsumer, member: Member) -> None:
        self.consumer = consumer
        self.member = member

    async def on_partitions_assigned(self, given: set[TopicPartition]) -> None:
        self.member.assigned(each.partition for each in given)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        if revoked:
            await commit(self.consumer, self.member)
            self.member.gave_up(each.partition for each in revoked)


def run(member: Member, stop: Event) -> None:
    asyncio.run(consume(member, stop))


async def consume(member: Member, stop: Event) -> None:
    wish = member.wish
    consumer = AIOKafkaConsumer(
        bootstrap_servers=wish.servers,
        group_id=wish.group,
        group_instance_id=wish.instance,
        partition_assignment_strategy=[ASSIGNORS[wish.assignor]],
        auto_offset_reset="earliest",
        enable_auto_commit=wish.commits == "auto",
        auto_commit_interval_ms=500,
        session_timeout_ms=wish.session_ms,
        heartbeat_interval_ms=wish.heartbeat_ms,
        client_id="aiokafka",
    )
    consumer.subscribe([wish.topic], listener=Listener(consumer, member))
    await consumer.start()
    while not stop.is_set():
        found = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
        for partition, records in found.items():
            member.read(partition.partition, [record.offset for record in records])
        await commit(consumer, member)
    began = time.monotonic()
    # Whose coordinator dies in this moment cannot say goodbye, and is missed.
    with suppress(KafkaError):
        await consumer.stop()
    member.say("closed", seconds=time.monotonic() - began)


async def commit(consumer: AIOKafkaConsumer, member: Member) -> None:
    offsets = member.to_commit()
    if not offsets:
        return
    try:
        await consumer.commit(
            {TopicPartition(member.wish.topic, each): offset for each, offset in offsets.items()}
        )
    except KafkaError as error:
        # Taken with the next, or read again by whoever has the partition then.
        member.say("refused", why=repr(error))
        return
    member.committed(offsets)


if __name__ == "__main__":
    serve(run)
