"""Group members with the Barnabas client."""

from __future__ import annotations

from itertools import groupby
from threading import Event

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning
from barnabas.client.group_consumer import GroupConsumer
from barnabas.errors import ApiError
from barnabas.model import TopicPartition
from tests.groups.clients.script import POLL_S, Member, close, serve


def run(member: Member, stop: Event) -> None:
    options = member.options
    assert options.instance is None

    def on_revoked(partitions: list[TopicPartition]) -> None:
        commit(consumer, member)
        member.gave_up(each.partition for each in partitions)

    with Cluster(options.servers) as cluster:
        consumer = GroupConsumer(
            cluster,
            options.group,
            [options.topic],
            start=Beginning(),
            assignors=(options.assignor,),
            commit_s=0.5 if options.commits == "auto" else None,
            session_timeout_ms=options.session_ms,
            heartbeat_s=options.heartbeat_ms / 1000,
            on_assigned=lambda given: member.assigned(each.partition for each in given),
            on_revoked=on_revoked,
            on_lost=lambda lost: member.gave_up(each.partition for each in lost),
        )
        while not stop.is_set():
            records = consumer.poll(POLL_S)
            for partition, found in groupby(records, lambda record: record.partition):
                member.read(partition, [record.offset for record in found])
            consumer.processed()
            commit(consumer, member)
        close(member, consumer.close)


def commit(consumer: GroupConsumer, member: Member) -> None:
    offsets = member.to_commit()
    if not offsets:
        return
    try:
        consumer.commit(
            {TopicPartition(member.options.topic, each): offset for each, offset in offsets.items()}
        )
    except ApiError as error:
        # Committed with the next batch, or read again by the partition's next owner.
        member.emit("refused", why=str(error))
        return
    member.committed(offsets)


if __name__ == "__main__":
    serve(run)
