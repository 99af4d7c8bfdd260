"""Producer ids for InitProducerId. Each id is assigned once in the life of a cluster.

A broker reserves a block of 1000 ids in the registry, so most producers cost no write, and a restart wastes at most one
block. Every broker reserves for itself and retries after a conflict. In Kafka the controller reserves the blocks; the
content of the registry is the same.
"""

from __future__ import annotations

import asyncio
from random import Random

from barnabas.errors import ApiError, BadVersion, ErrorCode, RegistryError, StorageError
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import BrokerId
from barnabas.retry import CONFLICT_S, Backoff

BLOCK_SIZE = 1000


class ProducerIds:
    """This broker's current block of producer ids."""

    def __init__(self, broker_id: BrokerId, registry: RegistryClient) -> None:
        self.broker_id = broker_id
        self.registry = registry
        self.next_id = 0
        self.end = 0
        self.lock = asyncio.Lock()

    async def take(self) -> int:
        """Return the next id. Raises ApiError if no block can be reserved."""
        async with self.lock:
            if self.next_id >= self.end:
                try:
                    await self.reserve()
                except (RegistryError, StorageError) as error:
                    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
            self.next_id += 1
            return self.next_id - 1

    async def reserve(self) -> None:
        """Reserve the block after the last one. Retry if another broker has reserved it first."""
        backoff = Backoff(*CONFLICT_S, random=Random(self.broker_id))
        while True:
            data, stat = await self.registry.get(znodes.PRODUCER_ID_BLOCK)
            start = znodes.decode_producer_id_block(data).end + 1 if data else 0
            block = znodes.ProducerIdBlock(
                broker=self.broker_id, start=start, end=start + BLOCK_SIZE - 1
            )
            try:
                await self.registry.set(
                    znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), stat.version
                )
            except BadVersion:
                await backoff.wait()
                continue
            self.next_id, self.end = start, start + BLOCK_SIZE
            return
