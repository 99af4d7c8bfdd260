"""The znode /feature, and the epoch of the finalized features that ApiVersions reports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.errors import RegistryError
from barnabas.metadata import registration, znodes
from barnabas.metadata.features import UNKNOWN_EPOCH, FinalizedFeatures
from barnabas.metadata.registry_client import RegistryClient
from barnabas.world.clock import SystemClock
from barnabas.world.registry.embedded import EmbeddedRegistry


@pytest.fixture
async def registry() -> AsyncIterator[RegistryClient]:
    embedded = EmbeddedRegistry(None, SystemClock())
    client = RegistryClient(embedded, 6000)
    await client.open()
    await registration.create_persistent_paths(client)
    yield client
    await client.close()
    await embedded.close()


def test_features_have_the_format_of_kafka() -> None:
    assert znodes.encode_features() == b'{"version":2,"status":1,"features":{}}'
    one = b'{"version":2,"status":1,"features":{"f":{"max_version_level":3}}}'
    assert znodes.encode_features({"f": 3}) == one
    assert znodes.decode_features(one) == znodes.FeatureLevels(is_enabled=True, levels={"f": 3})


def test_version_1_has_a_minimum_level() -> None:
    data = (
        b'{"version":1,"status":0,"features":{"f":{"min_version_level":1,"max_version_level":2}}}'
    )
    assert znodes.decode_features(data) == znodes.FeatureLevels(is_enabled=False, levels={"f": 2})


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b'{"features":{}}', b'{"status":1}', b'{"status":1,"features":{"f":2}}'],
)
def test_invalid_features_are_a_registry_error(data: bytes) -> None:
    with pytest.raises(RegistryError):
        znodes.decode_features(data)


async def test_epoch_is_the_version_of_the_znode(registry: RegistryClient) -> None:
    changed = asyncio.Event()
    features = FinalizedFeatures(registry, changed.set)
    assert features.epoch == UNKNOWN_EPOCH
    await features.refresh()
    assert features.epoch == 0
    await registry.set(znodes.FEATURE, znodes.encode_features())
    async with asyncio.timeout(30):
        await changed.wait()
    await features.refresh()
    assert features.epoch == 1


async def test_created_znode_is_noticed(registry: RegistryClient) -> None:
    changed = asyncio.Event()
    features = FinalizedFeatures(registry, changed.set)
    await registry.delete(znodes.FEATURE)
    await features.refresh()
    assert features.epoch == UNKNOWN_EPOCH
    await registry.create(znodes.FEATURE, znodes.encode_features())
    async with asyncio.timeout(30):
        await changed.wait()
    await features.refresh()
    assert features.epoch == 0


@pytest.mark.parametrize("data", [b'{"version":2,"status":0,"features":{}}', b"garbage"])
async def test_epoch_of_disabled_or_invalid_features_is_unknown(
    registry: RegistryClient, data: bytes
) -> None:
    features = FinalizedFeatures(registry, lambda: None)
    await registry.set(znodes.FEATURE, data)
    await features.refresh()
    assert features.epoch == UNKNOWN_EPOCH


async def test_unsupported_features_are_logged(
    registry: RegistryClient, caplog: pytest.LogCaptureFixture
) -> None:
    await registry.set(znodes.FEATURE, znodes.encode_features({"transaction.version": 2}))
    await FinalizedFeatures(registry, lambda: None).refresh()
    assert "ignoring unsupported features names=transaction.version" in caplog.text
