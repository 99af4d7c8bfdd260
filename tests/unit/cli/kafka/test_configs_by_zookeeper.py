"""kafka-configs with --zookeeper: entities, checks and the znodes it writes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from barnabas.cli.kafka.config_options import OPTIONS, Entities, check_options
from barnabas.cli.kafka.configs_by_zookeeper import (
    alter_znodes,
    check_stopped,
    describe_znodes,
    encode_name,
    entity_line,
    parse_entity_path,
    path_text,
)
from barnabas.cli.kafka.entity_settings import check_broker_settings, check_quotas
from barnabas.cli.kafka.failures import RequestRejected
from barnabas.cli.kafka.options import parse_options
from barnabas.metadata import znodes
from barnabas.security.sasl.scram import parse_credential
from barnabas.world.clock import SystemClock
from barnabas.world.ports import RegistrySession
from barnabas.world.registry.embedded import EmbeddedRegistry


@pytest.fixture
async def session() -> AsyncIterator[RegistrySession]:
    registry = EmbeddedRegistry(None, SystemClock())
    session = await registry.connect(10_000)
    for path in znodes.PERSISTENT_PATHS:
        await session.create(path)
    yield session
    await session.close()


async def run(session: RegistrySession, line: str) -> None:
    options = parse_options(OPTIONS, ["--zookeeper", "z:1", *line.split()])
    work = alter_znodes if options.has("alter") else describe_znodes
    await work(session, options, check_options(options))


async def settings(session: RegistrySession, entity_path: str) -> dict[str, str]:
    path = f"/config/{entity_path}"
    return znodes.decode_config(path, (await session.get(path))[0])


async def notified(session: RegistrySession) -> list[tuple[str, str]]:
    paths = [f"/config/changes/{name}" for name in await session.children("/config/changes")]
    return [znodes.decode_config_change(path, (await session.get(path))[0]) for path in paths]


# ---- entities


@pytest.mark.parametrize(
    ("entities", "path", "text"),
    [
        (Entities(("topics",), ("orders",)), "topics/orders", "topic 'orders'"),
        (Entities(("brokers",), ("1",)), "brokers/1", "brokers '1'"),
        (Entities(("brokers",), ("",)), "brokers/<default>", "default brokers"),
        (Entities(("users",), ("CN=a b",)), "users/CN%3Da%20b", "user-principal 'CN=a b'"),
        (
            Entities(("clients", "users"), ("app", "")),
            "users/<default>/clients/app",
            "default user-principal, client-id 'app'",
        ),
        (Entities(("ips",), ("10.0.0.7",)), "ips/10.0.0.7", "ips '10.0.0.7'"),
    ],
)
def test_entities_have_kafka_paths_and_texts(entities: Entities, path: str, text: str) -> None:
    found = parse_entity_path(entities)
    assert path_text(found) == path
    assert entity_line(found) == text


def test_names_are_encoded_like_kafka() -> None:
    assert encode_name("users", "a*~+/é") == "a%2A%7E%2B%2F%C3%A9"
    assert encode_name("clients", "a-b_c.d") == "a-b_c.d"


# ---- checks


def test_running_broker_accepts_only_throttles() -> None:
    throttle = {"leader.replication.throttled.rate": "1"}
    check_stopped("1", throttle, [1])
    check_stopped("1", {"log.cleaner.threads": "2"}, [2])
    with pytest.raises(RequestRejected, match=r"Set\(log\.cleaner\.threads\)\. when broker 1 is"):
        check_stopped("1", {"log.cleaner.threads": "2", **throttle}, [1, 2])
    with pytest.raises(RequestRejected, match="for default cluster if any broker is running"):
        check_stopped("<default>", {"log.cleaner.threads": "2"}, [2])


@pytest.mark.parametrize(
    ("changed", "per_broker", "message"),
    [
        ({"broker.id": "1"}, True, "Cannot update these configs dynamically: Set(broker.id)"),
        (
            {"listeners": "A://:1"},
            False,
            "Cannot update these configs at default cluster level, broker id must be specified:"
            " Set(listeners)",
        ),
        (
            {"log.cleaner.threads": "x"},
            True,
            "Invalid value x for configuration log.cleaner.threads: Not a number of type INT",
        ),
        (
            {"listener.name.a.ssl.key.password": "x"},
            True,
            "passwords cannot be stored in ZooKeeper: listener.name.a.ssl.key.password",
        ),
    ],
)
def test_invalid_broker_settings_are_rejected(
    changed: dict[str, str], per_broker: bool, message: str
) -> None:
    with pytest.raises(RequestRejected) as caught:
        check_broker_settings(changed, per_broker=per_broker)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("kind", "quotas", "message"),
    [
        ("clients", {"x": "1"}, "requirement failed: Unknown Dynamic Configuration: Set(x)."),
        (
            "users",
            {"producer_byte_rate": "1.5"},
            "Invalid value 1.5 for configuration producer_byte_rate: Not a number of type LONG",
        ),
        (
            "ips",
            {"connection_creation_rate": "-1"},
            "Invalid value -1 for configuration connection_creation_rate: Value must be at least 0",
        ),
    ],
)
def test_invalid_quotas_are_rejected(kind: str, quotas: dict[str, str], message: str) -> None:
    with pytest.raises(RequestRejected) as caught:
        check_quotas(kind, quotas)
    assert caught.value.message == message


# ---- znodes


async def test_scram_credential_is_stored_and_not_shown(
    session: RegistrySession, capsys: pytest.CaptureFixture[str]
) -> None:
    user = "--entity-type users --entity-name alice"
    line = "--add-config SCRAM-SHA-256=[iterations=8192,password=hunter2],producer_byte_rate=5"
    await run(session, f"--alter {user} {line}")
    stored = await settings(session, "users/alice")
    assert stored["producer_byte_rate"] == "5"
    assert parse_credential(stored["SCRAM-SHA-256"]).iterations == 8192
    await run(session, f"--describe {user}")
    shown = capsys.readouterr().out
    expected = "SCRAM-SHA-256=iterations=8192"
    assert f"Configs for user-principal 'alice' are {expected}" in shown
    assert "stored_key" not in shown
    await run(session, f"--alter {user} --add-config producer_byte_rate=6")
    await run(session, f"--alter {user} --delete-config SCRAM-SHA-256")
    assert await settings(session, "users/alice") == {"producer_byte_rate": "6"}


@pytest.mark.parametrize("entity", ["--user-defaults", "--user a --client b", "--client b"])
async def test_scram_credential_needs_one_user(session: RegistrySession, entity: str) -> None:
    with pytest.raises(RequestRejected, match="SCRAM credentials are settings of one user"):
        await run(session, f"--alter {entity} --add-config SCRAM-SHA-256=[password=x]")


async def test_alter_writes_settings_and_notification(
    session: RegistrySession, capsys: pytest.CaptureFixture[str]
) -> None:
    await run(session, "--alter --user alice --client app --add-config producer_byte_rate=5")
    await run(session, "--alter --broker 1 --add-config log.cleaner.threads=2")
    await run(session, "--alter --client-defaults --add-config request_percentage=50")
    assert capsys.readouterr().out.splitlines() == [
        "Completed updating config for entity: user-principal 'alice', client-id 'app'.",
        "Completed updating config for entity: brokers '1'.",
        "Completed updating config for entity: default client-id.",
    ]
    assert await settings(session, "users/alice/clients/app") == {"producer_byte_rate": "5"}
    assert await settings(session, "brokers/1") == {"log.cleaner.threads": "2"}
    assert await settings(session, "clients/<default>") == {"request_percentage": "50"}
    assert await notified(session) == [
        ("users", "alice/clients/app"),
        ("brokers", "1"),
        ("clients", "<default>"),
    ]


async def test_alter_merges_with_present_settings(
    session: RegistrySession, capsys: pytest.CaptureFixture[str]
) -> None:
    await run(
        session, "--alter --client app --add-config producer_byte_rate=5,consumer_byte_rate=6"
    )
    await run(
        session,
        "--alter --client app --add-config request_percentage=7 --delete-config producer_byte_rate",
    )
    assert await settings(session, "clients/app") == {
        "consumer_byte_rate": "6",
        "request_percentage": "7",
    }
    with pytest.raises(RequestRejected, match=r"Invalid config\(s\): producer_byte_rate"):
        await run(session, "--alter --client app --delete-config producer_byte_rate")
    capsys.readouterr()
    await run(session, "--describe --client app")
    assert capsys.readouterr().out == (
        "Configs for client-id 'app' are consumer_byte_rate=6,request_percentage=7\n"
    )


async def test_describe_lists_all_entities_of_a_type(
    session: RegistrySession, capsys: pytest.CaptureFixture[str]
) -> None:
    await run(session, "--alter --user alice --client app --add-config producer_byte_rate=5")
    await run(session, "--alter --user bob --add-config producer_byte_rate=6")
    await run(session, "--alter --user-defaults --add-config producer_byte_rate=7")
    capsys.readouterr()
    await run(session, "--describe --entity-type users")
    # alice has only quotas of a client
    assert capsys.readouterr().out.splitlines() == [
        "Configs for default user-principal are producer_byte_rate=7",
        "Configs for user-principal 'bob' are producer_byte_rate=6",
    ]
    await run(session, "--describe --entity-type users --entity-type clients")
    assert capsys.readouterr().out.splitlines() == [
        "Configs for user-principal 'alice', client-id 'app' are producer_byte_rate=5",
    ]


async def test_rejected_alter_writes_nothing(session: RegistrySession) -> None:
    with pytest.raises(RequestRejected, match="Unknown Dynamic Configuration"):
        await run(session, "--alter --client app --add-config nosuch=1")
    with pytest.raises(RequestRejected, match="Topic 'nowhere' does not exist"):
        await run(session, "--alter --topic nowhere --add-config flush.ms=1")
    assert await session.exists("/config/clients/app") is None
    assert await notified(session) == []
