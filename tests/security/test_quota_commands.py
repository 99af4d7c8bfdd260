"""`barnabas quotas`: quotas are set, listed and removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas import LocalCluster
from barnabas.cli.main import run_command
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


class Quotas:
    """Runs `barnabas quotas` in this process. `err` is the standard error of the last command."""

    def __init__(self, servers: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.servers = servers
        self.capsys = capsys
        self.err = ""

    def run(self, *arguments: str, code: int = 0) -> str:
        assert run_command(["quotas", *arguments, "-b", self.servers]) == code
        out, self.err = self.capsys.readouterr()
        return out

    def document(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "-o", "json"))

    def listed(self, *filters: str) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        entries = self.document("list", *filters)["quotas"]
        return [(entry["entity"], entry["quotas"]) for entry in entries]


@pytest.fixture
def quotas(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> Iterator[Quotas]:
    yield Quotas(cluster.bootstrap_servers, capsys)
    with Cluster(cluster.bootstrap_servers) as client:
        admin = ConfigAdmin(client)
        found = admin.describe_client_quotas()
        assert not any(
            admin.alter_client_quotas(
                {key: dict.fromkeys(each) for key, each in found.items()}
            ).values()
        )


ENTITIES: list[tuple[tuple[str, ...], dict[str, str | None], str]] = [
    (("--user", "CN=a, O=Ä"), {"user": "CN=a, O=Ä"}, "producer_byte_rate"),
    (("--client-id", "app"), {"client-id": "app"}, "consumer_byte_rate"),
    (
        ("--user", "alice", "--client-id", "app"),
        {"user": "alice", "client-id": "app"},
        "request_percentage",
    ),
    (
        ("--user", "alice", "--default-client-id"),
        {"user": "alice", "client-id": None},
        "controller_mutation_rate",
    ),
    (("--default-user",), {"user": None}, "producer_byte_rate"),
    (("--ip", "10.0.0.1"), {"ip": "10.0.0.1"}, "connection_creation_rate"),
    (("--default-ip",), {"ip": None}, "connection_creation_rate"),
]


@pytest.mark.parametrize(("options", "names", "quota"), ENTITIES)
def test_quota_is_set_listed_and_unset(
    quotas: Quotas, options: tuple[str, ...], names: dict[str, str | None], quota: str
) -> None:
    quotas.run("set", *options, f"{quota}=1000")
    assert quotas.listed() == [(names, {quota: 1000.0})]
    assert quotas.listed(*options) == [(names, {quota: 1000.0})]
    assert "removed" in quotas.run("unset", *options, quota)
    assert quotas.listed() == []


def test_list_shows_a_row_for_each_quota_and_filters(quotas: Quotas) -> None:
    assert quotas.run("list") == "no quotas; set one with `barnabas quotas set`\n"
    quotas.run("set", "--user", "alice", "producer_byte_rate=10", "request_percentage=2.5")
    quotas.run("set", "--user", "alice", "--client-id", "app", "producer_byte_rate=20")
    quotas.run("set", "--default-client-id", "consumer_byte_rate=30")
    assert [line.split() for line in quotas.run("list").splitlines()] == [
        ["USER", "CLIENT", "ID", "IP", "QUOTA", "VALUE"],
        ["-", "(default)", "-", "consumer_byte_rate", "30"],
        ["alice", "-", "-", "producer_byte_rate", "10"],
        ["alice", "-", "-", "request_percentage", "2.5"],
        ["alice", "app", "-", "producer_byte_rate", "20"],
    ]
    assert len(quotas.listed("--user", "alice")) == 2
    assert len(quotas.listed("--client-id", "app")) == 1
    assert quotas.run("list", "--user", "bob") == "no quota matches\n"


def test_unset_all_removes_every_quota_of_the_entity(quotas: Quotas) -> None:
    quotas.run("set", "--user", "alice", "producer_byte_rate=10", "request_percentage=2.5")
    quotas.run("unset", "--user", "alice", "--all")
    assert quotas.listed() == []
    assert quotas.run("unset", "--user", "alice", "--all", code=1) == ""
    assert "user alice has no quotas" in quotas.err


def test_dry_run_changes_nothing(quotas: Quotas) -> None:
    assert "would alter user alice" in quotas.run(
        "set", "--user", "alice", "producer_byte_rate=10", "--dry-run"
    )
    assert quotas.listed() == []


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("set", "producer_byte_rate=1"), 2, "choose --user NAME"),
        (("set", "--user", "a"), 2, "QUOTA=NUMBER"),
        (("set", "--user", "a", "producer_byte_rate=fast"), 2, "is not a number"),
        (("set", "--user", "a", "producer_byte_rate=-1"), 1, "must be at least 0"),
        (("set", "--user", "a", "producer_byte_rat=1"), 2, "did you mean producer_byte_rate?"),
        (("set", "--user", "a", "producer_byte_rate=1", "producer_byte_rate=2"), 2, "twice"),
        (("set", "--user", "a", "--ip", "::1", "producer_byte_rate=1"), 2, "cannot be combined"),
        (("set", "--ip", "nowhere", "connection_creation_rate=1"), 1, "is not an IP address"),
        (("unset", "--user", "a"), 2, "or use --all"),
        (("unset", "--user", "a", "producer_byte_rate", "--all"), 2, "or use --all"),
    ],
)
def test_wrong_usage_is_explained(
    quotas: Quotas, arguments: tuple[str, ...], code: int, error: str
) -> None:
    assert quotas.run(*arguments, code=code) == ""
    assert error in quotas.err
