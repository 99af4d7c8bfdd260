"""Members of librdkafka's, by confluent-kafka."""

from __future__ import annotations

from threading import Event

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.groups.clients.script import POLL_S, Member, close, serve


def run(member: Member, stop: Event) -> None:
    wish = member.wish
    settings = {
        "bootstrap.servers": wish.servers,
        "group.id": wish.group,
        "partition.assignment.strategy": wish.assignor,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": wish.commits == "auto",
        "auto.commit.interval.ms": 500,
        "session.timeout.ms": wish.session_ms,
        "heartbeat.interval.ms": wish.heartbeat_ms,
        "client.id": "librdkafka",
    }
    if wish.instance is not None:
        settings["group.instance.id"] = wish.instance
    consumer = Consumer(settings)

    def on_revoke(_: Consumer, partitions: list[TopicPartition]) -> None:
        commit(consumer, member)
        member.gave_up(each.partition for each in partitions)

    consumer.subscribe(
        [wish.topic],
        on_assign=lambda _, given: member.assigned(each.partition for each in given),
        on_revoke=on_revoke,
        on_lost=lambda _, lost: member.gave_up(each.partition for each in lost),
    )
    while not stop.is_set():
        # Those that are there are taken one by one: a rebalance in between is told of before the next.
        message = consumer.poll(POLL_S)
        while message is not None:
            tell(member, message)
            message = consumer.poll(0)
        commit(consumer, member)
    close(member, consumer.close)


def tell(member: Member, message: Message) -> None:
    error = message.error()
    if error is None:
        member.read(message.partition(), [message.offset()])
    elif error.fatal() or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise KafkaException(error)


def commit(consumer: Consumer, member: Member) -> None:
    offsets = member.to_commit()
    if not offsets:
        return
    wanted = [TopicPartition(member.wish.topic, each, offset) for each, offset in offsets.items()]
    try:
        answers = consumer.commit(offsets=wanted, asynchronous=False)
    except KafkaException as error:
        # Taken with the next, or read again by whoever has the partition then.
        member.say("refused", why=str(error))
        return
    if not any(answer.error for answer in answers):
        member.committed(offsets)


if __name__ == "__main__":
    serve(run)
