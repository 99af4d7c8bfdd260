from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.kafka.failures import RequestRejected
from barnabas.cli.kafka.leader_election import (
    OPTIONS,
    check_election_options,
    parse_election_type,
    print_outcomes,
    selected_partitions,
)
from barnabas.cli.kafka.options import ParsedOptions, parse_options
from barnabas.cli.main import run_command
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.messages.elect_leaders import ElectionType

BASE = "--bootstrap-server a:1 --election-type preferred"
ONE_OF = "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"


def parse(line: str) -> ParsedOptions:
    return parse_options(OPTIONS, line.split())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--topic a", "Missing required option(s): bootstrap-server, election-type"),
        ("--election-type preferred", "Missing required option(s): bootstrap-server"),
        (BASE, ONE_OF),
        (f"{BASE} --topic a --all-topic-partitions", ONE_OF),
        (f"{BASE} --topic a", "Missing required option(s): partition"),
        (
            f"{BASE} --all-topic-partitions --partition 1",
            "Option partition is only allowed if topic is used",
        ),
    ],
)
def test_invalid_combinations_have_kafka_message(line: str, message: str) -> None:
    with pytest.raises(RequestRejected) as caught:
        check_election_options(parse(line))
    assert caught.value.message == message
    assert caught.value.exception.endswith(".AdminCommandFailedException")


def test_election_type_ignores_case() -> None:
    assert parse_election_type(parse("--election-type PREFERRED")) is ElectionType.PREFERRED
    assert parse_election_type(parse("--election-type unclean")) is ElectionType.UNCLEAN
    with pytest.raises(RequestRejected, match="Cannot parse argument 'x' of option election-type"):
        parse_election_type(parse("--election-type x"))


def test_selection_is_one_partition_a_file_or_all(tmp_path: Path) -> None:
    file = tmp_path / "partitions.json"
    file.write_text('{"partitions": [{"topic": "a", "partition": 3}]}')
    assert selected_partitions(parse(f"{BASE} --all-topic-partitions")) is None
    assert selected_partitions(parse(f"{BASE} --topic a --partition 1")) == [TopicPartition("a", 1)]
    assert selected_partitions(parse(f"{BASE} --path-to-json-file {file}")) == [
        TopicPartition("a", 3)
    ]
    file.write_text("nope")
    with pytest.raises(RequestRejected, match="Replica election data is empty"):
        selected_partitions(parse(f"{BASE} --path-to-json-file {file}"))
    file.write_text('{"partitions": 3}')
    with pytest.raises(RequestRejected):
        selected_partitions(parse(f"{BASE} --path-to-json-file {file}"))
    with pytest.raises(RequestRejected, match="NoSuchFileException"):
        selected_partitions(parse(f"{BASE} --path-to-json-file {tmp_path}/none"))


def test_outcomes_are_printed_like_kafka(capsys: pytest.CaptureFixture[str]) -> None:
    failed = print_outcomes(
        ElectionType.PREFERRED,
        {
            TopicPartition("b", 0): None,
            TopicPartition("a", 10): None,
            TopicPartition("a", 9): None,
            TopicPartition("c", 0): ApiError(ErrorCode.ELECTION_NOT_NEEDED),
            TopicPartition("d", 0): ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "no"),
        },
    )
    assert failed == 1
    assert capsys.readouterr().out.splitlines() == [
        "Successfully completed leader election (PREFERRED) for partitions a-9, a-10, b-0",
        "Valid replica already elected for partitions c-0",
        "Error completing leader election (PREFERRED) for partition: d-0:"
        " org.apache.kafka.common.errors.PreferredLeaderNotAvailableException: no",
    ]


def test_error_is_message_and_exception_with_exit_code_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["kafka-leader-election", *BASE.split()]) == 1
    message, exception = capsys.readouterr().err.splitlines()
    assert message == ONE_OF
    assert exception == f"org.apache.kafka.server.common.AdminCommandFailedException: {ONE_OF}"


def test_unreachable_broker_is_a_timeout_as_in_kafka(capsys: pytest.CaptureFixture[str]) -> None:
    line = "--bootstrap-server 127.0.0.1:1 --election-type unclean --topic a --partition 0"
    assert run_command(["kafka-leader-election", *line.split()]) == 1
    captured = capsys.readouterr()
    assert captured.out == "Timeout waiting for election results\n"
    assert "no broker answers: 127.0.0.1" in captured.err
