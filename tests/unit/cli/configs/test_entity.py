from __future__ import annotations

from typing import Any

import pytest

from barnabas.cli.configs.entity import (
    QUOTA_OPTIONS,
    RESOURCE_OPTIONS,
    Entity,
    entity_arguments,
    entity_document,
    entity_text,
    select_entity,
)
from barnabas.client.config_admin import DEFAULT_NAME, ConfigResource, QuotaEntity
from barnabas.errors import ConfigError
from barnabas.wire.messages.describe_configs import ResourceType


def options(**given: Any) -> dict[str, Any]:
    flags = {"brokers", "default_user", "default_client_id", "default_ip"}
    names = (*RESOURCE_OPTIONS, *QUOTA_OPTIONS)
    return {name: given.get(name, False if name in flags else None) for name in names}


@pytest.mark.parametrize(
    ("given", "entity", "text", "arguments"),
    [
        ({"topic": "orders"}, ConfigResource(ResourceType.TOPIC, "orders"), "topic orders", "--topic orders"),
        ({"broker": 0}, ConfigResource(ResourceType.BROKER, "0"), "broker 0", "--broker 0"),
        ({"brokers": True}, ConfigResource(ResourceType.BROKER, ""), "all brokers", "--brokers"),
        (
            {"broker_logger": 1},
            ConfigResource(ResourceType.BROKER_LOGGER, "1"),
            "loggers of broker 1",
            "--broker-logger 1",
        ),
        ({"client_id": "my app"}, QuotaEntity(client_id="my app"), "client id my app", "--client-id 'my app'"),
        (
            {"user": "alice", "default_client_id": True},
            QuotaEntity(user="alice", client_id=DEFAULT_NAME),
            "user alice, default client id",
            "--user alice --default-client-id",
        ),
        ({"default_ip": True}, QuotaEntity(ip=DEFAULT_NAME), "default ip", "--default-ip"),
    ],
)  # fmt: skip
def test_options_select_entity(
    given: dict[str, Any], entity: Entity, text: str, arguments: str
) -> None:
    found = select_entity(options(**given))
    assert found == entity
    assert type(found) is type(entity)
    assert entity_text(found) == text
    assert entity_arguments(found) == arguments


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "configs: choose one of --topic NAME, "),
        ({"topic": "a", "broker": 1}, "--topic: cannot be combined with --broker"),
        ({"brokers": True, "broker": 1}, "--broker: cannot be combined with --brokers"),
        ({"user": "a", "default_user": True}, "--user: cannot be combined with --default-user"),
        ({"ip": "::1", "user": "a"}, "--user: cannot be combined with --ip"),
        ({"client_id": ""}, "--client-id: is empty; for the default use --default-client-id"),
        ({"user": "\udcff"}, "--user: '\\udcff' is not valid UTF-8"),
    ],
)
def test_wrong_selection_is_rejected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        select_entity(options(**given))
    assert str(caught.value).startswith(message)


def test_documents_name_type_and_default() -> None:
    assert entity_document(ConfigResource(ResourceType.BROKER, "")) == {
        "type": "broker",
        "name": None,
    }
    assert entity_document(ConfigResource(ResourceType.BROKER_LOGGER, "1")) == {
        "type": "broker-logger",
        "name": "1",
    }
    assert entity_document(QuotaEntity(user=DEFAULT_NAME)) == {"type": "user", "name": None}
    assert entity_document(QuotaEntity(user="a", client_id=DEFAULT_NAME)) == {
        "type": "user,client-id",
        "name": {"user": "a", "client-id": None},
    }
