import pytest

from barnabas.cli.kafka.failures import (
    CommandFailed,
    InvalidCommandLine,
    RequestRejected,
    WrongUsage,
)
from barnabas.cli.kafka.options import ParsedOptions, parse_options
from barnabas.cli.kafka.topic_options import (
    OPTIONS,
    check_requested_counts,
    creation_warnings,
    matching_topics,
    parse_config_options,
    parse_replica_assignment,
    parse_requested_topic,
    require_action,
)

BROKERS = "--bootstrap-server localhost:9092"
ZOOKEEPER = "--zookeeper localhost:2181/chroot"


def parse(line: str) -> ParsedOptions:
    return parse_options(OPTIONS, line.split())


@pytest.mark.parametrize(
    ("line", "action"),
    [
        (f"--create --topic test {ZOOKEEPER} --partitions 3 --replication-factor 2", "create"),
        (
            f"--create {BROKERS} --topic my-topic-name --replication-factor 3 --partitions 3"
            " --config max.message.bytes=64000",
            "create",
        ),
        (
            f"--create {BROKERS} --topic my-topic-name --replica-assignment 0:1:2,0:1:2,0:1:2"
            " --config max.message.bytes=64000",
            "create",
        ),
        (f"{BROKERS} --alter --topic my_topic_name --partitions 4", "alter"),
        (
            f"{BROKERS} --alter --topic my-topic-name"
            " --replica-assignment 0:1:2,0:1:2,0:1:2,2:1:0 --partitions 4",
            "alter",
        ),
        (f"{BROKERS} --delete --topic my_topic_name", "delete"),
        (
            f"{ZOOKEEPER} --alter --topic t --config retention.ms=1 --delete-config flush.ms",
            "alter",
        ),
        (f"{ZOOKEEPER} --create --topic t --replica-assignment 0:1 --disable-rack-aware", "create"),
        (f"{ZOOKEEPER} --list --exclude-internal", "list"),
        (f"{BROKERS} --describe", "describe"),
        (f"{BROKERS} --describe --under-replicated-partitions --at-min-isr-partitions", "describe"),
    ],
)
def test_valid_command_lines_are_accepted(line: str, action: str) -> None:
    found = parse(line)
    assert require_action(found) == action
    if action in ("create", "alter"):
        assert parse_requested_topic(found).name


@pytest.mark.parametrize(
    ("line", "failure", "message"),
    [
        (BROKERS, WrongUsage, "Command must include exactly one action: --list, --describe, "),
        (f"{BROKERS} --list --create", WrongUsage, "Command must include exactly one action"),
        ("--list", InvalidCommandLine, "--bootstrap-server must be specified"),
        (
            f"{BROKERS} {ZOOKEEPER} --list",
            InvalidCommandLine,
            "Only one of --bootstrap-server or --zookeeper",
        ),
        (f"{BROKERS} --delete", WrongUsage, 'Missing required argument "[topic]"'),
        (f"{BROKERS} --alter --topic a", WrongUsage, 'Missing required argument "[partitions]"'),
        (
            f"{ZOOKEEPER} --create --topic a --partitions 1",
            WrongUsage,
            'Missing required argument "[replication-factor]"',
        ),
        (
            f"{BROKERS} --alter --topic a --config x=y",
            WrongUsage,
            'Option combination "[[bootstrap-server], [config]]" can\'t be used with option'
            ' "[alter]" (the kafka-configs CLI supports altering topic configs',
        ),
        (
            f"{BROKERS} --alter --topic a --partitions 3 --delete-config x",
            WrongUsage,
            'Option "[delete-config]" can\'t be used with option "[bootstrap-server]"',
        ),
        (
            f"{BROKERS} --create --topic a --replica-assignment 1 --partitions 1",
            WrongUsage,
            'Option "[replica-assignment]" can\'t be used with option "[partitions]"',
        ),
        (
            f"{BROKERS} --describe --unavailable-partitions --topics-with-overrides",
            WrongUsage,
            'Option "[unavailable-partitions]" can\'t be used with option "[topics-with-overrides]"',
        ),
        (
            f"{BROKERS} --list --unavailable-partitions --under-min-isr-partitions",
            WrongUsage,
            'Option "[under-min-isr-partitions]" can\'t be used with option "[list]"',
        ),
        (
            f"{ZOOKEEPER} --describe --under-min-isr-partitions",
            WrongUsage,
            'Option "[under-min-isr-partitions]" can\'t be used with option "[zookeeper]"',
        ),
        (
            f"{BROKERS} --list --if-exists",
            WrongUsage,
            'Option "[if-exists]" can\'t be used with option "[list]"',
        ),
        (
            f"{BROKERS} --delete --topic a --if-not-exists",
            WrongUsage,
            'Option "[if-not-exists]" can\'t be used with option "[delete]"',
        ),
        (
            f"{BROKERS} --delete --topic a --exclude-internal",
            WrongUsage,
            'Option "[exclude-internal]" can\'t be used with option "[delete]"',
        ),
        (
            f"{BROKERS} --describe --if-exists",
            WrongUsage,
            "--topic or --topic-id is required to describe a topic",
        ),
    ],
)
def test_invalid_combinations_are_rejected_with_kafka_message(
    line: str, failure: type[CommandFailed], message: str
) -> None:
    with pytest.raises(failure) as caught:
        require_action(parse(line))
    assert caught.value.message.startswith(message)


def test_assignment_lists_brokers_per_partition() -> None:
    assert parse_replica_assignment("0:1:2, 1: 2:0,") == ((0, 1, 2), (1, 2, 0))
    assert parse_replica_assignment("") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1:1:2:2", "Partition replica lists may not contain duplicate entries: 1,2"),
        ("1:2,3", "Partition 1 has different replication factor: [3]"),
        ("1:x", 'For input string: "x"'),
        (",1", 'For input string: ""'),
        ("99999999999", 'For input string: "99999999999"'),
    ],
)
def test_invalid_assignment_is_rejected(text: str, message: str) -> None:
    with pytest.raises(RequestRejected) as caught:
        parse_replica_assignment(text)
    assert caught.value.message == message


def test_configs_are_pairs_and_last_value_wins() -> None:
    pairs = ["retention.ms = 5 ", "retention.ms=6", "cleanup.policy=compact,delete"]
    assert parse_config_options(pairs) == {"retention.ms": "6", "cleanup.policy": "compact,delete"}
    for wrong in ("retention.ms", "retention.ms=", "a=b=c", ""):
        with pytest.raises(RequestRejected, match='must be in the format "key=val"'):
            parse_config_options([wrong])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--partitions 0", "The partitions must be greater than 0"),
        ("--replication-factor 0", "The replication factor must be between 1 and 32767 inclusive"),
        ("--replication-factor 32768", "The replication factor must be between 1 and 32767"),
        ("--partitions x", "Cannot parse argument 'x' of option partitions"),
    ],
)
def test_counts_out_of_range_are_rejected_locally(line: str, message: str) -> None:
    with pytest.raises(RequestRejected) as caught:
        check_requested_counts(parse_requested_topic(parse(f"{BROKERS} --create --topic a {line}")))
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--topic a", []),
        ("--topic a.b", ["WARNING: Due to limitations in metric names"]),
        (
            "--topic a_b --config message.format.version=2.8",
            [
                "WARNING: The configuration message.format.version=2.8 is specified. This",
                "WARNING: Due to limitations in metric names",
            ],
        ),
    ],
)
def test_creation_warns_of_deprecated_setting_and_colliding_names(
    line: str, expected: list[str]
) -> None:
    warnings = creation_warnings(parse_requested_topic(parse(f"{BROKERS} --create {line}")))
    assert [warning[: len(start)] for warning, start in zip(warnings, expected, strict=True)] == (
        expected
    )


@pytest.mark.parametrize(
    ("text", "excluding", "expected"),
    [
        (None, False, ["__consumer_offsets", "a.b", "aXb", "orders"]),
        (None, True, ["a.b", "aXb", "orders"]),
        ("orders", False, ["orders"]),
        ("order", False, []),
        ("a.b", False, ["a.b", "aXb"]),
        (r"a\.b", False, ["a.b"]),
        ("orders, a.b", False, ["a.b", "aXb", "orders"]),
        ("'orders'", False, ["orders"]),
        ("", False, []),
        (".*", True, ["a.b", "aXb", "orders"]),
    ],
)
def test_topic_filter_accepts_names_regexes_and_lists(
    text: str | None, excluding: bool, expected: list[str]
) -> None:
    topics = [("orders", False), ("a.b", False), ("aXb", False), ("__consumer_offsets", True)]
    found = [("topic", text)] * (text is not None) + [("exclude-internal", None)] * excluding
    assert matching_topics(ParsedOptions(tuple(found)), topics) == expected


@pytest.mark.parametrize("text", ["a(", "[[a", "a{99999999999}", "(" * 5000])
def test_invalid_regex_is_rejected(text: str) -> None:
    with pytest.raises(RequestRejected) as caught:
        matching_topics(ParsedOptions((("topic", text),)), [])
    assert caught.value.message == f"{text} is an invalid regex."
