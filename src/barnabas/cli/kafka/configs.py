"""`barnabas kafka-configs`: parses the options, runs the request, and reports errors like Kafka's command."""

from __future__ import annotations

from collections.abc import Sequence

import click

from barnabas.cli.kafka.command import (
    FAILED,
    OK,
    KafkaCommand,
    connect_client,
    print_hint,
    run_kafka_command,
)
from barnabas.cli.kafka.config_options import ABOUT, OPTIONS, check_options
from barnabas.cli.kafka.failures import (
    ILLEGAL_ARGUMENT,
    CommandFailed,
    RequestRejected,
    error_message,
    exception_name,
)
from barnabas.cli.kafka.options import MULTIPLE_ARGUMENTS, ParsedOptions
from barnabas.cli.kafka.scram_by_protocol import hide_passwords
from barnabas.cli.kafka.topic_settings import INVALID_CONFIGURATION
from barnabas.cli.terminal.output import print_lines, print_note
from barnabas.errors import BarnabasError

MESSAGE_ONLY = (ILLEGAL_ARGUMENT, INVALID_CONFIGURATION, MULTIPLE_ARGUMENTS)
"""Exceptions of which Kafka's command prints only the message."""
ZOOKEEPER_WARNING = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.",
    "Use --bootstrap-server instead to specify a broker to connect to.",
)


@click.command("kafka-configs", cls=KafkaCommand)
def kafka_configs(arguments: Sequence[str]) -> None:
    code = run_kafka_command(
        arguments,
        known=OPTIONS,
        about=ABOUT,
        brief=ABOUT,
        run=lambda options: run_configs_and_report(options, arguments),
    )
    raise click.exceptions.Exit(code)


def run_configs_and_report(options: ParsedOptions, arguments: Sequence[str]) -> int:
    try:
        change_or_describe(options)
    except BarnabasError as error:
        prints_name = isinstance(error, RequestRejected) and error.exception not in MESSAGE_ONLY
        if isinstance(error, CommandFailed) and not prints_name:
            raise
        shown = " ".join(hide_passwords(arguments))
        print_note(f"Error while executing config command with args '{shown}'")
        print_note(f"{exception_name(error)}: {error_message(error)}")
        print_hint(error)
        return FAILED
    return OK


def change_or_describe(options: ParsedOptions) -> None:
    entities = check_options(options)
    connect = options.value("zookeeper")
    if connect is not None:
        from barnabas.cli.kafka.configs_by_zookeeper import run_configs_on_znodes

        print_lines(*ZOOKEEPER_WARNING)
        run_configs_on_znodes(connect, options, entities)
        return

    from barnabas.cli.kafka.configs_by_protocol import run_configs_on_brokers

    with connect_client(options) as cluster:
        run_configs_on_brokers(cluster, options, entities)
