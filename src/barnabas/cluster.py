"""Brokers of one cluster in this process, around an embedded registry.

    <data>/registry/                          the registry
    <data>/broker-<id>/<topic>-<partition>/   the logs of one broker

Nothing in there holds a path or an address that matters: a copied directory opens elsewhere.

Every broker lives on an event loop and a thread of its own, and reaches the others through sockets alone. So one of
them can be killed or halted, and the others notice it as they would notice the death of a process. All methods may be
called from any thread; they return when the thing is done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from random import SystemRandom

from msgspec.structs import replace

from barnabas.broker.broker import Broker
from barnabas.config import BrokerConfig
from barnabas.config.load import load_broker_config
from barnabas.errors import ConfigError, RegistryError
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.znodes import CONTROLLER, decode_controller
from barnabas.model import BrokerId, Endpoint
from barnabas.world.clock import SystemClock
from barnabas.world.disk import RealDisk
from barnabas.world.held_port import HeldPort
from barnabas.world.loop_thread import LoopThread
from barnabas.world.network import SocketNetwork
from barnabas.world.ports import Registry, World
from barnabas.world.registry.embedded import EmbeddedRegistry, EmbeddedSession
from barnabas.world.watchdog import LoopWatchdog

FIRST_BROKER_ID = 1
READY_SECONDS = 30.0
ALONE_SECONDS = 2.0
INTERNAL_TOPIC_REPLICAS_MAX = 3
TRANSACTION_STATE_MIN_ISR_MAX = 2
EACH_ITS_OWN = ("broker.id", "listeners", "advertised.listeners", "log.dirs", "log.dir")


class Cluster:
    """`start()`, use `bootstrap_servers`, `stop()`; and again, if you like."""

    def __init__(
        self,
        data: Path,
        *,
        brokers: int = 1,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        registry_in_memory: bool = False,
        ends_process: bool = False,
    ) -> None:
        """The brokers listen on `port` and those that follow it; 0 lets the system choose each.

        With `ends_process` a broker whose event loop is stuck ends this process (see world/watchdog.py). It is for
        programs that are nothing but a cluster.
        """
        check_shared(brokers, settings or {})
        self.ends_process = ends_process
        self.data = data
        self.registry_path = None if registry_in_memory else str(data / "registry")
        self.warnings: list[str] = []
        self.brokers: dict[int, ClusterBroker] = {}
        for number in range(brokers):
            broker_id = FIRST_BROKER_ID + number
            config, warnings = load_broker_config(
                {
                    "broker.id": str(broker_id),
                    "listeners": f"PLAINTEXT://{bracketed(host)}:{port + number if port else 0}",
                    "log.dirs": str(data / f"broker-{broker_id}"),
                    **local_settings(brokers),
                    **(settings or {}),
                }
            )
            self.warnings += [warning for warning in warnings if warning not in self.warnings]
            self.brokers[broker_id] = ClusterBroker(self, config)
        self.holds_ports = "listeners" not in (settings or {})
        self.registry: EmbeddedRegistry | None = None
        self.keeper: LoopThread | None = None

    @property
    def is_running(self) -> bool:
        return self.registry is not None

    @property
    def bootstrap_servers(self) -> str:
        """Of all brokers, also of one that is down: it comes back to the same address."""
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def controller_id(self) -> int | None:
        """Who holds `/controller` in the registry now; nobody for a moment after the last one died."""
        registry = self.registry
        if registry is None:
            return None
        with registry.lock:
            node = registry.tree.find(CONTROLLER)
            try:
                return None if node is None else decode_controller(node.data)
            except RegistryError:
                return None  # somebody wrote over it, and that must not keep anybody from stopping

    def start(self) -> None:
        """Returns when every broker's metadata shows all brokers and a controller."""
        assert not self.is_running
        self.keeper = LoopThread("barnabas-registry")
        self.registry = EmbeddedRegistry(self.registry_path, SystemClock())
        try:
            self.keeper.run(self.registry.open())
            if self.holds_ports:
                for broker in self.brokers.values():
                    broker.hold_port()
            self.start_brokers(self.brokers.values())
        except BaseException:
            self.stop(clean=False)
            raise

    def stop(self, *, clean: bool = True) -> None:
        """The controller last: it has work with each of the others that leaves. Nobody waits for one that is dead."""
        if self.registry is not None:
            self.registry.time_out_abandoned()
        for broker in self.brokers.values():
            broker.resume()
        last = self.controller_id
        for broker in sorted(self.brokers.values(), key=lambda broker: broker.id == last):
            if not clean:
                broker.kill()
                continue
            if broker.id == last:
                self.wait_until_alone(broker)
            broker.stop()
        for broker in self.brokers.values():
            broker.release_port()
        registry, self.registry = self.registry, None
        keeper, self.keeper = self.keeper, None
        if keeper is not None and registry is not None:
            try:
                keeper.run(registry.close())
            finally:
                keeper.end()

    # ---- for its brokers

    def start_brokers(self, brokers: Iterable[ClusterBroker]) -> None:
        wanted = list(brokers)
        try:
            for future in [broker.begin() for broker in wanted]:
                future.result()
            self.wait_until_ready()
        except BaseException:
            for broker in wanted:
                broker.kill()
            raise

    def wait_until_ready(self) -> None:
        lives = {
            broker.id: broker.life
            for broker in self.brokers.values()
            if broker.life is not None and not broker.is_paused
        }
        waiting = [
            (broker, life.thread.submit(life.sees(lives.keys(), READY_SECONDS)))
            for broker, life in lives.items()
        ]
        for broker, future in waiting:
            if not future.result():
                raise RegistryError(
                    "", f"broker {broker} did not hear of all brokers within {READY_SECONDS:g} s"
                )

    def wait_until_alone(self, broker: ClusterBroker) -> None:
        """One that knows itself to be alone does not try to hand anything over."""
        life = broker.life
        if life is not None:
            life.thread.run(life.is_alone(ALONE_SECONDS))

    def open_registry(self) -> tuple[EmbeddedRegistry, LoopThread]:
        if self.registry is None or self.keeper is None:
            raise RuntimeError("the cluster is not running: use it in a `with`, or call start()")
        return self.registry, self.keeper


class ClusterBroker:
    """One broker of a cluster, to be stopped, killed, paused, and started again on its port and its data.

    Each method may be called in any state, and does nothing where there is nothing to do: a broker that is down is not
    stopped, killed, paused or resumed, and one that runs is not started again.
    """

    def __init__(self, cluster: Cluster, config: BrokerConfig) -> None:
        self.cluster = cluster
        self.config = config
        self.id = BrokerId(config.broker_id)
        self.lock = threading.RLock()
        self.life: Life | None = None
        self.held: HeldPort | None = None
        self.endpoint = config.listeners[0]

    def __repr__(self) -> str:
        state = "down" if self.life is None else "paused" if self.is_paused else "running"
        return f"<broker {self.id} at {self.address}: {state}>"

    @property
    def is_running(self) -> bool:
        """Paused counts as running: it has not ended."""
        return self.life is not None

    @property
    def is_paused(self) -> bool:
        life = self.life
        return life is not None and life.thread.is_halted

    @property
    def address(self) -> str:
        return f"{bracketed(self.endpoint.host)}:{self.endpoint.port}"

    def start(self) -> None:
        """Returns when this broker can be used and all that run know of it. Fine to call twice."""
        self.cluster.open_registry()
        if not self.is_running:
            self.cluster.start_brokers([self])

    def stop(self) -> None:
        """Shut down in order: leaders handed over, everything flushed, the session closed. Fine to call twice."""
        with self.lock:
            life = self.life
            if life is None:
                return
            self.resume()
            try:
                life.thread.run(life.broker.stop())
            finally:
                self.life = None
                life.end()

    def kill(self, *, expire: bool = True) -> None:
        """As `kill -9`: its sockets close, what it was about to send or write is lost, and nothing is flushed,
        checkpointed or marked. Files keep what the kernel has been given, as they do when a process dies.

        Its session in the registry ends at once, so that the others take over without delay. Not with `expire=False`:
        then the session times out (zookeeper.session.timeout.ms), as after a real death.
        """
        with self.lock:
            life, self.life = self.life, None
            if life is None:
                return
            registry, keeper = self.cluster.open_registry()
            life.door.is_shut = True
            sessions = list(life.door.sessions)
            keeper.call(lambda: for_each(registry.abandon, sessions))
            life.thread.go_on(first=life.fall_silent)
            life.thread.call(life.fall_silent)
            if expire:
                for_each(registry.time_out, sessions)
            life.thread.cancel_all()
            try:
                life.thread.run(life.broker.stop(clean=False))
            finally:
                life.end()

    def pause(self) -> None:
        """As SIGSTOP: it reads no socket, runs no task and no timer, and is not heard of by the registry, where its
        session times out unless `resume` comes first. Connections stay open; the system still takes new ones and what
        is sent to it, until its buffers are full.

        One thing differs from a stopped process: an fsync that has begun comes to its end. Fine to call twice, and on
        one that is down, of which there is nothing to halt.
        """
        with self.lock:
            if self.life is None:
                return
            registry, keeper = self.cluster.open_registry()
            sessions = self.life.door.sessions
            self.life.watchdog.suspend()
            self.life.thread.halt()
            keeper.call(lambda: for_each(registry.count_down, sessions))

    def resume(self) -> None:
        """As SIGCONT: it goes on where it was, and learns what it missed. Fine to call if it is not paused."""
        with self.lock:
            if self.life is None or not self.life.thread.is_halted:
                return
            registry, keeper = self.cluster.open_registry()
            sessions = self.life.door.sessions
            keeper.call(lambda: for_each(registry.revive, sessions))
            self.life.thread.go_on()
            self.life.watchdog.resume()

    # ---- for the cluster

    def begin(self) -> Future[None]:
        with self.lock:
            assert self.life is None
            registry, _ = self.cluster.open_registry()
            life = self.life = Life(
                registry,
                self.config,
                brokers=len(self.cluster.brokers),
                ends_process=self.cluster.ends_process,
            )
            return life.thread.submit(self.bring_up(life))

    async def bring_up(self, life: Life) -> None:
        await life.broker.start()
        self.endpoint = life.broker.endpoints[0]

    def hold_port(self) -> None:
        (wanted,) = self.config.listeners
        self.held = HeldPort(wanted.host, wanted.port)
        endpoint = Endpoint(listener=wanted.listener, host=wanted.host, port=self.held.port)
        self.config = replace(self.config, listeners=(endpoint,))

    def release_port(self) -> None:
        held, self.held = self.held, None
        if held is not None:
            held.release()


class Life:
    """A broker from its start to its end, with the thread and the doors that it had."""

    def __init__(
        self, registry: EmbeddedRegistry, config: BrokerConfig, *, brokers: int, ends_process: bool
    ) -> None:
        self.door = OwnSessions(registry)
        self.world = real_world(self.door, config, brokers=brokers, ends_process=ends_process)
        assert isinstance(self.world.network, SocketNetwork)
        self.network = self.world.network
        assert isinstance(self.world.watchdog, LoopWatchdog)
        self.watchdog = self.world.watchdog
        self.broker = Broker(config, self.world)
        self.thread = LoopThread(f"barnabas-broker-{config.broker_id}")

    async def sees(self, brokers: Iterable[BrokerId], timeout_s: float) -> bool:
        metadata = self.metadata()
        wanted = set(brokers)
        return await metadata.wait_until(
            lambda: (
                wanted <= metadata.brokers.keys() and metadata.controller_id in metadata.brokers
            ),
            timeout_s,
        )

    async def is_alone(self, timeout_s: float) -> bool:
        metadata = self.metadata()
        return await metadata.wait_until(lambda: len(metadata.brokers) <= 1, timeout_s)

    def metadata(self) -> MetadataCache:
        assert self.broker.router is not None
        return self.broker.router.context.metadata

    def fall_silent(self) -> None:
        """Whatever still runs, nobody hears of it: neither those at the other end nor a later reader of the history."""
        self.network.drop()
        if self.broker.publisher is not None:
            self.broker.publisher.close()

    def end(self) -> None:
        self.thread.end()
        close_doors(self.world)


class OwnSessions:
    """The registry as one broker reaches it; whoever kills or halts the broker finds its sessions here."""

    def __init__(self, registry: EmbeddedRegistry) -> None:
        self.registry = registry
        self.sessions: list[EmbeddedSession] = []
        self.is_shut = False

    async def connect(self, session_timeout_ms: int) -> EmbeddedSession:
        if self.is_shut:
            raise RegistryError("", "this broker was killed")
        session = await self.registry.connect(session_timeout_ms)
        self.sessions.append(session)
        return session


def for_each(do: Callable[[EmbeddedSession], None], sessions: Iterable[EmbeddedSession]) -> None:
    for session in sessions:
        do(session)


def check_shared(brokers: int, settings: Mapping[str, str]) -> None:
    if type(brokers) is not int:  # whoever is not checked by types: a notebook, a fixture
        raise TypeError(
            f"brokers is how many to run, a whole number as in brokers=3, not {brokers!r}"
        )
    if brokers < 1:
        raise ConfigError("brokers", f"{brokers} is too few: a cluster has at least one")
    for name in EACH_ITS_OWN:
        if brokers > 1 and name in settings:
            raise ConfigError(name, "cannot be the same for several brokers; leave it out")


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def real_world(
    registry: Registry, config: BrokerConfig, *, brokers: int = 1, ends_process: bool = False
) -> World:
    """All real doors. Socket buffers are the kernel's choice, which adapts, unless the operator wrote a size down.
    Brokers of one process share its descriptors. With `ends_process` a stuck event loop ends this process."""
    written = config.properties
    network = SocketNetwork(
        config.socket_send_buffer_bytes if "socket.send.buffer.bytes" in written else -1,
        config.socket_receive_buffer_bytes if "socket.receive.buffer.bytes" in written else -1,
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
    )


def close_doors(world: World) -> None:
    """End the threads behind the real doors; the broker has stopped."""
    if isinstance(world.disk, RealDisk):
        world.disk.close()
    if isinstance(world.network, SocketNetwork):
        world.network.close()


def local_settings(brokers: int) -> dict[str, str]:
    """Defaults for a cluster with this number of brokers on one machine.

    Internal topics get Kafka's default number of replicas, or one on each broker if there are fewer. The first member
    of a group does not wait for others.
    """
    return {
        "offsets.topic.replication.factor": str(min(INTERNAL_TOPIC_REPLICAS_MAX, brokers)),
        "transaction.state.log.replication.factor": str(min(INTERNAL_TOPIC_REPLICAS_MAX, brokers)),
        "transaction.state.log.min.isr": str(min(TRANSACTION_STATE_MIN_ISR_MAX, brokers)),
        "group.initial.rebalance.delay.ms": "0",
    }
