"""The real World of a broker: the system clock, sockets, files and a watchdog."""

from __future__ import annotations

from random import SystemRandom

from barnabas.config import BrokerConfig
from barnabas.world.call_thread import DaemonThreadCaller
from barnabas.world.clock import SystemClock
from barnabas.world.disk import RealDisk
from barnabas.world.download import UrlDownloader
from barnabas.world.network import SocketNetwork
from barnabas.world.ports import Registry, World
from barnabas.world.watchdog import LoopWatchdog


def real_world(
    registry: Registry, config: BrokerConfig, *, brokers: int = 1, ends_process: bool = False
) -> World:
    """Build the World of a broker.

    The kernel chooses the sizes of socket buffers unless they are set: the declared defaults are not applied. `brokers`
    is the number of brokers in this process, which share its file descriptors. With `ends_process`, a stuck event loop
    ends this process.
    """
    properties = config.properties
    network = SocketNetwork(
        config.socket_send_buffer_bytes if "socket.send.buffer.bytes" in properties else -1,
        config.socket_receive_buffer_bytes if "socket.receive.buffer.bytes" in properties else -1,
    )
    network.streams_max = max(network.streams_max // brokers, 1)
    disk = RealDisk()
    disk.descriptors = max(disk.descriptors // brokers, 16)
    return World(
        clock=SystemClock(),
        network=network,
        disk=disk,
        registry=registry,
        random=SystemRandom(),
        watchdog=LoopWatchdog(
            config.broker_id,
            stuck_s=config.zookeeper_session_timeout_ms / 1000,
            ends_process=ends_process and config.barnabas_watchdog_exit_enable,
        ),
        caller=DaemonThreadCaller(),
        downloader=UrlDownloader(),
    )


def close_world(world: World) -> None:
    """End the threads of the World after its broker has stopped."""
    if isinstance(world.disk, RealDisk):
        world.disk.close()
    if isinstance(world.network, SocketNetwork):
        world.network.close()
