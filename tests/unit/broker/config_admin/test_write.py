"""Writes of settings: one transaction with the notification, conditional on the controller and on the settings."""

from __future__ import annotations

import pytest

from barnabas.broker.config_admin.write import (
    SETTINGS_BYTES_MAX,
    Entity,
    change_settings,
    read_entity,
)
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient

TOPIC = Entity("topics", "orders")


@pytest.fixture
async def registry(registry: RegistryClient) -> RegistryClient:
    await registry.create(znodes.CONTROLLER, b"{}", ephemeral=True)
    return registry


async def notifications(registry: RegistryClient) -> list[tuple[str, str]]:
    paths = [
        f"{znodes.CONFIG_CHANGES}/{name}"
        for name in sorted(await registry.children(znodes.CONFIG_CHANGES))
    ]
    found = [(path, (await registry.get(path))[0]) for path in paths]
    return [znodes.decode_config_change(*each) for each in found]


async def write(registry: RegistryClient, entity: Entity, wanted: dict[str, str]) -> None:
    await change_settings(
        registry, entity, lambda _: wanted, controller_version=0, removes_empty=True
    )


async def test_settings_and_notification_are_written(registry: RegistryClient) -> None:
    changed = await change_settings(
        registry, TOPIC, lambda old: {**old, "retention.ms": "1"}, controller_version=0
    )
    await change_settings(
        registry, TOPIC, lambda old: {**old, "segment.bytes": "99"}, controller_version=0
    )
    assert changed == {"retention.ms": "1"}
    found = await read_entity(registry, TOPIC)
    assert found.settings == {"retention.ms": "1", "segment.bytes": "99"}
    data, _ = await registry.get(TOPIC.path)
    assert data == b'{"version":1,"config":{"retention.ms":"1","segment.bytes":"99"}}'
    assert await notifications(registry) == [TOPIC, TOPIC]


async def test_nothing_is_written_after_a_change_of_controller(registry: RegistryClient) -> None:
    await registry.set(znodes.CONTROLLER, b"{}")
    with pytest.raises(ApiError) as caught:
        await change_settings(registry, TOPIC, lambda _: {"a": "1"}, controller_version=0)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert await registry.exists(TOPIC.path) is None
    assert await notifications(registry) == []


async def test_settings_of_a_deleted_topic_are_not_written(registry: RegistryClient) -> None:
    with pytest.raises(ApiError) as caught:
        await change_settings(
            registry,
            TOPIC,
            lambda _: {"a": "1"},
            controller_version=0,
            required_path=znodes.topic_path("orders"),
        )
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await registry.exists(TOPIC.path) is None


async def test_concurrent_changes_are_both_kept(registry: RegistryClient) -> None:
    await registry.create(TOPIC.path, znodes.encode_config({"first": "1"}))
    original_multi = registry.multi
    interfered = False

    async def multi(ops: object) -> object:
        nonlocal interfered
        if not interfered:
            interfered = True
            await registry.set(TOPIC.path, znodes.encode_config({"first": "1", "other": "3"}))
        return await original_multi(ops)  # type: ignore[arg-type]

    registry.multi = multi  # type: ignore[method-assign, assignment]
    await change_settings(registry, TOPIC, lambda old: {**old, "second": "2"}, controller_version=0)
    found = await read_entity(registry, TOPIC)
    assert found.settings == {"first": "1", "other": "3", "second": "2"}
    assert await notifications(registry) == [TOPIC]


async def test_settings_over_the_limit_are_rejected(registry: RegistryClient) -> None:
    large = {"follower.replication.throttled.replicas": "0:1," * (SETTINGS_BYTES_MAX // 4)}
    with pytest.raises(ApiError) as caught:
        await change_settings(registry, TOPIC, lambda _: large, controller_version=0)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


async def test_invalid_znode_is_overwritten(registry: RegistryClient) -> None:
    await registry.create(TOPIC.path, b"not json")
    await change_settings(registry, TOPIC, lambda old: {**old, "a": "1"}, controller_version=0)
    assert (await read_entity(registry, TOPIC)).settings == {"a": "1"}


async def test_parents_of_an_entity_are_created_and_removed(registry: RegistryClient) -> None:
    both = Entity("users", "anna/clients/reports")
    await write(registry, both, {"producer_byte_rate": "1"})
    assert (await read_entity(registry, both)).settings == {"producer_byte_rate": "1"}
    await write(registry, both, {})
    assert await registry.children("/config/users") == []
    assert await notifications(registry) == [both, both]


async def test_used_parents_are_kept(registry: RegistryClient) -> None:
    user = Entity("users", "anna")
    first, second = Entity("users", "anna/clients/a"), Entity("users", "anna/clients/b")
    for entity in (user, first, second):
        await write(registry, entity, {"producer_byte_rate": "1"})
    await write(registry, user, {})
    assert (await read_entity(registry, user)).settings == {}
    await write(registry, first, {})
    assert await registry.children("/config/users/anna/clients") == ["b"]
    await write(registry, user, {"producer_byte_rate": "2"})
    await write(registry, second, {})
    assert await registry.children("/config/users/anna") == []
    await write(registry, user, {})
    assert await registry.children("/config/users") == []


async def test_removal_of_an_unknown_entity_only_notifies(registry: RegistryClient) -> None:
    await write(registry, Entity("clients", "c"), {})
    assert await registry.children("/config/clients") == []
    assert await notifications(registry) == [("clients", "c")]
