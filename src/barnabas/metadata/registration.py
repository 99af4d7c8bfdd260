"""A broker makes itself known: the paths every cluster has, the cluster's id, and its own entry."""

from __future__ import annotations

import asyncio
import base64
import logging
from contextlib import suppress
from random import Random

from barnabas.errors import BadVersion, MultiFailed, NodeExists, NoNode, RegistryError
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import Broker, BrokerEpoch, BrokerId
from barnabas.retry import CONFLICT_S, Backoff
from barnabas.world.ports import Create, RegistrySession, SetData, WatchEvent, ZnodeStat

logger = logging.getLogger("barnabas.registry")

SILENT_S = 1.0


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
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    backoff = Backoff(*CONFLICT_S, random=Random(broker.id))
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
        found = await registry.exists(path)
        if found is not None and found.ephemeral_owner == registry.id:
            return BrokerEpoch(found.czxid)
        if found is not None and is_ours(registry, found):
            with suppress(NoNode, BadVersion):
                await registry.delete(path, found.version)
        elif found is not None:
            await wait_until_free(registry, broker.id, deadline - loop.time())
        await backoff.wait()


async def wait_until_free(registry: RegistrySession, broker_id: BrokerId, wait_s: float) -> None:
    """Until nobody else is registered under this id. Waited for before the data is touched, which may be of another."""
    path = znodes.broker_path(broker_id)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    telling = loop.call_later(
        SILENT_S,
        logger.warning,
        "broker.id=%d is registered by another session, of a broker that runs or was killed: "
        "waiting up to %g s for it to go",
        broker_id,
        wait_s,
    )
    try:
        found = await registry.exists(path)
        while found is not None and not is_ours(registry, found):
            gone = asyncio.Event()

            def notice(_: WatchEvent, gone: asyncio.Event = gone) -> None:
                gone.set()

            found = await registry.exists(path, notice)
            if found is not None and not is_ours(registry, found):
                async with asyncio.timeout_at(deadline):
                    await gone.wait()
    except TimeoutError:
        raise RegistryError(
            path,
            f"another broker is registered as {broker_id}: give this one a broker.id of its own, or stop the other",
        ) from None
    finally:
        telling.cancel()


def is_ours(registry: RegistrySession, found: ZnodeStat) -> bool:
    former = registry.session_ids if isinstance(registry, RegistryClient) else frozenset[int]()
    return found.ephemeral_owner == registry.id or found.ephemeral_owner in former
