"""Brokers of one cluster in this process, around an embedded registry.

    <data>/registry/                          the registry
    <data>/broker-<id>/<topic>-<partition>/   the logs of one broker

Nothing in there holds a path or an address that matters: a copied directory opens elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import SystemRandom

from barnabas.broker.broker import Broker
from barnabas.config import BrokerConfig
from barnabas.errors import ConfigError
from barnabas.world.clock import SystemClock
from barnabas.world.disk import RealDisk
from barnabas.world.network import SocketNetwork
from barnabas.world.ports import Registry, World
from barnabas.world.registry.embedded import EmbeddedRegistry

FIRST_BROKER_ID = 1


class Cluster:
    """`await start()`, use `bootstrap_servers`, `await stop()`."""

    def __init__(
        self,
        data: Path,
        *,
        brokers: int = 1,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        registry_in_memory: bool = False,
    ) -> None:
        if brokers != 1:
            raise ConfigError("brokers", f"{brokers} is not possible yet: a cluster has one broker")
        self.data = data
        self.registry = EmbeddedRegistry(
            None if registry_in_memory else str(data / "registry"), SystemClock()
        )
        self.warnings: list[str] = []
        self.brokers: list[Broker] = []
        for broker_id in range(FIRST_BROKER_ID, FIRST_BROKER_ID + brokers):
            config, warnings = BrokerConfig.load(
                {
                    "broker.id": str(broker_id),
                    "listeners": f"PLAINTEXT://{bracketed(host)}:{port}",
                    "log.dirs": str(data / f"broker-{broker_id}"),
                    **(settings or {}),
                }
            )
            self.warnings += warnings
            self.brokers.append(Broker(config, real_world(self.registry, config)))

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(
            f"{bracketed(broker.endpoints[0].host)}:{broker.endpoints[0].port}"
            for broker in self.brokers
        )

    async def start(self) -> None:
        try:
            await self.registry.open()
            for broker in self.brokers:
                await broker.start()
        except BaseException:
            await self.stop(clean=False)
            raise

    async def stop(self, *, clean: bool = True) -> None:
        for broker in reversed(self.brokers):
            await broker.stop(clean=clean)
            close_doors(broker.world)
        await self.registry.close()


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def real_world(registry: Registry, config: BrokerConfig) -> World:
    """All real doors. Socket buffers are the kernel's choice, which adapts, unless the operator wrote a size down."""
    written = config.properties
    return World(
        clock=SystemClock(),
        network=SocketNetwork(
            config.socket_send_buffer_bytes if "socket.send.buffer.bytes" in written else -1,
            config.socket_receive_buffer_bytes if "socket.receive.buffer.bytes" in written else -1,
        ),
        disk=RealDisk(),
        registry=registry,
        random=SystemRandom(),
    )


def close_doors(world: World) -> None:
    """End the threads behind the real doors; the broker has stopped."""
    if isinstance(world.disk, RealDisk):
        world.disk.close()
    if isinstance(world.network, SocketNetwork):
        world.network.close()
