"""`barnabas kafka-topics`: read the line, choose the door, and say what went wrong as Kafka's command does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import click

from barnabas.cli.kafka import command
from barnabas.cli.kafka.command import FAILED, OK, KafkaCommand, complain, complain_hint, say
from barnabas.cli.kafka.failures import logged, message_of
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.kafka.topic_options import (
    ABOUT,
    ABOUT_NOTHING,
    ONLY_THE_ID,
    OPTIONS,
    action_of,
)
from barnabas.errors import BarnabasError

LOGGER = "org.apache.kafka.tools.TopicCommand"


@click.command("kafka-topics", cls=KafkaCommand)
def kafka_topics(arguments: Sequence[str]) -> None:
    raise click.exceptions.Exit(run(arguments))


def run(arguments: Sequence[str]) -> int:
    return command.run(
        arguments, options=OPTIONS, about=ABOUT, about_nothing=ABOUT_NOTHING, act=act
    )


def act(given: ParsedOptions) -> int:
    action = action_of(given)
    if given.has("if-exists") and given.has("topic") and given.has("topic-id"):
        say(ONLY_THE_ID)
    connect = given.value("zookeeper")
    if connect is None:
        # Each door is loaded only when it is opened: the other would cost more than the command.
        from barnabas.cli.kafka.topics_by_protocol import TopicsOfBrokers

        cluster = command.cluster_of(given)
        with cluster:
            return outcome_of(lambda: TopicsOfBrokers(cluster, given).run(action))

    from barnabas.cli.kafka.topics_by_zookeeper import run_on_znodes

    return outcome_of(lambda: run_on_znodes(connect, given, action))


def outcome_of(work: Callable[[], None]) -> int:
    try:
        work()
    except BarnabasError as error:
        say(f"Error while executing topic command : {message_of(error)}")
        complain(*logged(error, LOGGER, datetime.now().astimezone()).split("\n"))
        complain_hint(error)
        return FAILED
    return OK
