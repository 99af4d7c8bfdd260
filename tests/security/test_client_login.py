"""Logins of our own client: the Python API and commands, with all sources of settings."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import (
    Admin,
    ApiError,
    Client,
    ConfigError,
    Consumer,
    ErrorCode,
    GroupConsumer,
    Producer,
)
from barnabas.cli.main import run_command
from barnabas.client.blocking import LOGIN_AGAIN_AFTER, BlockingConnection, Deadline
from barnabas.client.login import ConnectionSecurity
from barnabas.security.client_settings import parse_client_security
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.security.secured_cluster import (
    PASSWORDS,
    REAUTH_MS,
    SecuredCluster,
    plain_login,
    secured_cluster,
    write_properties,
)

ADMIN = plain_login("admin")


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredCluster]:
    with secured_cluster() as running:
        yield running


def test_python_api_logs_in_with_settings_of_every_source(
    secured: SecuredCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = secured.servers()
    with Client(servers, security=ADMIN) as client:
        client.admin().create_topic("api")
        client.producer().send("api", b"one").result()
    file = write_properties(tmp_path / "client.properties", ADMIN)
    with Producer(servers, security=file) as producer:
        producer.send("api", b"two").result()
    monkeypatch.setenv("BARNABAS_CLIENT_CONFIG", str(file))
    with Consumer(servers, "api", auto_offset_reset="earliest") as consumer:
        values = [consumer.poll(60, max_records=1)[0].value for _ in range(2)]
    assert values == [b"one", b"two"]
    with GroupConsumer(servers, "api-group", ["api"], auto_offset_reset="earliest") as member:
        assert member.poll(60)
    with Admin(servers) as admin:
        assert admin.list_groups()


def test_setting_of_a_client_is_refused_elsewhere(secured: SecuredCluster) -> None:
    with (
        Client(secured.servers(), security=ADMIN) as client,
        pytest.raises(ConfigError, match="set it there"),
    ):
        Producer(client, security=ADMIN)


@pytest.mark.parametrize("user", ["admin", "nobody"])
def test_wrong_password_and_unknown_user_fail_at_once(secured: SecuredCluster, user: str) -> None:
    with secured.connect(plain_login(user, "hunter2")) as cluster:
        with pytest.raises(ApiError, match=f"refused user '{user}' with PLAIN") as error:
            cluster.refresh([])
        assert error.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "check the user name and the password" in str(error.value)
        assert "hunter2" not in str(error.value)


def test_disabled_mechanism_is_answered_with_the_enabled_ones(secured: SecuredCluster) -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token": "a.b.c",
    }
    with secured.connect(login) as cluster, pytest.raises(ApiError) as error:
        cluster.refresh([])
    assert error.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert "does not accept OAUTHBEARER; set sasl.mechanism to one of: PLAIN" in str(error.value)


def test_login_on_a_listener_without_logins_is_named(secured: SecuredCluster) -> None:
    with secured.connect(ADMIN, "LOCAL") as cluster, pytest.raises(ApiError) as error:
        cluster.refresh([])
    assert error.value.code is ErrorCode.ILLEGAL_SASL_STATE
    assert "does not expect a login; use security.protocol=PLAINTEXT or SSL" in str(error.value)


def test_client_without_login_gets_a_hint(secured: SecuredCluster) -> None:
    with secured.connect({}) as cluster, pytest.raises(ApiError) as error:
        cluster.refresh([])
    why = "the listener may need another security.protocol than PLAINTEXT"
    assert why in str(error.value)


def test_connection_logs_in_again_before_its_login_expires(secured: SecuredCluster) -> None:
    security = ConnectionSecurity(parse_client_security(ADMIN))
    host, port = "127.0.0.1", secured.ports["RELOGIN"]
    connection = BlockingConnection.open(host, port, client_id="test", security=security)
    first = connection.login_expiry
    assert first is not None
    assert 0 < first.left_s() <= LOGIN_AGAIN_AFTER * REAUTH_MS / 1000
    connection.exchange(MetadataRequest(topics=()), MetadataResponse)
    assert connection.login_expiry is first, "it is not time yet"
    counts = secured.login_counts("RELOGIN")
    again, succeeded = counts.again, counts.succeeded
    first.at = time.monotonic()
    connection.exchange(MetadataRequest(topics=()), MetadataResponse)
    assert connection.login_expiry is not first
    assert (counts.again, counts.succeeded) == (again + 1, succeeded), "on the same connection"
    assert connection.is_open
    connection.close()


def test_failed_second_login_closes_the_connection(secured: SecuredCluster) -> None:
    security = ConnectionSecurity(parse_client_security(ADMIN))
    host, port = "127.0.0.1", secured.ports["RELOGIN"]
    connection = BlockingConnection.open(host, port, client_id="test", security=security)
    wrong = parse_client_security(plain_login("admin", "hunter2"))
    connection.security = ConnectionSecurity(wrong)
    connection.login_expiry = Deadline(0)
    with pytest.raises(ApiError):
        connection.exchange(MetadataRequest(topics=()), MetadataResponse)
    assert not connection.is_open


# ---- commands -----------------------------------------------------------------------------------


def test_command_reads_file_options_and_environment(
    secured: SecuredCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    servers = ["-b", secured.servers(), "-o", "json"]
    without_password = {**ADMIN, "sasl.username": "alice"}
    del without_password["sasl.password"]
    file = write_properties(tmp_path / "client.properties", without_password)
    command = ["cluster", "describe", *servers, "--command-config", str(file)]
    assert run_command(command) == 2
    assert "error: sasl.password: is missing" in capsys.readouterr().err
    monkeypatch.setenv("BARNABAS_SASL_PASSWORD", PASSWORDS["admin"])
    assert run_command([*command, "-X", "sasl.username=admin"]) == 0
    assert json.loads(capsys.readouterr().out)["brokers"]


def test_password_on_the_command_line_is_refused(
    secured: SecuredCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["topics", "list", "-b", secured.servers(), "-X", "sasl.password=hunter2"]
    assert run_command(command) == 2
    shown = capsys.readouterr().err
    assert "other users can see the command line" in shown
    assert "hunter2" not in shown


def test_settings_of_a_profile_go_only_to_its_brokers(
    secured: SecuredCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = write_properties(tmp_path / "client.properties", ADMIN)
    create = ["profile", "create", "prod", "-b", secured.servers(), "--command-config", str(file)]
    assert run_command(create) == 0
    assert run_command(["controller", "show"]) == 0
    assert run_command(["controller", "show", "-b", secured.servers("LOCAL")]) == 0, (
        "without a login"
    )
    assert run_command(["profile", "list"]) == 0
    assert str(file) in capsys.readouterr().out


def test_wrong_password_of_a_command_is_one_line(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_properties(tmp_path / "client.properties", plain_login("alice", "hunter2"))
    command = ["topics", "list", "-b", secured.servers(), "--command-config", str(file)]
    assert run_command(command) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("error: SASL_AUTHENTICATION_FAILED: 127.0.0.1:")
    assert len(shown.splitlines()) == 1
    assert "hunter2" not in shown


def test_kafka_command_logs_in_with_its_file(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_properties(tmp_path / "client.properties", ADMIN)
    command = ["kafka-topics", "--bootstrap-server", secured.servers(), "--list"]
    assert run_command([*command, "--command-config", str(file)]) == 0
    write_properties(file, plain_login("alice", "hunter2"))
    assert run_command([*command, "--command-config", str(file)]) == 1
    shown = capsys.readouterr()
    assert "org.apache.kafka.common.errors.SaslAuthenticationException" in shown.out + shown.err
    assert "hunter2" not in shown.out + shown.err
