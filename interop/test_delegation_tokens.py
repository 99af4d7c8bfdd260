"""Kafka's kafka-delegation-tokens and Java tools that log in with a token, against a broker of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import click.testing
import pytest

from barnabas import LocalCluster
from barnabas.cli.main import cli
from barnabas.cluster.client_settings import jaas_line
from barnabas.config.properties import properties_text
from barnabas.security.sasl.mechanism import PLAIN, SCRAM_SHA_512
from interop.harness.tools import Outcome, Tools
from tests.security.logins import PASSWORD, USER, sasl_cluster, sasl_servers

TOPIC = "orders"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with sasl_cluster({"delegation.token.secret.key": "the secret of all brokers"}) as running:
        running.create_topic(TOPIC)
        yield running


class Commands:
    """Runs commands at the SASL listener of the cluster, with the login in `file`."""

    def __init__(self, tools: Tools, servers: str, file: Path) -> None:
        self.tools = tools
        self.servers = servers
        self.file = file

    def log_in(self, mechanism: str, options: Mapping[str, str]) -> None:
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": jaas_line(mechanism, **options),
        }
        self.file.write_text(properties_text(settings))

    def java(self, tool: str, *words: str) -> Outcome:
        options = ("--bootstrap-server", self.servers, "--command-config", str(self.file))
        return self.tools.succeed(tool, *options, *words)

    def listed(self) -> dict[str, int]:
        """Return the expiry of each token, as our command lists them."""
        words = ["tokens", "list", "-b", self.servers, "--command-config", str(self.file)]
        ended = click.testing.CliRunner().invoke(cli, [*words, "-o", "json"])
        assert ended.exit_code == 0, ended.output
        return {each["token_id"]: each["expires_ms"] for each in json.loads(ended.stdout)["tokens"]}


@pytest.fixture
def commands(tools: Tools, cluster: LocalCluster, tmp_path: Path) -> Commands:
    made = Commands(tools, sasl_servers(cluster), tmp_path / "client.properties")
    made.log_in(PLAIN, {"username": USER, "password": PASSWORD})
    return made


def test_java_command_manages_tokens(commands: Commands) -> None:
    tool = "kafka-delegation-tokens"
    renewer = ("--renewer-principal", "User:bob")
    shown = commands.java(tool, "--create", "--max-life-time-period", "-1", *renewer).stdout
    found = re.search(
        r"^(\S{22})\s+(\S{88})\s+User:alice\s+User:alice\s.*User:bob", shown, re.MULTILINE
    )
    assert found, shown
    token_id, hmac = found.groups()
    owner = ("--owner-principal", f"User:{USER}")  # Kafka describes no token without it
    assert token_id in commands.java(tool, "--describe", *owner).stdout
    first = commands.listed()[token_id]

    commands.java(tool, "--renew", "--renew-time-period", "172800000", "--hmac", hmac)
    assert commands.listed()[token_id] > first

    login = {"username": token_id, "password": hmac, "tokenauth": "true"}
    commands.log_in(SCRAM_SHA_512, login)
    assert TOPIC in commands.java("kafka-topics", "--list").lines

    commands.log_in(PLAIN, {"username": USER, "password": PASSWORD})
    commands.java(tool, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert token_id not in commands.listed()
