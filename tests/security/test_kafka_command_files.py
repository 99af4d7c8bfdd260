"""Every command of Kafka logs in with the file of its option for client settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.main import COMMANDS, run_command
from tests.security.secured_cluster import (
    SecuredCluster,
    plain_login,
    secured_cluster,
    write_properties,
)

FILE_OPTIONS = {
    "kafka-topics --list": "--command-config",
    "kafka-configs --describe --entity-type brokers": "--command-config",
    "kafka-acls --list": "--command-config",
    "kafka-leader-election --election-type preferred --all-topic-partitions": "--admin.config",
    "kafka-reassign-partitions --list": "--command-config",
}
"""A command → the option that Kafka's command has for the file."""


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredCluster]:
    with secured_cluster() as running:
        yield running


def test_table_has_all_commands_of_kafka() -> None:
    assert {line.split()[0] for line in FILE_OPTIONS} == {
        name for name in COMMANDS if name.startswith("kafka-")
    }


@pytest.mark.parametrize("line", FILE_OPTIONS)
def test_command_logs_in_with_the_file(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    name, *words = line.split()
    file = tmp_path / "client.properties"
    command = [name, "--bootstrap-server", secured.servers(), *words, FILE_OPTIONS[line], str(file)]
    write_properties(file, plain_login("admin"))
    assert run_command(command) == 0, capsys.readouterr()
    write_properties(file, plain_login("admin", "wrong"))
    capsys.readouterr()
    assert run_command(command) == 1
    assert "SaslAuthenticationException" in "".join(capsys.readouterr())
