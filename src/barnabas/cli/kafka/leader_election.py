"""`barnabas kafka-leader-election`: elects leaders, with the options, output and exit codes of Kafka's command."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from barnabas.cli.elections.partition_file import parse_partition_file
from barnabas.cli.kafka.command import (
    FAILED,
    OK,
    KafkaCommand,
    connect_client,
    print_hint,
    run_kafka_command,
)
from barnabas.cli.kafka.failures import (
    ADMIN_COMMAND_FAILED,
    ADMIN_OPERATION_FAILED,
    RequestRejected,
    error_message,
    exception_name,
)
from barnabas.cli.kafka.options import COMMON_OPTIONS, CONVERSION_ERROR, Option, ParsedOptions
from barnabas.cli.terminal.output import print_lines, print_note
from barnabas.client.leader_elections import elect_leaders
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.messages.elect_leaders import ElectionType

ABOUT = (
    "This tool attempts to elect a new leader for a set of topic partitions. The type of elections"
    " supported are preferred replicas and unclean replicas."
)
RUNTIME_EXCEPTION = "java.lang.RuntimeException"
SELECTIONS = ("topic", "all-topic-partitions", "path-to-json-file")
CONFIG_OPTION = "admin.config"
ELECTION_TIMEOUT_S = 30.0
TIMEOUTS = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)

OPTIONS = (
    *(each for each in COMMON_OPTIONS if each.name in ("bootstrap-server", "help", "version")),
    Option(
        CONFIG_OPTION,
        "File with client settings, such as security.protocol and client.id.",
        "file",
    ),
    Option(
        "election-type",
        "preferred: the first replica of a partition, if another one leads. unclean: any live replica, if a partition"
        " has no leader. Required.",
        "type",
    ),
    Option("topic", "Topic of the partition. Requires --partition.", "topic"),
    Option("partition", "Number of the partition. Requires --topic.", "number"),
    Option("all-topic-partitions", "All partitions that need an election."),
    Option(
        "path-to-json-file",
        'Partitions in JSON: {"partitions": [{"topic": "foo", "partition": 1}]}.',
        "file",
    ),
)  # fmt: skip


@click.command("kafka-leader-election", cls=KafkaCommand)
def kafka_leader_election(arguments: Sequence[str]) -> None:
    code = run_kafka_command(
        arguments, known=OPTIONS, about=ABOUT, brief=ABOUT, run=run_elections_and_report
    )
    raise click.exceptions.Exit(code)


def run_elections_and_report(options: ParsedOptions) -> int:
    """Run the elections. For an error, print its message, and the line with which Kafka's stack trace starts."""
    try:
        run_elections(options)
    except BarnabasError as error:
        message = error_message(error)
        print_note(message, f"{exception_name(error)}: {message}")
        print_hint(error)
        return FAILED
    return OK


def run_elections(options: ParsedOptions) -> None:
    check_election_options(options)
    election = parse_election_type(options)
    partitions = selected_partitions(options)
    with connect_client(
        options, config_option=CONFIG_OPTION, timeout_s=ELECTION_TIMEOUT_S
    ) as cluster:
        try:
            outcomes = elect_leaders(cluster, election, partitions)
        except ApiError as error:
            raise request_error(error) from None
    failed = print_outcomes(election, outcomes)
    if failed:
        raise RequestRejected(f"{failed} replica(s) could not be elected", ADMIN_COMMAND_FAILED)


def check_election_options(options: ParsedOptions) -> None:
    missing = [name for name in ("bootstrap-server", "election-type") if not options.has(name)]
    if missing:
        raise missing_options(missing)
    if sum(options.has(name) for name in SELECTIONS) != 1:
        raise RequestRejected(
            f"One and only one of the following options is required: {', '.join(SELECTIONS)}",
            ADMIN_COMMAND_FAILED,
        )
    if options.has("topic") and not options.has("partition"):
        raise missing_options(["partition"])
    if options.has("partition") and not options.has("topic"):
        raise RequestRejected(
            "Option partition is only allowed if topic is used", ADMIN_COMMAND_FAILED
        )


def missing_options(names: Sequence[str]) -> RequestRejected:
    return RequestRejected(f"Missing required option(s): {', '.join(names)}", ADMIN_COMMAND_FAILED)


def parse_election_type(options: ParsedOptions) -> ElectionType:
    text = options.value("election-type") or ""
    try:
        return ElectionType[text.upper()]
    except KeyError:
        raise RequestRejected(
            f"Cannot parse argument '{text}' of option election-type", CONVERSION_ERROR
        ) from None


def selected_partitions(options: ParsedOptions) -> list[TopicPartition] | None:
    """Return the selected partitions; None for all."""
    path = options.value("path-to-json-file")
    if path is not None:
        return read_election_file(path)
    topic, number = options.value("topic"), options.number("partition")
    return None if topic is None or number is None else [TopicPartition(topic, number)]


def read_election_file(path: str) -> list[TopicPartition]:
    try:
        return parse_partition_file(Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError:
        raise RequestRejected("Replica election data is empty", ADMIN_OPERATION_FAILED) from None
    except OSError as error:
        why = f"java.nio.file.NoSuchFileException: {path}"
        if not isinstance(error, FileNotFoundError):
            why = f"java.io.IOException: {path} ({error.strerror})"
        raise RequestRejected(why, RUNTIME_EXCEPTION) from None
    except ValueError as error:
        raise RequestRejected(str(error), ADMIN_OPERATION_FAILED) from None


def request_error(error: ApiError) -> BarnabasError:
    """Return the error of a request that failed as a whole, after the line that Kafka prints for it."""
    if error.code in TIMEOUTS:
        message = "Timeout waiting for election results"
    elif error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        message = "Not authorized to perform leader election"
    else:
        return error
    print_lines(message)
    print_note(error_message(error))
    return RequestRejected(message, ADMIN_COMMAND_FAILED)


def print_outcomes(
    election: ElectionType, outcomes: Mapping[TopicPartition, ApiError | None]
) -> int:
    """Print the outcomes in the order of the partitions. Return the number of failed elections."""
    failed = {
        partition: error
        for partition, error in sorted(outcomes.items())
        if error is not None and error.code is not ErrorCode.ELECTION_NOT_NEEDED
    }
    succeeded = sorted(partition for partition, error in outcomes.items() if error is None)
    not_needed = sorted(outcomes.keys() - failed.keys() - set(succeeded))
    if succeeded:
        names = ", ".join(map(str, succeeded))
        print_lines(
            f"Successfully completed leader election ({election.name}) for partitions {names}"
        )
    if not_needed:
        names = ", ".join(map(str, not_needed))
        print_lines(f"Valid replica already elected for partitions {names}")
    for partition, error in failed.items():
        print_lines(
            f"Error completing leader election ({election.name}) for partition: {partition}:"
            f" {exception_name(error)}: {error_message(error)}"
        )
    return len(failed)
