"""Group members with kafka-python."""

from __future__ import annotations

from threading import Event

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError

from tests.groups.clients.script import Member, close, serve

POLL_MS = 1000
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: KafkaConsumer, member: Member) -> None:
        self.consumer = consumer
        self.member = member

    def on_partitions_assigned(self, given: set[TopicPartition]) -> None:
        self.member.assigned(each.partition for each in given)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        if revoked:
            commit(self.consumer, self.member)
            self.member.gave_up(each.partition for each in revoked)

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.member.gave_up(each.partition for each in lost)


def run(member: Member, stop: Event) -> None:
    options = member.options
    consumer = KafkaConsumer(
        bootstrap_servers=options.servers.split(","),
        group_id=options.group,
        group_instance_id=options.instance,
        partition_assignment_strategy=[ASSIGNORS[options.assignor]],
        auto_offset_reset="earliest",
        enable_auto_commit=options.commits == "auto",
        auto_commit_interval_ms=500,
        session_timeout_ms=options.session_ms,
        max_poll_interval_ms=60_000,
        heartbeat_interval_ms=options.heartbeat_ms,
        client_id="kafka-python",
    )
    consumer.subscribe([options.topic], listener=Listener(consumer, member))
    while not stop.is_set():
        try:
            found = consumer.poll(timeout_ms=POLL_MS)
        except KafkaError as error:
            if not error.retriable:
                raise
            member.emit(
                "trouble", why=repr(error)
            )  # a broker has failed; the next poll tries others
            continue
        for partition, records in found.items():
            member.read(partition.partition, [record.offset for record in records])
        commit(consumer, member)
        force_rejoin(consumer)
    close(member, consumer.close)


def force_rejoin(consumer: KafkaConsumer) -> None:
    """Work around a bug: a leader that rejoins because of new partitions considers the rejoin done once it has computed
    the assignment. If its poll ends before the SyncGroup response, it never asks again. Such a member reads nothing and
    sends no more heartbeats."""
    coordinator = consumer._coordinator
    if coordinator.rejoining and not coordinator.need_rejoin():
        coordinator.request_rejoin()


def commit(consumer: KafkaConsumer, member: Member) -> None:
    offsets = member.to_commit()
    if not offsets:
        return
    try:
        consumer.commit(
            {
                TopicPartition(member.options.topic, each): OffsetAndMetadata(offset, "", -1)
                for each, offset in offsets.items()
            }
        )
    except KafkaError as error:
        # Committed with the next batch, or read again by the partition's next owner.
        member.emit("refused", why=repr(error))
        return
    member.committed(offsets)


if __name__ == "__main__":
    serve(run)
