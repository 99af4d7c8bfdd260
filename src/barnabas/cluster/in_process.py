"""The brokers of a cluster in this process, with an embedded registry.

    <data>/registry/                          the registry
    <data>/broker-<id>/<topic>-<partition>/   the logs of one broker

A copy of the directory can be opened elsewhere: no path or address in its files has to stay valid.

Each broker has its own thread and event loop, and reaches the others through sockets only. A test can kill or pause one
broker, and the others notice it as they notice a crashed process. All methods are thread-safe and return when the
action is complete.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.broker.broker import BrokerServer
from barnabas.cluster.faults import BrokerFaults, CuttableNetwork, SlowDisk
from barnabas.cluster.real_world import real_world
from barnabas.cluster.settings import (
    FIRST_BROKER_ID,
    HOST,
    broker_properties,
    validate_settings,
    with_absolute_log_dirs,
    with_http_port,
)
from barnabas.config import BrokerConfig
from barnabas.config.load import load_broker_config
from barnabas.errors import RegistryError, StorageError
from barnabas.metadata.cache import MetadataCache, TopicMetadata
from barnabas.metadata.znodes import CONTROLLER, decode_controller
from barnabas.model import BrokerId
from barnabas.world.clock import SystemClock
from barnabas.world.disk import RealDisk
from barnabas.world.loop_thread import LoopThread
from barnabas.world.network import HeldPort, SocketNetwork
from barnabas.world.registry.embedded import EmbeddedRegistry, EmbeddedSession
from barnabas.world.watchdog import LoopWatchdog

if TYPE_CHECKING:
    from barnabas.cluster.local_security import LocalSecurity

READY_TIMEOUT_S = 30.0
ALONE_TIMEOUT_S = 2.0
TOPICS_TIMEOUT_S = 5.0


class InProcessCluster:
    """A cluster in this process. Call `start()`, use `bootstrap_servers`, call `stop()`. It can be started again."""

    def __init__(
        self,
        data: Path,
        *,
        brokers: int = 1,
        port: int = 0,
        host: str = HOST,
        advertised: str | None = None,
        settings: Mapping[str, str] | None = None,
        registry_in_memory: bool = False,
        ends_process: bool = False,
        security: LocalSecurity | None = None,
    ) -> None:
        """The brokers listen on `port` and the ports after it; 0 lets the system choose each port. `host` and
        `advertised` are explained in settings.py (`listener_properties`). `security` secures all listeners.

        With `ends_process`, a broker whose event loop is stuck ends this process (see world/watchdog.py). Use it in
        programs that do nothing but run a cluster.
        """
        settings = settings or {}
        validate_settings(brokers, settings)
        self.ends_process = ends_process
        self.data = data
        self.security = security
        self.registry_path = None if registry_in_memory else str(data / "registry")
        self.warnings: list[str] = []
        self.brokers: dict[int, ClusterBroker] = {}
        for number in range(brokers):
            broker_id = FIRST_BROKER_ID + number
            properties = broker_properties(
                data,
                broker_id,
                port + number if port else 0,
                brokers=brokers,
                settings=settings,
                host=host,
                advertised=advertised,
                security=security,
            )
            config, warnings = load_broker_config(properties)
            self.warnings += [warning for warning in warnings if warning not in self.warnings]
            self.brokers[broker_id] = ClusterBroker(self, with_absolute_log_dirs(config))
        self.holds_ports = "listeners" not in settings
        self.partitions: list[Sequence[Set[int]]] = []
        """Active partitions of the network: groups of brokers that do not reach each other."""
        self.registry: EmbeddedRegistry | None = None
        self.registry_thread: LoopThread | None = None

    @property
    def is_running(self) -> bool:
        return self.registry is not None

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers. A stopped broker is included: it keeps its address."""
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def advertised_servers(self) -> str:
        """The addresses of all brokers for clients on other machines and in containers."""
        return ",".join(broker.advertised_address for broker in self.brokers.values())

    @property
    def controller_id(self) -> int | None:
        """The broker in the znode `/controller`; None between the loss of a controller and the next election."""
        registry = self.registry
        if registry is None:
            return None
        with registry.lock:
            node = registry.tree.find(CONTROLLER)
            try:
                return None if node is None else decode_controller(node.data)
            except RegistryError:
                return None  # another client wrote invalid data, and stop() must still work

    def start(self) -> None:
        """Start all brokers. Returns when every broker's metadata shows all brokers and a controller."""
        assert not self.is_running
        self.registry_thread = LoopThread("barnabas-registry")
        self.registry = EmbeddedRegistry(self.registry_path, SystemClock())
        try:
            self.registry_thread.run(self.registry.open())
            if self.security is not None:
                self.security.write_files()
                self.registry_thread.run(self.security.create_users(self.registry))
            if self.holds_ports:
                for broker in self.brokers.values():
                    broker.hold_ports()
            for broker in self.brokers.values():
                broker.hold_http_port()
            self.start_brokers(self.brokers.values())
        except BaseException:
            self.stop(clean=False)
            raise

    def stop(self, *, clean: bool = True) -> None:
        """Stop the brokers, the controller last: it takes part in the shutdown of each of the others."""
        if self.registry is not None:
            self.registry.expire_abandoned()
        self.clear_faults()
        controller_id = self.controller_id
        for broker in sorted(self.brokers.values(), key=lambda each: each.id == controller_id):
            if not clean:
                broker.kill()
                continue
            if broker.id == controller_id and broker.instance is not None and broker.is_running:
                # If its metadata shows no other broker, it does not try to move its leaders.
                broker.instance.thread.run(broker.instance.wait_until_alone())
            broker.stop()
        for broker in self.brokers.values():
            broker.release_ports()
        registry, self.registry = self.registry, None
        registry_thread, self.registry_thread = self.registry_thread, None
        if registry_thread is not None and registry is not None:
            try:
                registry_thread.run(registry.close())
            finally:
                registry_thread.end()

    # ---- faults

    def partition_network(self, groups: Sequence[Set[int]]) -> None:
        """Cut the connections between brokers of different groups, until `heal_network` or `clear_faults`."""
        self.partitions.append(groups)
        self.apply_partitions()

    def heal_network(self, groups: Sequence[Set[int]]) -> None:
        """End one partition. Does nothing if it has ended."""
        self.partitions = [each for each in self.partitions if each is not groups]
        self.apply_partitions()

    def apply_partitions(self) -> None:
        for broker in self.brokers.values():
            broker.cut_off(
                other
                for groups in self.partitions
                for group in groups
                if any(broker.id in each for each in groups) and broker.id not in group
                for other in group
            )

    def clear_faults(self) -> None:
        """Heal the network and the disks, and resume paused brokers."""
        self.partitions.clear()
        self.apply_partitions()
        for broker in self.brokers.values():
            broker.faults.disk_delay_s = 0.0
            broker.resume()

    # ---- used by ClusterBroker

    def start_brokers(self, brokers: Iterable[ClusterBroker]) -> None:
        """Start brokers and wait until all running brokers know each other. If that fails, the new ones are killed."""
        started = list(brokers)
        try:
            for future in [broker.begin_start() for broker in started]:
                future.result()
            self.wait_until_ready()
        except BaseException:
            for broker in started:
                broker.kill()
            raise

    def wait_until_ready(self) -> None:
        instances = self.active_instances()
        waiting = {
            broker: instance.thread.submit(instance.wait_for_brokers(instances.keys()))
            for broker, instance in instances.items()
        }
        for broker, future in waiting.items():
            if not future.result():
                cut = "; its network is cut" if self.brokers[broker].faults.cut_ports else ""
                raise RegistryError(
                    "", f"broker {broker} did not see all brokers within {READY_TIMEOUT_S:g} s{cut}"
                )

    def wait_for_topics(self, condition: Callable[[Mapping[str, TopicMetadata]], bool]) -> None:
        """Wait until the topics that each broker knows meet the condition, for at most TOPICS_TIMEOUT_S.

        Brokers that are paused or cut off from others are not waited for.
        """
        waiting = [
            instance.thread.submit(instance.wait_for_topics(condition))
            for broker, instance in self.active_instances().items()
            if not self.brokers[broker].faults.cut_ports
        ]
        wait(waiting, TOPICS_TIMEOUT_S)  # also ends if a broker is paused meanwhile

    def active_instances(self) -> dict[BrokerId, BrokerInstance]:
        """Return the brokers that run and are not paused."""
        return {
            broker.id: broker.instance
            for broker in self.brokers.values()
            if broker.instance is not None and broker.is_running and not broker.is_paused
        }

    def open_registry(self) -> tuple[EmbeddedRegistry, LoopThread]:
        """Return the registry, which is open, and its thread. Raises RuntimeError if the cluster is not running."""
        if self.registry is None or self.registry_thread is None:
            raise RuntimeError("the cluster is not running: use `with`, or call start()")
        return self.registry, self.registry_thread


class ClusterBroker:
    """One broker of a cluster. It can be stopped, killed, paused, and started again on its port and its data.

    All methods are idempotent: `stop`, `kill`, `pause` and `resume` do nothing if the broker is down, and `start` does
    nothing if it runs.
    """

    def __init__(self, cluster: InProcessCluster, config: BrokerConfig) -> None:
        self.cluster = cluster
        self.config = config
        self.id = BrokerId(config.broker_id)
        self.lock = threading.RLock()
        self.instance: BrokerInstance | None = None
        self.held_ports: list[HeldPort] = []
        self.faults = BrokerFaults()
        self.endpoint = config.listeners[0]
        self.advertised_endpoint = config.listeners[-1]

    def __repr__(self) -> str:
        state = "down" if self.instance is None else "paused" if self.is_paused else "running"
        state = state if self.failure is None else "failed"
        return f"<broker {self.id} at {self.address}: {state}>"

    @property
    def is_running(self) -> bool:
        """Also true for a paused broker. False for one whose log directories have all failed."""
        return self.instance is not None and self.failure is None

    @property
    def failure(self) -> StorageError | None:
        """The error that made the broker halt: its last log directory failed. None after it was started again."""
        instance = self.instance
        return None if instance is None else instance.broker.failure

    @property
    def is_paused(self) -> bool:
        instance = self.instance
        return instance is not None and instance.thread.is_halted

    @property
    def address(self) -> str:
        return self.endpoint.address

    @property
    def advertised_address(self) -> str:
        """The address for clients on other machines and in containers."""
        return self.advertised_endpoint.address

    @property
    def http_address(self) -> str | None:
        """`host:port` of /metrics, /healthz and /readyz; None without barnabas.http.listener."""
        listener = self.config.barnabas_http_listener
        return None if listener is None else listener.address

    def start(self) -> None:
        """Start the broker. Returns when it is ready and every running broker has it in its metadata."""
        self.cluster.open_registry()
        with self.lock:
            if self.failure is not None:
                self.kill()
            if not self.is_running:
                self.cluster.start_brokers([self])

    def stop(self) -> None:
        """Shut down cleanly: move leaders to other brokers, flush all logs, close the registry session."""
        with self.lock:
            instance = self.instance
            if instance is None:
                return
            self.resume()
            try:
                instance.thread.run(instance.broker.stop(clean=self.failure is None))
            finally:
                self.instance = None
                instance.end()

    def kill(self, *, expire: bool = True) -> None:
        """Crash the broker, as `kill -9` does. Its sockets close and unsent data is lost. Nothing is flushed,
        checkpointed or marked as clean. Files keep all data that was passed to the kernel.

        Its registry session expires at once, so that other brokers take over without delay. With `expire=False` it
        expires after zookeeper.session.timeout.ms, as after a real crash.
        """
        with self.lock:
            instance, self.instance = self.instance, None
            if instance is None:
                return
            registry, registry_thread = self.cluster.open_registry()
            instance.registry.is_closed = True
            sessions = list(instance.registry.sessions)
            registry_thread.call(lambda: for_each(registry.abandon, sessions))
            instance.thread.resume(first=instance.disconnect)
            instance.thread.call(instance.disconnect)
            if expire:
                for_each(registry.time_out, sessions)
            instance.thread.cancel_all()
            try:
                instance.thread.run(instance.broker.stop(clean=False))
            finally:
                instance.end()

    def pause(self) -> None:
        """Halt the broker, as SIGSTOP does: it reads no socket and runs no task and no timer. Its registry session
        expires unless `resume` is called in time. Connections stay open. The kernel still accepts connections and data
        for the broker until its buffers are full.

        One thing differs from SIGSTOP: an fsync that has begun completes.
        """
        with self.lock:
            if self.instance is None:
                return
            registry, registry_thread = self.cluster.open_registry()
            sessions = self.instance.registry.sessions
            self.instance.watchdog.suspend()
            self.instance.thread.halt()
            registry_thread.call(lambda: for_each(registry.count_down, sessions))

    def resume(self) -> None:
        """Continue a paused broker, as SIGCONT does."""
        with self.lock:
            if self.instance is None or not self.instance.thread.is_halted:
                return
            registry, registry_thread = self.cluster.open_registry()
            sessions = self.instance.registry.sessions
            registry_thread.call(lambda: for_each(registry.revive, sessions))
            self.instance.thread.resume()
            self.instance.watchdog.resume()

    def slow_disk(self, seconds: float) -> None:
        """Make each write and each fsync take `seconds` longer, until it is called with 0."""
        if seconds < 0:
            raise ValueError(f"slow_disk: seconds must be 0 or more, not {seconds}")
        self.faults.disk_delay_s = seconds

    def expire_session(self) -> None:
        """Expire the registry session, as after a long pause. The broker keeps running and opens a new session."""
        with self.lock:
            if self.instance is not None:
                registry, _ = self.cluster.open_registry()
                for_each(registry.time_out, self.instance.registry.sessions)

    # ---- used by InProcessCluster

    def cut_off(self, brokers: Iterable[int]) -> None:
        """Cut the connections from this broker to exactly these. Takes effect on a paused broker when it resumes."""
        others = [self.cluster.brokers[broker] for broker in brokers]
        ports = {listener.port for other in others for listener in other.config.listeners}
        with self.lock:
            instance = self.instance
            if self.faults.cut_ports == ports:
                return
            self.faults.cut_ports = ports
            if instance is None:
                return
            if instance.thread.is_halted:
                instance.thread.loop.call_soon_threadsafe(instance.cuttable.apply_cuts)
            else:
                instance.thread.call(instance.cuttable.apply_cuts)

    def begin_start(self) -> Future[None]:
        """Start the broker on a new thread. The future completes when it serves."""
        with self.lock:
            assert self.instance is None
            registry, _ = self.cluster.open_registry()
            instance = self.instance = BrokerInstance(
                registry,
                self.config,
                brokers=len(self.cluster.brokers),
                ends_process=self.cluster.ends_process,
                faults=self.faults,
            )
            return instance.thread.submit(self.start_instance(instance))

    async def start_instance(self, instance: BrokerInstance) -> None:
        await instance.broker.start()
        self.endpoint = instance.broker.endpoints[0]
        self.advertised_endpoint = instance.broker.endpoints[-1]

    def hold_ports(self) -> None:
        """Reserve the ports, so that no other process gets them while the broker is down."""
        listeners = []
        for listener in self.config.listeners:
            held = HeldPort(listener.host, listener.port)
            self.held_ports.append(held)
            listeners.append(replace(listener, port=held.port))
        self.config = replace(self.config, listeners=tuple(listeners))

    def hold_http_port(self) -> None:
        """Like `hold_ports`, for barnabas.http.listener. The settings of the broker then show the port."""
        listener = self.config.barnabas_http_listener
        if listener is not None:
            held = HeldPort(listener.host, listener.port)
            self.held_ports.append(held)
            self.config = with_http_port(self.config, listener, held.port)

    def release_ports(self) -> None:
        for held in self.held_ports:
            held.release()
        self.held_ports.clear()


class BrokerInstance:
    """One run of a broker, from start to stop, with its thread and its World."""

    def __init__(
        self,
        registry: EmbeddedRegistry,
        config: BrokerConfig,
        *,
        brokers: int,
        ends_process: bool,
        faults: BrokerFaults | None = None,
    ) -> None:
        faults = faults or BrokerFaults()
        self.registry = BrokerSessions(registry)
        world = real_world(self.registry, config, brokers=brokers, ends_process=ends_process)
        assert isinstance(world.network, SocketNetwork)
        assert isinstance(world.disk, RealDisk)
        assert isinstance(world.watchdog, LoopWatchdog)
        self.network = world.network
        self.watchdog = world.watchdog
        self.cuttable = CuttableNetwork(world.network, faults)
        self.disk = SlowDisk(faults, world.disk.descriptors)
        self.world = replace(world, network=self.cuttable, disk=self.disk)
        self.broker = BrokerServer(config, self.world)
        self.thread = LoopThread(f"barnabas-broker-{config.broker_id}")

    async def wait_for_brokers(self, brokers: Iterable[BrokerId]) -> bool:
        """Wait until the metadata of this broker shows `brokers` and a controller. False after READY_TIMEOUT_S."""
        metadata = self.metadata()
        wanted = set(brokers)
        return await metadata.wait_until(
            lambda: (
                wanted <= metadata.brokers.keys() and metadata.controller_id in metadata.brokers
            ),
            READY_TIMEOUT_S,
        )

    async def wait_for_topics(
        self, condition: Callable[[Mapping[str, TopicMetadata]], bool]
    ) -> bool:
        metadata = self.metadata()
        return await metadata.wait_until(lambda: condition(metadata.topics), TOPICS_TIMEOUT_S)

    async def wait_until_alone(self) -> bool:
        metadata = self.metadata()
        return await metadata.wait_until(lambda: len(metadata.brokers) <= 1, ALONE_TIMEOUT_S)

    def metadata(self) -> MetadataCache:
        assert self.broker.router is not None
        return self.broker.router.context.metadata

    def disconnect(self) -> None:
        """Drop all connections and stop publishing history, so that tasks that still run have no visible effect."""
        self.network.drop()
        if self.broker.publisher is not None:
            self.broker.publisher.close()

    def end(self) -> None:
        self.thread.end()
        self.disk.close()
        self.network.close()


class BrokerSessions:
    """The registry of one broker. Records the broker's sessions, for `kill` and `pause`."""

    def __init__(self, registry: EmbeddedRegistry) -> None:
        self.registry = registry
        self.sessions: list[EmbeddedSession] = []
        self.is_closed = False

    async def connect(self, session_timeout_ms: int) -> EmbeddedSession:
        if self.is_closed:
            raise RegistryError("", "this broker was killed")
        session = await self.registry.connect(session_timeout_ms)
        self.sessions.append(session)
        return session


def for_each(do: Callable[[EmbeddedSession], None], sessions: Iterable[EmbeddedSession]) -> None:
    for session in sessions:
        do(session)
