"""Producer ids for InitProducerId. Each id is assigned once in the life of a cluster.

A broker takes a block of 1000 ids at a time, so most producers cost no write, and a restart wastes at most one block.
As in Kafka, it requests the block from the controller (AllocateProducerIds). If the controller does not respond, the
broker reserves a block itself: the write to the registry is conditional, so no two brokers get the same block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from barnabas.errors import ApiError, BadVersion, ErrorCode, RegistryError, StorageError
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import BrokerId
from barnabas.retry import CONFLICT_S, Backoff

BLOCK_SIZE = 1000
RequestBlock = Callable[[], Awaitable[znodes.ProducerIdBlock | None]]


class ProducerIds:
    """This broker's current block of producer ids."""

    def __init__(self, broker_id: BrokerId, registry: RegistryClient) -> None:
        self.broker_id = broker_id
        self.registry = registry
        self.next_id = 0
        self.end = 0
        self.lock = asyncio.Lock()

    async def take(self, request_block: RequestBlock | None = None) -> int:
        """Return the next id. Raises ApiError if no block can be reserved.

        `request_block` requests a block from the controller. It returns None if that fails.
        """
        async with self.lock:
            if self.next_id >= self.end:
                try:
                    await self.renew_block(request_block)
                except (RegistryError, StorageError) as error:
                    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
            self.next_id += 1
            return self.next_id - 1

    async def renew_block(self, request_block: RequestBlock | None) -> None:
        block = None if request_block is None else await request_block()
        if block is None:
            block = await reserve_block(self.registry, self.broker_id)
        self.next_id, self.end = block.start, block.end + 1


async def reserve_block(registry: RegistryClient, broker_id: BrokerId) -> znodes.ProducerIdBlock:
    """Reserve the block after the last one. Retry if another broker has reserved it first."""
    backoff = Backoff(*CONFLICT_S, random=Random(broker_id))
    while True:
        data, stat = await registry.get(znodes.PRODUCER_ID_BLOCK)
        start = znodes.decode_producer_id_block(data).end + 1 if data else 0
        end = start + BLOCK_SIZE - 1
        if end > znodes.INT64_MAX:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used")
        block = znodes.ProducerIdBlock(broker=broker_id, start=start, end=end)
        try:
            await registry.set(
                znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), stat.version
            )
        except BadVersion:
            await backoff.wait()
            continue
        return block
