"""Options of kafka-reassign-partitions."""

from __future__ import annotations

import pytest

from barnabas.cli.kafka.failures import RequestRejected, WrongUsage
from barnabas.cli.kafka.log_dir_moves import LogDirMove, move_line
from barnabas.cli.kafka.options import ParsedOptions, parse_options
from barnabas.cli.kafka.reassign import parse_broker_list
from barnabas.cli.kafka.reassign_options import OPTIONS, check_action, long_option
from tests.unit.reassignment.layouts import tp


def parsed(line: str) -> ParsedOptions:
    return parse_options(OPTIONS, line.split())


def test_actions_are_recognized() -> None:
    file = "--bootstrap-server x --reassignment-json-file f"
    assert (
        check_action(parsed(f"--execute {file} --throttle 5 --additional --timeout 3")) == "execute"
    )
    assert check_action(parsed(f"--verify {file} --preserve-throttles")) == "verify"
    assert check_action(parsed(f"--cancel {file} --timeout 7")) == "cancel"
    assert check_action(parsed("--list --bootstrap-server x")) == "list"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--list --verify",
            "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list",
        ),
        ("--list", "Please specify --bootstrap-server"),
        ("--verify --bootstrap-server x", 'Missing required argument "[reassignment-json-file]"'),
        (
            "--generate --bootstrap-server x --topics-to-move-json-file f",
            'Missing required argument "[broker-list]"',
        ),
        (
            "--list --bootstrap-server x --throttle 5",
            'Option "[throttle]" can\'t be used with action "[list]"',
        ),
        (
            "--execute --bootstrap-server x --reassignment-json-file f --preserve-throttles",
            'Option "[preserve-throttles]" can\'t be used with action "[execute]"',
        ),
    ],
)
def test_wrong_combinations_have_kafkas_message(line: str, message: str) -> None:
    with pytest.raises(WrongUsage) as caught:
        check_action(parsed(line))
    assert caught.value.message == message


def test_rates_are_64_bit_numbers() -> None:
    assert long_option(parsed(f"--throttle {2**40}"), "throttle", -1) == 2**40
    assert long_option(parsed(""), "throttle", -1) == -1
    for text in ("x", "1.5", str(2**63), "--5"):
        with pytest.raises(RequestRejected, match="Cannot parse argument"):
            long_option(parsed(f"--throttle={text}"), "throttle", -1)


def test_broker_list_is_checked() -> None:
    assert parse_broker_list("3,1") == [3, 1]
    with pytest.raises(RequestRejected, match=r"Broker list contains duplicate entries: \[1\]"):
        parse_broker_list("1,2,1")
    with pytest.raises(RequestRejected, match='For input string: "x"'):
        parse_broker_list("1,x")


@pytest.mark.parametrize(
    ("current", "future", "line"),
    [
        ("/b", None, "Reassignment of replica a-0-1 completed successfully."),
        ("/a", "/b", "Reassignment of replica a-0-1 is still in progress."),
        ("/a", "/c", "Partition a-0 on broker 1 is being moved to log dir /c instead of /b."),
        ("/a", None, "Partition a-0 on broker 1 is not being moved from log dir /a to /b."),
        (
            None,
            None,
            "Partition a-0 is not found in any live log dir on broker 1. There is likely an offline log directory on"
            " the broker.",
        ),
    ],
)
def test_moves_between_directories_have_kafkas_lines(
    current: str | None, future: str | None, line: str
) -> None:
    assert move_line(LogDirMove((tp("a-0"), 1), "/b", current, future)) == line
