"""Kafka's commands from outside, as far as nobody has to be asked."""

from pathlib import Path

import pytest

from barnabas.cli.kafka.command import parse_milliseconds, read_client_settings
from barnabas.cli.main import run_command
from barnabas.errors import ConfigError

COMMANDS = ("kafka-topics", "kafka-configs")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_goes_to_standard_error_and_ends_with_1_as_kafkas_does(
    name: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([name, *arguments]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "--bootstrap-server <brokers>" in told.err


@pytest.mark.parametrize("name", COMMANDS)
def test_the_version_begins_with_that_of_the_kafka_it_follows(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([name, "--version"]) == 0
    assert capsys.readouterr().out.startswith("3.9.0 (Barnabas ")


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([name, "--nosuch"]) == 1
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "nosuch is not a recognized option\n")


def test_wrong_usage_is_a_line_and_all_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["kafka-topics", "--bootstrap-server", "a:1", "--delete"]) == 1
    first, *others = capsys.readouterr().err.splitlines()
    assert first == 'Missing required argument "[topic]"'
    assert any(line.startswith("--replica-assignment ") for line in others)


def test_an_address_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["kafka-topics", "--bootstrap-server", "a:b", "--list"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "bootstrap.servers: 'a:b' is not an address; write host:port\n"


def test_a_broker_that_is_not_there_is_told_in_the_form_of_the_tool(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["kafka-topics", "--bootstrap-server", "127.0.0.1:1", "--list"]) == 1
    told = capsys.readouterr()
    assert told.out.startswith("Error while executing topic command : no broker answers: 127.0.0.1")
    assert "ERROR org.apache.kafka.common.errors.TimeoutException: " in told.err
    assert "hint:  start a cluster" in told.err


def test_an_option_of_kafka_configs_that_is_given_twice_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    twice = ["--topic", "a", "--topic", "b"]
    assert run_command(["kafka-configs", "--bootstrap-server", "a:1", "--describe", *twice]) == 1
    expected = "Found multiple arguments for option topic, but you asked for only one\n"
    assert capsys.readouterr().err == expected


def test_a_client_file_is_read_and_what_we_do_not_speak_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=me\ndefault.api.timeout.ms=1500\n")
    settings = read_client_settings(str(file))
    assert parse_milliseconds(settings, "default.api.timeout.ms", 60.0) == 1.5
    assert parse_milliseconds(settings, "request.timeout.ms", 60.0) == 60.0
    with pytest.raises(ConfigError, match="not a number of milliseconds"):
        parse_milliseconds({"a": "x"}, "a", 1.0)
    file.write_text("security.protocol=SASL_SSL\n")
    with pytest.raises(ConfigError, match="SASL_SSL is not supported"):
        read_client_settings(str(file))
