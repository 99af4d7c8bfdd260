"""Kafka's commands as processes see them, where no broker is needed."""

from pathlib import Path

import pytest

from barnabas.cli.kafka.command import connect_client, parse_milliseconds, read_properties
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.main import run_command
from barnabas.errors import ConfigError
from barnabas.model import SecurityProtocol

COMMANDS = ("kafka-topics", "kafka-configs", "kafka-leader-election")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_goes_to_stderr_with_exit_code_1(
    name: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([name, *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "--bootstrap-server <brokers>" in captured.err


@pytest.mark.parametrize("name", COMMANDS)
def test_version_starts_with_kafka_version(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([name, "--version"]) == 0
    assert capsys.readouterr().out.startswith("3.9.0 (Barnabas ")


@pytest.mark.parametrize("name", COMMANDS)
def test_unknown_option_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([name, "--nosuch"]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "nosuch is not a recognized option\n")


def test_wrong_usage_shows_message_and_all_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["kafka-topics", "--bootstrap-server", "a:1", "--delete"]) == 1
    first, *others = capsys.readouterr().err.splitlines()
    assert first == 'Missing required argument "[topic]"'
    assert any(line.startswith("--replica-assignment ") for line in others)


def test_invalid_address_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["kafka-topics", "--bootstrap-server", "a:b", "--list"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "bootstrap.servers: 'a:b' is not an address; write host:port\n"


def test_unreachable_broker_is_reported_in_kafka_format(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["kafka-topics", "--bootstrap-server", "127.0.0.1:1", "--list"]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith(
        "Error while executing topic command : no broker answers: 127.0.0.1"
    )
    assert "ERROR org.apache.kafka.common.errors.TimeoutException: " in captured.err
    assert "hint:  start a cluster" in captured.err


def test_repeated_option_of_kafka_configs_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    twice = ["--topic", "a", "--topic", "b"]
    assert run_command(["kafka-configs", "--bootstrap-server", "a:1", "--describe", *twice]) == 1
    expected = "Found multiple arguments for option topic, but you asked for only one\n"
    assert capsys.readouterr().err == expected


def test_client_file_is_read_with_its_security_settings(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=me\ndefault.api.timeout.ms=1500\n")
    settings = read_properties(str(file))
    assert parse_milliseconds(settings, "default.api.timeout.ms", 60.0) == 1.5
    assert parse_milliseconds(settings, "request.timeout.ms", 60.0) == 60.0
    with pytest.raises(ConfigError, match="a whole number of milliseconds"):
        parse_milliseconds({"a": "x"}, "a", 1.0)
    file.write_text("security.protocol=SSL\n")
    options = ParsedOptions((("bootstrap-server", "a:1"), ("command-config", str(file))))
    assert connect_client(options).security.protocol is SecurityProtocol.SSL
    file.write_text("security.protocol=SASL_SSL\n")
    with pytest.raises(ConfigError, match=r"sasl\.mechanism: is missing; set PLAIN"):
        connect_client(options)
