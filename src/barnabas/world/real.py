"""All real doors at once: what a broker outside of a simulation is given."""

from __future__ import annotations

from random import SystemRandom

from barnabas.config import BrokerConfig
from barnabas.world.clock import SystemClock
from barnabas.world.disk import RealDisk
from barnabas.world.network import SocketNetwork
from barnabas.world.ports import Registry, World


def real_world(registry: Registry, config: BrokerConfig) -> World:
    """Socket buffers are the kernel's choice, which adapts, unless the operator wrote a size down."""
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
