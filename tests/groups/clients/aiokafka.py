"""Group members with aiokafka, each with its own event loop."""

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
    options = member.options
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.servers,
        group_id=options.group,
        group_instance_id=options.instance,
        partition_assignment_strategy=[ASSIGNORS[options.assignor]],
        auto_offset_reset="earliest",
        enable_auto_commit=options.commits == "auto",
        auto_commit_interval_ms=500,
        session_timeout_ms=options.session_ms,
        heartbeat_interval_ms=options.heartbeat_ms,
        client_id="aiokafka",
    )
    consumer.subscribe([options.topic], listener=Listener(consumer, member))
    await consumer.start()
    while not stop.is_set():
        found = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
        for partition, records in found.items():
            member.read(partition.partition, [record.offset for record in records])
        await commit(consumer, member)
    began = time.monotonic()
    # If the coordinator fails at this moment, the member cannot leave; its session times out.
    with suppress(KafkaError):
        await consumer.stop()
    member.emit("closed", seconds=time.monotonic() - began)


async def commit(consumer: AIOKafkaConsumer, member: Member) -> None:
    offsets = member.to_commit()
    if not offsets:
        return
    try:
        await consumer.commit(
            {TopicPartition(member.options.topic, each): offset for each, offset in offsets.items()}
        )
    except KafkaError as error:
        # Committed with the next batch, or read again by the partition's next owner.
        member.emit("refused", why=repr(error))
        return
    member.committed(offsets)


if __name__ == "__main__":
    serve(run)
