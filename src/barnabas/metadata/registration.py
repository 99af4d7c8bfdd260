"""Registration of a broker: the persistent paths, the cluster id, and the broker's own znode."""

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

WARN_AFTER_S = 1.0


async def create_persistent_paths(registry: RegistrySession) -> None:
    """Create the paths that every cluster has. Existing ones are no error."""

    async def create(path: str, data: bytes = b"") -> None:
        with suppress(NodeExists):
            await registry.create(path, data)

    # Sent together, so that the registry commits them together. Parents come before their children.
    await asyncio.gather(
        *(create(path) for path in znodes.PERSISTENT_PATHS),
        create(znodes.FEATURE, znodes.encode_features()),
    )


async def read_or_create_cluster_id(registry: RegistrySession, random: Random) -> str:
    """Return the cluster id. The first broker creates a random one."""
    new_id = base64.urlsafe_b64encode(random.randbytes(16)).decode().rstrip("=")
    with suppress(NodeExists):
        await registry.create(znodes.CLUSTER)
    try:
        await registry.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(new_id))
    except NodeExists:
        data, _ = await registry.get(znodes.CLUSTER_ID)
        return znodes.decode_cluster_id(data)
    return new_id


async def register(
    registry: RegistrySession, broker: Broker, now_ms: int, *, wait_s: float = 0.0
) -> BrokerEpoch:
    """Register the broker. Returns the broker epoch: the id of the transaction that created the znode.

    The znode may exist already:

    - It belongs to the current session, because the response to the first attempt was lost. This is a success.
    - It belongs to an earlier session of this client that the registry has not removed yet. It is replaced.
    - It belongs to another client, such as this broker before it was killed and restarted. Wait up to `wait_s` seconds
      for that session to time out. Raises RegistryError if the znode is still there.
    """
    path = znodes.broker_path(broker.id)
    data = znodes.encode_broker(broker, timestamp_ms=now_ms)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    backoff = Backoff(*CONFLICT_S, random=Random(broker.id))
    while True:
        try:
            # Create, then set, as Kafka does: a transaction returns the stat of a set, but not of a create.
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
        if found is not None and is_own_znode(registry, found):
            with suppress(NoNode, BadVersion):
                await registry.delete(path, found.version)
        elif found is not None:
            await wait_until_free(registry, broker.id, deadline - loop.time())
        await backoff.wait()


async def update_registration(registry: RegistrySession, broker: Broker, now_ms: int) -> None:
    """Write new endpoints to the broker's znode. The broker epoch stays the same.

    If the broker is not registered now, it does nothing: the next registration has the new endpoints.
    """
    with suppress(NoNode):
        await registry.set(
            znodes.broker_path(broker.id), znodes.encode_broker(broker, timestamp_ms=now_ms)
        )


async def wait_until_free(registry: RegistrySession, broker_id: BrokerId, wait_s: float) -> None:
    """Wait until no other client is registered with this broker id. Raises RegistryError after `wait_s` seconds.

    The broker calls this before it opens its logs, because another running broker may be using them.
    """
    path = znodes.broker_path(broker_id)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    warning_timer = loop.call_later(
        WARN_AFTER_S,
        logger.warning,
        "broker.id=%d is registered by another session, of a running or killed broker: "
        "waiting up to %g s for that session to end",
        broker_id,
        wait_s,
    )
    try:
        found = await registry.exists(path)
        while found is not None and not is_own_znode(registry, found):
            gone = asyncio.Event()

            def on_change(_: WatchEvent, gone: asyncio.Event = gone) -> None:
                gone.set()

            found = await registry.exists(path, on_change)
            if found is not None and not is_own_znode(registry, found):
                async with asyncio.timeout_at(deadline):
                    await gone.wait()
    except TimeoutError:
        raise RegistryError(
            path,
            f"another broker is registered as {broker_id}: set a different broker.id, or stop the other broker",
        ) from None
    finally:
        warning_timer.cancel()


def is_own_znode(registry: RegistrySession, found: ZnodeStat) -> bool:
    """Return whether the znode belongs to the current session or to an earlier one of this client."""
    own_ids = registry.session_ids if isinstance(registry, RegistryClient) else frozenset[int]()
    return found.ephemeral_owner == registry.id or found.ephemeral_owner in own_ids
