"""A broker process whose JAAS lines are in the file that KAFKA_OPTS names, as in existing Kafka installations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.errors import ErrorCode
from barnabas.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from barnabas.security.sasl.mechanism import PLAIN
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from support.command import COMMAND
from support.process import ENVIRONMENT, ChildProcess, wait_for
from tests.security.logins import SaslConnection, client_of

FILE = f"""
KafkaServer {{
  com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/etc/krb5.keytab";
  {PLAIN_MODULE} required  // the brokers are the user broker
    username="broker" password="broker-s3cret" user_broker="broker-s3cret";
  {SCRAM_MODULE} required;
}};
clients.KafkaServer {{
  {PLAIN_MODULE} required user_alice="alice-s3cret";
}};
"""
SETTINGS = {
    "broker.id": "1",
    "listeners": "BROKERS://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "BROKERS:SASL_PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "connection.failed.authentication.delay.ms": "1",
    "offsets.topic.replication.factor": "1",
}


def launch(directory: Path, jaas: Path) -> ChildProcess:
    properties = {**SETTINGS, "log.dirs": str(directory / "broker-1")}
    config = directory / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    option = f"-Xmx1g -Djava.security.auth.login.config={jaas}"
    return ChildProcess(
        "the broker",
        [*COMMAND, "broker", str(config)],
        log=directory / "broker.log",
        environment={**ENVIRONMENT, "KAFKA_OPTS": option},
        is_isolated=True,
    )


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Run the broker. Returns the address of each listener."""
    directory = tmp_path_factory.mktemp("jaas")
    jaas = directory / "jaas.conf"
    jaas.write_text(FILE)
    process = launch(directory, jaas)

    def find_addresses() -> dict[str, str] | None:
        line = re.search(r"broker started .*", process.log())
        return dict(re.findall(r"(BROKERS|CLIENTS)://([\d.:]+)", line[0])) if line else None

    try:
        yield wait_for(process, find_addresses)
        assert "s3cret" not in process.log()
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("listener", "user"), [("BROKERS", "broker"), ("CLIENTS", "alice")], ids=str
)
def test_listener_has_the_users_of_its_section(
    addresses: dict[str, str], listener: str, user: str
) -> None:
    with SaslConnection(addresses[listener]) as connection:
        assert not connection.log_in(client_of(PLAIN, user, f"{user}-s3cret")).error_code
        assert connection.ask(MetadataRequest(topics=None), MetadataResponse).cluster_id


@pytest.mark.parametrize(("listener", "user"), [("BROKERS", "alice"), ("CLIENTS", "broker")])
def test_users_of_another_section_are_refused(
    addresses: dict[str, str], listener: str, user: str
) -> None:
    with SaslConnection(addresses[listener]) as connection:
        answer = connection.log_in(client_of(PLAIN, user, f"{user}-s3cret"))
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_missing_file_stops_the_broker_with_the_reason(tmp_path: Path) -> None:
    process = launch(tmp_path, tmp_path / "missing.conf")
    try:
        assert process.wait(90) == 2
    finally:
        process.kill()
    assert "java.security.auth.login.config: cannot read" in process.log()
    assert "missing.conf" in process.log()
