"""A broker makes itself known: the paths every cluster has, the cluster's id, its own entry, and who is in charge."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from random import Random

from barnabas.errors import NodeExists, NoNode
from barnabas.metadata import znodes
from barnabas.model import Broker, BrokerId, ControllerEpoch
from barnabas.world.ports import Create, RegistrySession, SetData


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


async def register(registry: RegistrySession, broker: Broker, now_ms: int) -> int:
    """Announce the broker; its epoch is the transaction that created the entry."""
    data = znodes.encode_broker(broker, timestamp_ms=now_ms)
    _, stat = await registry.create(znodes.broker_path(broker.id), data, ephemeral=True)
    return stat.czxid


async def take_charge(
    registry: RegistrySession, broker_id: BrokerId, now_ms: int
) -> ControllerEpoch:
    """Alone, a broker is the controller: the next epoch is its own."""
    try:
        data, stat = await registry.get(znodes.CONTROLLER_EPOCH)
        epoch, version = znodes.decode_controller_epoch(data), stat.version
    except NoNode:
        await registry.create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
        epoch, version = ControllerEpoch(0), 0
    following = ControllerEpoch(epoch + 1)
    await registry.multi(
        [
            Create(
                path=znodes.CONTROLLER,
                data=znodes.encode_controller(broker_id, timestamp_ms=now_ms),
                ephemeral=True,
            ),
            SetData(
                path=znodes.CONTROLLER_EPOCH,
                data=znodes.encode_controller_epoch(following),
                version=version,
            ),
        ]
    )
    return following
