from pathlib import Path

import pytest

from barnabas.cli.kafka.config_options import (
    OPTIONS,
    Entities,
    change_warnings,
    check_options,
    completed_line,
    settings_to_add,
    settings_to_delete,
)
from barnabas.cli.kafka.failures import (
    CommandFailed,
    InvalidCommandLine,
    RequestRejected,
    WrongUsage,
)
from barnabas.cli.kafka.options import ParsedOptions, parse_options

BROKERS = "--bootstrap-server broker_host:9092"
ZOOKEEPER = "--zookeeper localhost:2181"
ENTITY = "--entity-type topics --entity-name my_topic_name"


def parse(line: str) -> ParsedOptions:
    return parse_options(OPTIONS, line.split())


@pytest.mark.parametrize(
    ("line", "entities"),
    [
        (f"{BROKERS} {ENTITY} --alter --add-config x=y", Entities(("topics",), ("my_topic_name",))),
        (
            f"{BROKERS} {ENTITY} --alter --delete-config x",
            Entities(("topics",), ("my_topic_name",)),
        ),
        (
            f"{ZOOKEEPER} {ENTITY} --alter --add-config x=y",
            Entities(("topics",), ("my_topic_name",)),
        ),
        (f"{BROKERS} --describe --topic orders --all", Entities(("topics",), ("orders",))),
        (f"{BROKERS} --describe --entity-type topics", Entities(("topics",), ())),
        (f"{BROKERS} --describe --broker 1", Entities(("brokers",), ("1",))),
        (f"{BROKERS} --describe --broker-defaults", Entities(("brokers",), ("",))),
        (
            f"{BROKERS} --describe --entity-type brokers --entity-default",
            Entities(("brokers",), ("",)),
        ),
        (f"{BROKERS} --describe --ip ::1", Entities(("ips",), ("::1",))),
        (f"{ZOOKEEPER} --describe --user-defaults", Entities(("users",), ("",))),
        (
            f"{BROKERS} --describe --entity-type users --entity-default --entity-type clients"
            " --entity-name me",
            Entities(("users", "clients"), ("", "me")),
        ),
    ],
)
def test_valid_command_lines_are_accepted(line: str, entities: Entities) -> None:
    assert check_options(parse(line)) == entities


@pytest.mark.parametrize(
    ("line", "failure", "message"),
    [
        (BROKERS, WrongUsage, "Command must include exactly one action: --describe, --alter"),
        (f"{BROKERS} --alter --describe", WrongUsage, "Command must include exactly one action"),
        (
            f"{BROKERS} --describe --topic a --add-config x=y",
            WrongUsage,
            'Option "[describe]" can\'t be used with option "[add-config]"',
        ),
        (f"{BROKERS} --describe", RequestRejected, "At least one entity type must be specified"),
        (
            f"{BROKERS} --describe --entity-type nosuch",
            RequestRejected,
            "Invalid entity type nosuch, the entity type must be one of topics, clients, users,"
            " brokers, ips, broker-loggers, client-metrics with a --bootstrap-server or"
            " --bootstrap-controller argument",
        ),
        (
            f"{ZOOKEEPER} --describe --entity-type broker-loggers",
            RequestRejected,
            "Invalid entity type broker-loggers, the entity type must be one of topics, clients,"
            " users, brokers, ips with a --zookeeper",
        ),
        (
            f"{BROKERS} --describe --topic a --zk-tls-config-file f",
            RequestRejected,
            "Only the --zookeeper option can be used with the --zk-tls-config-file option.",
        ),
        (
            f"{BROKERS} --alter --entity-type users --entity-name a --entity-type clients --add-config a=1",
            RequestRejected,
            "An entity name must be specified for every entity type",
        ),
        (
            f"{BROKERS} --describe --ip 300.300.300.300",
            RequestRejected,
            "The entity name for ips must be a valid IP or resolvable host, but it is: 300.300.300.300",
        ),
        (
            f"{BROKERS} --describe --user \udcff",
            RequestRejected,
            "\udcff is not valid UTF-8",
        ),
        (
            f"{BROKERS} --describe --entity-type topics --entity-type brokers",
            RequestRejected,
            "Only 'users' and 'clients' entity types may be specified together",
        ),
        (
            f"{BROKERS} --describe --broker 1 --broker 2 --entity-type nosuch",
            RequestRejected,
            "Invalid entity type nosuch,",  # reported before the two brokers
        ),
        (
            f"{BROKERS} --describe --topic a --entity-type topics",
            RequestRejected,
            "Duplicate entity type(s) specified: topics",
        ),
        (
            f"{BROKERS} --describe --topic a --entity-name b",
            RequestRejected,
            "--entity-{type,name,default} should not be used in conjunction",
        ),
        ("--describe --topic a", RequestRejected, "One of the required --bootstrap-server, "),
        (
            f"{BROKERS} {ZOOKEEPER} --describe --topic a",
            RequestRejected,
            "Only one of --bootstrap-server,",
        ),
        (
            "--bootstrap-controller a:1 --describe --topic a",
            RequestRejected,
            "--bootstrap-controller is for clusters without ZooKeeper",
        ),
        (
            f"{ZOOKEEPER} --describe --topic a --all",
            RequestRejected,
            "--bootstrap-server must be specified for --all",
        ),
        (
            f"{BROKERS} --describe --broker x",
            RequestRejected,
            "The entity name for brokers must be a valid integer broker id, but it is: x",
        ),
        (
            f"{BROKERS} --describe --entity-type broker-loggers",
            RequestRejected,
            "an entity name must be specified with --describe of broker-loggers",
        ),
        (
            f"{BROKERS} --alter --entity-type topics --add-config a=b",
            RequestRejected,
            "an entity name must be specified with --alter of topics",
        ),
        (
            f"{BROKERS} --alter --entity-type brokers --add-config a=b",
            RequestRejected,
            "an entity-name or default entity must be specified with --alter of users, clients,",
        ),
        (f"{BROKERS} --alter --topic a", RequestRejected, "At least one of --add-config, "),
        (
            f"{BROKERS} --alter --topic a --add-config a=b --add-config-file f",
            RequestRejected,
            "Only one of --add-config or --add-config-file must be specified",
        ),
    ],
)
def test_invalid_combinations_are_rejected_with_kafka_message(
    line: str, failure: type[CommandFailed], message: str
) -> None:
    with pytest.raises(failure) as caught:
        check_options(parse(line))
    assert caught.value.message.startswith(message)


def test_add_config_parses_pairs_and_bracketed_lists() -> None:
    found = parse("--add-config a=1,b=[x,y],c=")
    assert settings_to_add(found) == {"a": "1", "b": "x,y", "c": ""}


def test_add_config_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_text("retention.ms = 5\n# no\nflush.ms=6\n")
    found = parse(f"--add-config-file {file}")
    assert settings_to_add(found) == {"retention.ms": "5", "flush.ms": "6"}
    with pytest.raises(InvalidCommandLine, match="No such file or directory"):
        settings_to_add(parse(f"--add-config-file {tmp_path}/none"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", 'all configs to be added must be in the format "key=val".'),
        ("a=b=c", 'all configs to be added must be in the format "key=val".'),
        ("a%b=1", "Invalid character found for config key: a%b"),
    ],
)
def test_invalid_add_config_is_rejected(text: str, message: str) -> None:
    with pytest.raises(RequestRejected) as caught:
        settings_to_add(parse(f"--add-config {text}"))
    assert caught.value.message.endswith(message)


def test_delete_config_requires_existing_settings() -> None:
    found = parse("--delete-config a,b --delete-config c")
    assert settings_to_delete(found, ["c", "b", "a"]) == ["a", "b", "c"]
    with pytest.raises(RequestRejected) as caught:
        settings_to_delete(found, ["a"])
    assert caught.value.message == "Invalid config(s): b,c"


def test_format_version_is_warned_about() -> None:
    assert change_warnings({"retention.ms": "1"}) == []
    (warning,) = change_warnings({"message.format.version": "2.8"})
    assert warning.startswith("WARNING: The configuration message.format.version=2.8 is specified.")


def test_completed_lines_are_those_of_kafka() -> None:
    assert completed_line("users", "alice") == "Completed updating config for user alice."
    assert completed_line("ips", "") == "Completed updating default config for ips in the cluster."
