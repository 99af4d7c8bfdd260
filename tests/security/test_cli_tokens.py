"""`barnabas tokens`, against a real broker: a token is created, used to log in, listed, renewed and expired."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import LocalCluster
from barnabas.cli.main import run_command
from barnabas.config.properties import properties_text
from barnabas.security.jaas import parse_jaas
from barnabas.security.sasl.mechanism import PLAIN
from tests.security.logins import PASSWORD, USER, sasl_cluster, sasl_servers

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with sasl_cluster({"delegation.token.secret.key": "the secret of all brokers"}) as running:
        yield running


class Commands:
    """Runs commands with the login of one user."""

    def __init__(self, servers: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.servers = servers
        self.file = file
        self.capsys = capsys

    def log_in(self, **settings: str) -> None:
        """Use these settings for the next commands. `__` in a name is a dot."""
        login = {name.replace("__", "."): value for name, value in settings.items()}
        self.file.write_text(properties_text({"security.protocol": "SASL_PLAINTEXT", **login}))

    def run(self, *words: str, code: int = 0) -> str:
        """Return standard output and standard error."""
        options = ["-b", self.servers, "--command-config", str(self.file)]
        assert run_command([*words, *options]) == code
        shown = self.capsys.readouterr()
        return shown.out + shown.err

    def document(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json"))


@pytest.fixture
def commands(cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    made = Commands(sasl_servers(cluster), tmp_path / "client.properties", capsys)
    made.log_in(sasl__mechanism=PLAIN, sasl__username=USER, sasl__password=PASSWORD)
    return made


def test_printed_line_logs_in_as_the_owner(commands: Commands) -> None:
    shown = commands.run("tokens", "create")
    (line,) = (each for each in shown.splitlines() if each.startswith("sasl.jaas.config="))
    text = line.removeprefix("sasl.jaas.config=")
    token_id = parse_jaas(text).options["username"]
    assert shown.startswith(f"created token {token_id} of User:{USER}\n")
    commands.log_in(sasl__mechanism="SCRAM-SHA-512", sasl__jaas__config=text)
    assert "no topics" in commands.run("topics", "list")
    refused = commands.run("tokens", "create", code=1)
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused
    assert "not with a delegation token" in refused


def test_token_is_listed_renewed_and_expired(commands: Commands) -> None:
    created = commands.document("tokens", "create", "--renewer", "bob", "--max-lifetime", "2d")
    token_id = created["token_id"]
    assert created["max_ms"] == created["issued_ms"] + 2 * DAY_MS
    listed = commands.document("tokens", "list", "--owner", "bob")["tokens"]
    expected = {name: created[name] for name in created.keys() - {"hmac", "dry_run"}}
    assert listed == [expected]
    table = commands.run("tokens", "list")
    assert token_id in table
    assert created["hmac"] not in table

    assert "would renew" in commands.run("tokens", "renew", token_id, "--dry-run")
    renewed = commands.document("tokens", "renew", token_id, "--period", "36h")
    assert created["expires_ms"] < renewed["expires_ms"] <= created["max_ms"]
    assert commands.document("tokens", "list", "--owner", "bob")["tokens"] == [
        {**expected, "expires_ms": renewed["expires_ms"]}
    ]

    assert "would expire" in commands.run("tokens", "expire", token_id, "--dry-run")
    earlier = commands.document("tokens", "expire", token_id, "--period", "1h", "--yes")
    assert earlier["expires_ms"] < created["expires_ms"]
    assert not earlier["deleted"]
    deleted = commands.run("tokens", "expire", token_id, "--yes")
    assert deleted == f"deleted token {token_id} of User:{USER}\n"
    unknown = commands.run("tokens", "renew", token_id, code=1)
    assert "DELEGATION_TOKEN_NOT_FOUND: there is no token" in unknown


def test_dry_run_creates_nothing(commands: Commands) -> None:
    before = commands.document("tokens", "list")
    assert commands.run("tokens", "create", "--dry-run") == "would create a token of your user\n"
    assert commands.document("tokens", "list") == before


def test_renewer_may_expire_the_token_of_another_user(commands: Commands) -> None:
    created = commands.document("tokens", "create", "--renewer", "User:bob")
    commands.log_in(sasl__mechanism=PLAIN, sasl__username="bob", sasl__password="bob-secret")
    assert "deleted" in commands.run("tokens", "expire", created["token_id"], "--yes")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("create", "--max-lifetime", "long"), "--max-lifetime: 'long' is not a duration"),
        (
            ("create", "--max-lifetime", "99999999999999999d"),
            "is too long; at most 9223372036854775807 ms",
        ),
        (("create", "--max-lifetime", "9" * 5000 + "d"), "--max-lifetime: '999"),
        (("create", "--max-lifetime", "0s"), "--max-lifetime: must be more than 0"),
        (("create", "--renewer", "User:"), "--renewer: 'User:' is not of the form User:name"),
        (("expire", "x", "--period", "-1"), "--period: '-1' is not a duration"),
    ],
)
def test_wrong_options_are_refused(commands: Commands, words: tuple[str, ...], why: str) -> None:
    assert why in commands.run("tokens", *words, code=2)


def test_cluster_without_tokens_names_the_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sasl_cluster() as other:
        commands = Commands(sasl_servers(other), tmp_path / "client.properties", capsys)
        commands.log_in(sasl__mechanism=PLAIN, sasl__username=USER, sasl__password=PASSWORD)
        for words in (("create",), ("create", "--dry-run"), ("list",)):
            shown = commands.run("tokens", *words, code=1)
            assert "DELEGATION_TOKEN_AUTH_DISABLED" in shown
            assert "delegation.token.secret.key" in shown
