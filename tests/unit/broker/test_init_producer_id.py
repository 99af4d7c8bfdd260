"""Allocation of producer ids: each id is used once in the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.broker.init_producer_id import BLOCK_SIZE, ProducerIds
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata import registration, znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import BrokerId
from barnabas.world.clock import SystemClock
from barnabas.world.registry.embedded import EmbeddedRegistry


@pytest.fixture
async def registries() -> AsyncIterator[list[RegistryClient]]:
    """Registry clients of three brokers."""
    embedded = EmbeddedRegistry(None, SystemClock())
    clients = [RegistryClient(embedded, 6000) for _ in range(3)]
    for client in clients:
        await client.open()
        await registration.create_persistent_paths(client)
    yield clients
    for client in clients:
        await client.close()
    await embedded.close()


async def test_concurrent_brokers_get_different_blocks(
    registries: list[RegistryClient],
) -> None:
    brokers = [ProducerIds(BrokerId(n), each) for n, each in enumerate(registries)]
    taken = await asyncio.gather(*(ids.take() for ids in brokers for _ in range(BLOCK_SIZE + 1)))
    assert len(set(taken)) == len(taken)
    assert max(taken) < 6 * BLOCK_SIZE, "two blocks per broker, none skipped"


async def test_restarted_broker_continues_after_reserved_block(
    registries: list[RegistryClient],
) -> None:
    registry = registries[0]
    assert await ProducerIds(BrokerId(7), registry).take() == 0
    assert await ProducerIds(BrokerId(7), registry).take() == BLOCK_SIZE
    data, _ = await registry.get(znodes.PRODUCER_ID_BLOCK)
    block = znodes.decode_producer_id_block(data)
    assert (block.broker, block.start, block.end) == (7, BLOCK_SIZE, 2 * BLOCK_SIZE - 1)


async def test_ids_end_with_the_block_without_registry(
    registries: list[RegistryClient],
) -> None:
    ids = ProducerIds(BrokerId(1), registries[0])
    await ids.take()
    await registries[0].close()
    for expected in range(1, BLOCK_SIZE):
        assert await ids.take() == expected
    with pytest.raises(ApiError) as refused:
        await ids.take()
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_block_of_the_controller_is_used(registries: list[RegistryClient]) -> None:
    async def request_block() -> znodes.ProducerIdBlock:
        return znodes.ProducerIdBlock(broker=BrokerId(1), start=5000, end=5001)

    ids = ProducerIds(BrokerId(1), registries[0])
    assert [await ids.take(request_block) for _ in range(4)] == [5000, 5001, 5000, 5001]
    data, _ = await registries[0].get(znodes.PRODUCER_ID_BLOCK)
    assert data == b"", "the broker has written nothing itself"


async def test_broker_reserves_a_block_if_the_controller_has_none(
    registries: list[RegistryClient],
) -> None:
    async def request_block() -> None: ...

    ids = ProducerIds(BrokerId(1), registries[0])
    assert await ids.take(request_block) == 0
    assert await ids.take(request_block) == 1


async def test_block_beyond_the_last_producer_id_is_not_reserved(
    registries: list[RegistryClient],
) -> None:
    last = znodes.ProducerIdBlock(broker=BrokerId(1), start=2**63 - 1500, end=2**63 - 501)
    await registries[0].set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(last))
    with pytest.raises(ApiError) as refused:
        await ProducerIds(BrokerId(1), registries[0]).take()
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
