"""`barnabas kafka-topics`: parses the options, runs the action, and reports errors like Kafka's command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import click

from barnabas.cli.kafka.command import (
    FAILED,
    OK,
    KafkaCommand,
    connect_client,
    print_hint,
    run_kafka_command,
)
from barnabas.cli.kafka.failures import error_message, log_line
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.kafka.topic_options import (
    ABOUT,
    ABOUT_BRIEF,
    ONLY_ID_WARNING,
    OPTIONS,
    require_action,
)
from barnabas.cli.terminal.output import print_lines, print_note
from barnabas.errors import BarnabasError

LOGGER = "org.apache.kafka.tools.TopicCommand"


@click.command("kafka-topics", cls=KafkaCommand)
def kafka_topics(arguments: Sequence[str]) -> None:
    code = run_kafka_command(
        arguments, known=OPTIONS, about=ABOUT, brief=ABOUT_BRIEF, run=run_action
    )
    raise click.exceptions.Exit(code)


def run_action(options: ParsedOptions) -> int:
    action = require_action(options)
    if options.has("if-exists") and options.has("topic") and options.has("topic-id"):
        print_lines(ONLY_ID_WARNING)
    connect = options.value("zookeeper")
    if connect is None:
        # Only one of the two modules is imported, because the import takes longer than the command itself.
        from barnabas.cli.kafka.topics_by_protocol import BrokerTopics

        cluster = connect_client(options)
        with cluster:
            return run_topics_and_report(lambda: BrokerTopics(cluster, options).run(action))

    from barnabas.cli.kafka.topics_by_zookeeper import run_topics_on_znodes

    return run_topics_and_report(lambda: run_topics_on_znodes(connect, options, action))


def run_topics_and_report(work: Callable[[], None]) -> int:
    try:
        work()
    except BarnabasError as error:
        print_lines(f"Error while executing topic command : {error_message(error)}")
        print_note(*log_line(error, LOGGER, datetime.now().astimezone()).split("\n"))
        print_hint(error)
        return FAILED
    return OK
