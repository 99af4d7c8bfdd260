"""Our kafka-acls, and kafka-configs for SCRAM credentials, compared with Kafka's 3.9 on one cluster of ours.

Lines are compared in sorted order: Kafka prints resources and ACLs in the order of its hash tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click.testing
import pytest

from barnabas.cli.main import cli
from barnabas.cluster.local import LocalCluster
from barnabas.java.find import Java
from interop.harness.jars import KAFKA_3_9, Jars
from interop.harness.tools import Outcome, Tools

Command = Callable[..., Outcome]
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with LocalCluster(brokers=1, settings=SETTINGS) as running:
        yield running.bootstrap_servers


@pytest.fixture(scope="module")
def theirs(
    tmp_path_factory: pytest.TempPathFactory, java: Java, kafka_jars: Jars, servers: str
) -> Command:
    scratch = tmp_path_factory.mktemp("acl-commands")
    return Tools(release=KAFKA_3_9, java=java, jars=kafka_jars, scratch=scratch).run


def ours(name: str, *arguments: str) -> Outcome:
    ended = click.testing.CliRunner().invoke(cli, [name, *arguments])
    return Outcome(exit_code=ended.exit_code, stdout=ended.stdout, stderr=ended.stderr)


COMMANDS = """
kafka-acls --add --allow-principal User:N --operation Read --topic N
kafka-acls --add --allow-principal User:N --producer --topic N --idempotent
kafka-acls --add --deny-principal User:N --deny-host 10.0.0.7 --operation All --group N --resource-pattern-type prefixed
kafka-acls --list --topic N
kafka-acls --list --group N-1 --resource-pattern-type match
kafka-acls --list --principal User:N
kafka-acls --remove --force --topic N --operation Read --allow-principal User:N
kafka-acls --remove --force --topic N
kafka-acls --add --topic N
kafka-acls --add --allow-principal N --topic N
kafka-acls --add --allow-principal User:N --operation Read --topic N --resource-pattern-type any
kafka-acls --list --resource-pattern-type nonsense
kafka-acls --list --producer
kafka-configs --alter --user N --add-config SCRAM-SHA-256=[iterations=8192,password=secret]
kafka-configs --describe --user N
kafka-configs --alter --user N --delete-config SCRAM-SHA-256
"""


@pytest.mark.parametrize("line", COMMANDS.strip().splitlines())
def test_command_has_the_output_of_kafka(theirs: Command, servers: str, line: str) -> None:
    """Each side has names of its own. Both run all commands in this order."""

    def run(command: Command, name: str) -> tuple[list[str], int, list[str]]:
        tool, *words = line.split()
        words = [word.replace("N", name) if is_name(word) else word for word in words]
        outcome = command(tool, "--bootstrap-server", servers, *words)
        lines = outcome.stdout.replace(name, "N").splitlines()
        # The first ACL has a blank before it, the last one after it. Kafka's stack trace is left out.
        if lines and lines[0].startswith("Error"):
            lines = lines[:2]
        shown = sorted(each.strip() for each in lines)
        return shown, outcome.exit_code, outcome.stderr.splitlines()[:1]

    assert run(ours, "ours") == run(theirs, "them")


def is_name(word: str) -> bool:
    return word in ("N", "User:N", "N-1")
