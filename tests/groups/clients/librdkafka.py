"""Group members with librdkafka, through confluent-kafka."""

from __future__ import annotations

from threading import Event

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.groups.clients.script import POLL_S, Member, close, serve


def run(member: Member, stop: Event) -> None:
    options = member.options
    settings = {
        "bootstrap.servers": options.servers,
        "group.id": options.group,
        "partition.assignment.strategy": options.assignor,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": options.commits == "auto",
        "auto.commit.interval.ms": 500,
        "session.timeout.ms": options.session_ms,
        "heartbeat.interval.ms": options.heartbeat_ms,
        "client.id": "librdkafka",
    }
    if options.instance is not None:
        settings["group.instance.id"] = options.instance
    consumer = Consumer(settings)

    def on_revoke(_: Consumer, partitions: list[TopicPartition]) -> None:
        commit(consumer, member)
        member.gave_up(each.partition for each in partitions)

    consumer.subscribe(
        [options.topic],
        on_assign=lambda _, given: member.assigned(each.partition for each in given),
        on_revoke=on_revoke,
        on_lost=lambda _, lost: member.gave_up(each.partition for each in lost),
    )
    while not stop.is_set():
        # Fetch available messages one by one: a rebalance in between is reported before the next.
        message = consumer.poll(POLL_S)
        while message is not None:
            report(member, message)
            message = consumer.poll(0)
        commit(consumer, member)
    close(member, consumer.close)


def report(member: Member, message: Message) -> None:
    error = message.error()
    if error is None:
        member.read(message.partition(), [message.offset()])
    elif error.fatal() or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise KafkaException(error)


def commit(consumer: Consumer, member: Member) -> None:
    offsets = member.to_commit()
    if not offsets:
        return
    wanted = [
        TopicPartition(member.options.topic, each, offset) for each, offset in offsets.items()
    ]
    try:
        answers = consumer.commit(offsets=wanted, asynchronous=False)
    except KafkaException as error:
        # Committed with the next batch, or read again by the partition's next owner.
        member.emit("refused", why=str(error))
        return
    if not any(answer.error for answer in answers):
        member.committed(offsets)


if __name__ == "__main__":
    serve(run)
