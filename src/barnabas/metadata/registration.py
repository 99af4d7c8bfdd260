"""A broker makes itself known: the paths every cluster has, the cluster's id, and its own entry."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from random import Random

from barnabas.errors import BadVersion, MultiFailed, NodeExists, NoNode, RegistryError
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import Broker, BrokerEpoch
from barnabas.world.ports import Create, RegistrySession, SetData, WatchEvent, ZnodeStat


async def prepare(registry: RegistrySession) -> None:
    """Create the persistent paths; who comes first does not matter."""

    async def create(path: str, data: bytes = b"") -> None:
        with suppress(NodeExists):
            await registry.create(path, data)

    # Sent together, they share one write to the disk; parents stand before their children.
    await asyncio.gather(
        *(create(path) for path in znodes.PERSISTENT_PATHS),
        create(znodes.FEATURE, znodes.encode_features({})),
    )


async def cluster_id(registry: RegistrySession, random: Random) -> str:
    """The cluster's id, made up by whoever asks first."""
    fresh = base64.urlsafe_b64encode(random.randbytes(16)).decode().rstrip("=")
    with suppress(NodeExists):
        await registry.create(znodes.CLUSTER)
    try:
        await registry.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(fresh))
    except NodeExists:
        data, _ = await registry.get(znodes.CLUSTER_ID)
        return znodes.decode_cluster_id(data)
    return fresh


async def register(
    registry: RegistrySession, broker: Broker, now_ms: int, *, wait_s: float = 0.0
) -> BrokerEpoch:
    """Announce the broker; its epoch is the transaction that created the entry.

    An entry that is there already may be our own, its answer lost; or that of a session we had before, which the
    registry has not cleared away yet: then it is replaced. One of anybody else is waited for: a broker that was killed
    and started again meets the entry of its former self until that session has timed out. RegistryError if it stays.
    """
    path = znodes.broker_path(broker.id)
    data = znodes.encode_broker(broker, timestamp_ms=now_ms)
    former = registry.session_ids if isinstance(registry, RegistryClient) else frozenset[int]()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    while True:
        try:
            # Created empty and set at once, as Kafka does: a transaction tells the stat of a set, not of a creation.
            results = await registry.multi(
                [Create(path=path, ephemeral=True), SetData(path=path, data=data, version=0)]
            )
            stat = results[1]
            assert isinstance(stat, ZnodeStat)
            return BrokerEpoch(stat.czxid)
        except MultiFailed as failed:
            if not isinstance(failed.error, NodeExists):
                raise failed.error from None
        gone = asyncio.Event()

        def notice(_: WatchEvent, gone: asyncio.Event = gone) -> None:
            gone.set()

        found = await registry.exists(path, notice)
        if found is None:
            continue
        if found.ephemeral_owner == registry.id:
            return BrokerEpoch(found.czxid)
        if found.ephemeral_owner in former:
            with suppress(NoNode, BadVersion):
                await registry.delete(path, found.version)
            continue
        try:
            async with asyncio.timeout_at(deadline):
                await gone.wait()
        except TimeoutError:
            raise RegistryError(
                path,
                f"another broker is registered as {broker.id}: give this one a broker.id of its own, or stop the other",
            ) from None
