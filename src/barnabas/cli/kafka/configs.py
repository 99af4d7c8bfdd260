"""`barnabas kafka-configs`: read the line, choose the door, and say what went wrong as Kafka's command does."""

from __future__ import annotations

from collections.abc import Sequence

import click

from barnabas.cli.kafka import command
from barnabas.cli.kafka.command import FAILED, OK, KafkaCommand, complain, complain_hint, say
from barnabas.cli.kafka.config_options import ABOUT, OPTIONS, checked
from barnabas.cli.kafka.failures import (
    ILLEGAL_ARGUMENT,
    CommandFailed,
    Refused,
    exception_of,
    message_of,
)
from barnabas.cli.kafka.options import MULTIPLE_ARGUMENTS, ParsedOptions
from barnabas.cli.kafka.topic_settings import INVALID_CONFIGURATION
from barnabas.errors import BarnabasError

SAID_IN_ONE_LINE = (ILLEGAL_ARGUMENT, INVALID_CONFIGURATION, MULTIPLE_ARGUMENTS)
ZOOKEEPER_WARNING = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.",
    "Use --bootstrap-server instead to specify a broker to connect to.",
)


@click.command("kafka-configs", cls=KafkaCommand)
def kafka_configs(arguments: Sequence[str]) -> None:
    raise click.exceptions.Exit(run(arguments))


def run(arguments: Sequence[str]) -> int:
    def act(given: ParsedOptions) -> int:
        return act_and_tell(given, arguments)

    return command.run(arguments, options=OPTIONS, about=ABOUT, about_nothing=ABOUT, act=act)


def act_and_tell(given: ParsedOptions, arguments: Sequence[str]) -> int:
    try:
        act(given)
    except BarnabasError as error:
        is_long = isinstance(error, Refused) and error.exception not in SAID_IN_ONE_LINE
        if isinstance(error, CommandFailed) and not is_long:
            raise
        complain(f"Error while executing config command with args '{' '.join(arguments)}'")
        complain(f"{exception_of(error)}: {message_of(error)}")
        complain_hint(error)
        return FAILED
    return OK


def act(given: ParsedOptions) -> None:
    entities = checked(given)
    connect = given.value("zookeeper")
    if connect is not None:
        from barnabas.cli.kafka.configs_by_zookeeper import run_on_znodes

        say(*ZOOKEEPER_WARNING)
        run_on_znodes(connect, given, entities)
        return

    from barnabas.cli.kafka.configs_by_protocol import ConfigsOfBrokers

    with command.cluster_of(given) as cluster:
        ConfigsOfBrokers(cluster, given, entities).run()
