"""One broker: creates its components, starts them in order, and stops them: clients first, registry session last.

    registry session ─► logs loaded ─► sockets open ─► registered ─► controller running ─► ready ─► clients served

The controller sends requests to every broker, including its own, over ordinary connections. So the sockets are open
before the broker registers. Clients are served when the broker is ready, or after READY_TIMEOUT_SECONDS. A ready broker
has received UpdateMetadata from the controller, and has a log for every partition assigned to it.

A broker whose last log directory fails halts: it stops as in a crash, and the controller elects other leaders.
`failure` has the error, and `halted` is set when the broker has stopped. Its owner decides what follows: `barnabas
broker` exits with code 1, an in-process cluster shows the broker as failed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.broker.client_quotas import ClientQuotas
from barnabas.broker.config_admin.apply import ConfigApplier, read_dynamic_settings, read_quotas
from barnabas.broker.config_admin.changes import ConfigChanges
from barnabas.broker.context import BrokerContext
from barnabas.broker.control_plane import ControlPlane, history_client_id
from barnabas.broker.controlled_shutdown import shut_down_controlled
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.init_producer_id import ProducerIds
from barnabas.broker.lazy_groups import LazyGroups
from barnabas.broker.lazy_transactions import LazyTransactions
from barnabas.broker.listener import Listeners
from barnabas.broker.log_cleaner import LogCleaner
from barnabas.broker.maintenance import start_maintenance
from barnabas.broker.mutation_quotas import MutationQuotas, RegistryRates
from barnabas.broker.policies import Policies, load_policies
from barnabas.broker.request_metrics import RequestMetrics
from barnabas.broker.router import Router
from barnabas.broker.security.broker_security import BrokerSecurity
from barnabas.broker.startup.lost_logs import find_lost_logs
from barnabas.broker.startup.stray_logs import adopt_logs, rename_stray_logs
from barnabas.broker.topic_admin.topics import Topics
from barnabas.config import BrokerConfig
from barnabas.config.current import CurrentConfig
from barnabas.controller.controller import Controller
from barnabas.errors import (
    AddressInUse,
    ConfigError,
    RegistryError,
    RegistrySessionExpired,
    StorageError,
)
from barnabas.history.publisher import Publisher
from barnabas.metadata import registration, znodes
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.features import FinalizedFeatures
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import WILDCARD_HOSTS, Broker, BrokerId, Endpoint
from barnabas.replication.replica_manager import ReplicaManager, loop_ms
from barnabas.retry import Backoff
from barnabas.storage.log_manager import LogManager
from barnabas.tasks import Tasks
from barnabas.world.ports import SessionState, World

if TYPE_CHECKING:
    from barnabas.broker.monitoring import Monitoring

logger = logging.getLogger("barnabas.broker")

READY_TIMEOUT_SECONDS = 30.0
START_ATTEMPTS = 5
RESTART_SECONDS = (0.1, 1.0)
READY_POLL_SECONDS = 0.002


class BrokerServer:
    """A broker in this process. `start()` returns when it serves clients."""

    def __init__(self, config: BrokerConfig, world: World) -> None:
        if not __debug__:
            raise ConfigError("python -O", "brokers need Python's assertions; start without -O")
        self.config = config
        """The settings of the file."""
        self.current = CurrentConfig(config)
        self.world = world
        self.broker_id = BrokerId(config.broker_id)
        self.tasks = Tasks()
        self.endpoints: tuple[Endpoint, ...] = ()
        self.listeners_lock = asyncio.Lock()
        """Held while listeners are opened and closed."""
        self.registry: RegistryClient | None = None
        self.control: ControlPlane | None = None
        self.logs: LogManager | None = None
        self.replicas: ReplicaManager | None = None
        self.listeners: Listeners | None = None
        self.groups: LazyGroups | None = None
        self.transactions: LazyTransactions | None = None
        self.router: Router | None = None
        self.security: BrokerSecurity | None = None
        self.controller: Controller | None = None
        self.publisher: Publisher | None = None
        self.cleaner: LogCleaner | None = None
        self.metrics = RequestMetrics(config.barnabas_slow_request_ms)
        self.monitoring: Monitoring | None = None
        self.policies = Policies()
        self.features: FinalizedFeatures | None = None
        self.config_changes: ConfigChanges | None = None
        self.is_started = False
        self.is_stopping = False
        self.failure: StorageError | None = None
        """The error of the last log directory, if all have failed."""
        self.halting: asyncio.Task[None] | None = None
        self.halted = asyncio.Event()

    async def start(self) -> None:
        """Start the broker. If the registry session expires meanwhile, start again, up to START_ATTEMPTS times."""
        backoff = Backoff(*RESTART_SECONDS, random=self.world.random)
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                await self.start_once()
                return
            except RegistrySessionExpired as error:
                # The process may have been suspended for longer than the session timeout.
                await self.stop(clean=False)
                if attempt == START_ATTEMPTS:
                    raise
                logger.warning(
                    "registry session expired during the start, starting again error=%s", error
                )
                await backoff.wait()
            except BaseException:
                await self.stop(clean=False)
                raise

    async def start_once(self) -> None:
        world = self.world
        now_ms = world.clock.now_ms()
        self.is_stopping = False
        if self.config.barnabas_http_listener is not None:
            from barnabas.broker.monitoring import Monitoring  # a broker without it starts faster

            self.monitoring = Monitoring(self)
            await self.monitoring.open(self.config.barnabas_http_listener)
        policies = self.policies = load_policies(self.config, world.caller)
        registry = self.registry = RegistryClient(
            world.registry, self.config.zookeeper_session_timeout_ms, world.random
        )
        await registry.open()
        await registration.create_persistent_paths(registry)
        current = self.current = CurrentConfig(self.config)
        await read_dynamic_settings(registry, self.broker_id, current)
        config = current.value
        client_quotas = ClientQuotas(config, loop_ms)
        client_quotas.replace_all(await read_quotas(registry))
        cluster_id = await registration.read_or_create_cluster_id(registry, world.random)

        security = self.security = BrokerSecurity(current, world, registry)
        await security.start()
        metadata = MetadataCache(cluster_id)
        topics = Topics(registry, metadata, config, world.random, policies)
        await topics.refresh(await registry.children(znodes.TOPICS))
        logs = self.logs = LogManager(
            world.disk,
            config.log_dirs,
            random=world.random,
            producer_expiration_ms=config.producer_id_expiration_ms,
        )
        # Lock first: a lock shows at once that another process runs this broker. A znode may be left from a crash.
        logs.lock_used()
        await registration.wait_until_free(registry, self.broker_id, self.registration_timeout_s)
        logs.load_all(self.broker_id, cluster_id, topics.config_of, now_ms)
        publisher = self.publisher = Publisher(
            replace(world, network=security.peers),
            config.log_dirs[0],
            metadata,
            client_id=history_client_id(self.broker_id),
            listener=config.inter_broker_listener,
            is_enabled=config.barnabas_history_topic_enable,
        )
        publisher.open()
        if config.barnabas_adopt_logs:
            await adopt_logs(registry, logs, topics, config)
        await rename_stray_logs(registry, logs, self.broker_id)
        lost_logs = await find_lost_logs(
            registry, logs, self.broker_id, wait_s=self.registration_timeout_s
        )
        control = self.control = ControlPlane(self.broker_id, registry, security.access)
        replicas = self.replicas = ReplicaManager(
            self.broker_id,
            logs,
            disk=world.disk,
            clock=world.clock,
            network=security.peers,
            metadata=metadata,
            registration=control,
            config=config,
        )
        controller = self.controller = Controller(
            self.broker_id,
            registry,
            security.control_plane,
            world.clock,
            world.random,
            config=config,
            history=publisher,
            register=self.register,
        )
        recorder = publisher.coordinator_recorder(self.broker_id)
        groups = self.groups = LazyGroups(replicas, world.random, recorder)
        transactions = self.transactions = LazyTransactions(replicas, security.peers, recorder)
        features = self.features = FinalizedFeatures(registry, self.features_changed)
        context = BrokerContext(
            current_config=current,
            clock=world.clock,
            network=security.peers,
            registry=registry,
            control=control,
            controller=controller,
            metadata=metadata,
            replicas=replicas,
            sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots, world.random),
            producer_ids=ProducerIds(self.broker_id, registry),
            topics=topics,
            mutation_quotas=MutationQuotas(RegistryRates(registry), config),
            client_quotas=client_quotas,
            features=features,
            lazy_groups=groups,
            lazy_transactions=transactions,
            verifier=transactions,
            recorder=recorder,
            metrics=self.metrics,
            security=security,
        )
        self.router = Router(context)
        listeners = self.listeners = Listeners(
            world.network,
            config,
            self.router.serve,
            self.metrics,
            security,
            client_quotas.connections,
        )
        self.endpoints = await self.open_first_listeners(listeners, config)
        for component in (topics, replicas, controller, listeners):
            current.on_change(component.reconfigure)
        current.on_change(self.reconfigure)
        session_id = registry.id
        await self.register()
        changes = self.config_changes = ConfigChanges(
            registry, ConfigApplier(context), world.clock, world.random
        )
        registry.on_state(self.session_changed)
        registry.on_lost = self.registry_lost
        replicas.lost.register(lost_logs)
        replicas.on_log_dir_failure = self.log_dir_failed
        if logs.is_all_offline:
            self.log_dir_failed()
        replicas.start()
        controller.start()
        security.logins.delete_expired_tokens(lambda: controller.is_active)
        # From here on the local Controller object registers this broker in each new session. If the first session has
        # expired already, start again.
        if registry.id != session_id or registry.state is SessionState.EXPIRED:
            raise RegistrySessionExpired("", f"session {session_id:#x} expired")
        await self.wait_until_ready(metadata, controller, replicas)
        await rename_stray_logs(registry, logs, self.broker_id, in_use=replicas.partitions)
        if self.failure is not None:
            raise self.failure
        # Again: after a long start, notifications of changes may have been purged.
        await security.logins.credentials.load()
        self.is_started = True
        listeners.open_to_clients()
        groups.open()
        transactions.open()
        self.tasks.start("sweep", listeners.sweep())
        self.tasks.start("history", publisher.publish())
        self.tasks.start("config-changes", changes.run())
        self.cleaner = start_maintenance(self.tasks, replicas)
        current.on_change(self.cleaner.reconfigure)
        # Not earlier: loading logs may block the event loop for minutes, and the watchdog would kill the process.
        world.watchdog.start()
        logger.info(
            "broker started id=%d cluster=%s listeners=%s partitions=%d",
            self.broker_id,
            cluster_id,
            format_endpoints(self.endpoints),
            len(replicas.partitions),
        )

    def session_changed(self, state: SessionState) -> None:
        """Clear `is_known_to_controller` when the session expires: other brokers may lead now.

        LeaderAndIsr sets it again.
        """
        if state is SessionState.EXPIRED and self.replicas is not None:
            self.replicas.is_known_to_controller = False

    def registry_lost(self) -> None:
        """Keep leading after the embedded registry failed: without it no controller can elect other leaders."""
        if self.replicas is not None:
            self.replicas.is_known_to_controller = True

    def log_dir_failed(self) -> None:
        assert self.logs is not None
        if self.logs.is_all_offline:
            self.halt(list(self.logs.offline.values())[-1])
        else:
            self.tasks.start("log-dir-event", self.report_failed_log_dir())

    def halt(self, error: StorageError) -> None:
        """Stop at once after the last log directory has failed. A broker that is starting fails to start instead."""
        if self.failure is None:
            self.failure = error
            logger.critical(
                "broker halts, all log directories have failed id=%d log_dirs=%s error=%s; "
                "repair or replace the disks, then start the broker again",
                *(self.broker_id, ",".join(self.config.log_dirs), error),
            )
            if self.is_started:
                self.halting = asyncio.get_running_loop().create_task(self.stop_halted())

    async def stop_halted(self) -> None:
        try:
            await self.stop_components(clean=False)
        finally:
            self.halted.set()

    async def report_failed_log_dir(self) -> None:
        """Notify the controller. It checks every partition of this broker and elects other leaders for offline ones."""
        assert self.registry is not None
        try:
            await self.registry.create(
                znodes.LOG_DIR_EVENT_PREFIX,
                znodes.encode_log_dir_event(self.broker_id),
                sequential=True,
            )
        except (RegistryError, StorageError) as error:
            logger.error("cannot report the failed log directory error=%s", error)

    async def register(self) -> None:
        """Register at the start and in each new session. Each registration has a new broker epoch."""
        assert self.registry is not None
        assert self.control is not None
        self.control.broker_epoch = await registration.register(
            self.registry,
            self.own_entry(),
            self.world.clock.now_ms(),
            wait_s=self.registration_timeout_s,
        )
        if self.features is not None:
            await self.features.refresh()
        if self.config_changes is not None:
            self.config_changes.session_opened()
        if self.security is not None:
            self.security.session_opened()

    def features_changed(self) -> None:
        assert self.features is not None
        self.tasks.start("features", self.features.refresh())

    def reconfigure(self, before: BrokerConfig, config: BrokerConfig) -> None:
        is_changed = before.listeners != config.listeners
        if is_changed or before.advertised_listeners != config.advertised_listeners:
            self.tasks.start("listeners", self.change_listeners())

    async def change_listeners(self) -> None:
        """Open and close listeners after their settings have changed, and register the new addresses."""
        async with self.listeners_lock:
            listeners, registry, config = self.listeners, self.registry, self.current.value
            if listeners is None or registry is None:
                return  # the broker is stopping
            try:
                self.endpoints = await self.open_listeners(listeners, config)
                await registration.update_registration(
                    registry, self.own_entry(), self.world.clock.now_ms()
                )
                # Not earlier: clients learn of the new addresses from the registration.
                await listeners.close_replaced()
                wanted = {each.listener for each in config.listeners}
                for name in [name for name in listeners.listening if name not in wanted]:
                    await listeners.close_listener(name)
            except (AddressInUse, ConfigError, RegistryError, StorageError) as error:
                logger.error("cannot change listeners error=%s", error)
                return
            logger.info("changed listeners=%s", format_endpoints(self.endpoints))

    def own_entry(self) -> Broker:
        return Broker(id=self.broker_id, endpoints=self.endpoints, rack=self.config.broker_rack)

    @property
    def registration_timeout_s(self) -> float:
        """How long to wait for a broker znode left from a crash: until its session has certainly expired."""
        return 2 * self.config.zookeeper_session_timeout_ms / 1000

    async def wait_until_ready(
        self, metadata: MetadataCache, controller: Controller, replicas: ReplicaManager
    ) -> None:
        """Wait until the controller has announced this broker and all its partitions, or until the timeout.

        After the timeout the broker serves clients too. They get retriable errors for missing partitions.
        """

        def is_ready() -> bool:
            if self.broker_id not in metadata.brokers or metadata.controller_id < 0:
                return False
            if self.failure is not None:
                return True
            if controller.is_active and not controller.is_settled:
                return False
            return replicas.has_all_assigned_partitions()

        loop = asyncio.get_running_loop()
        deadline = loop.time() + READY_TIMEOUT_SECONDS
        while not is_ready():
            if loop.time() > deadline:
                logger.warning(
                    "broker not ready after %g s, serving clients anyway",
                    READY_TIMEOUT_SECONDS,
                )
                return
            await asyncio.sleep(READY_POLL_SECONDS)

    async def open_listeners(
        self, listeners: Listeners, config: BrokerConfig
    ) -> tuple[Endpoint, ...]:
        """Open all listeners that are not open yet. Returns the advertised addresses.

        By default each listener advertises its own host and port, or the host name for a wildcard.
        """
        await listeners.open_all(config.listeners)
        advertised = {entry.listener: entry for entry in config.advertised_listeners or ()}
        endpoints = []
        for wanted in config.listeners:
            port = listeners.listening[wanted.listener].socket.address[1]
            entry = advertised.get(wanted.listener)
            if entry is None:
                host = (
                    wanted.host
                    if wanted.host not in WILDCARD_HOSTS
                    else self.world.network.host_name()
                )
                entry = replace(wanted, host=host, port=port)
            elif entry.port == 0:
                entry = replace(entry, port=port)
            endpoints.append(entry)
        return tuple(endpoints)

    async def open_first_listeners(
        self, listeners: Listeners, config: BrokerConfig
    ) -> tuple[Endpoint, ...]:
        """Open all listeners; those of the file if the dynamic ones cannot be opened.

        Only a running broker can change its dynamic settings, so they must not prevent its start.
        """
        try:
            return await self.open_listeners(listeners, config)
        except (AddressInUse, ConfigError) as error:
            if config.listeners == self.config.listeners:
                raise
            logger.error("cannot open dynamic listeners, using those of the file error=%s", error)
        if self.security is not None:
            self.security.logins.add_missing(self.config)
        return await self.open_listeners(listeners, self.config)

    async def stop(self, *, clean: bool = True) -> None:
        """Move leaders to other brokers, close client connections, then flush and close the logs.

        If not `clean`, stop as in a crash: for tests, failed starts and brokers whose disks have failed.
        """
        self.is_started = False
        self.is_stopping = True
        if self.halting is not None and not self.halting.done():
            await asyncio.gather(self.halting, return_exceptions=True)
        await self.stop_components(clean=clean)

    async def stop_components(self, *, clean: bool) -> None:
        self.world.watchdog.stop()  # flushing all logs may block the event loop for long
        if clean and self.router is not None and self.config.controlled_shutdown_enable:
            await shut_down_controlled(self.router.context, self.broker_id)
        async with self.listeners_lock:
            if self.listeners is not None:
                await self.listeners.close()
                self.listeners = None
        await self.stop_requests()
        if self.replicas is not None:
            # No reports of failed log directories from here on: the session ends soon.
            self.replicas.on_log_dir_failure = None
        await self.tasks.stop()
        if self.replicas is not None:
            await self.replicas.stop()
            self.replicas = None
        if self.controller is not None:
            await self.controller.stop()
            self.controller = None
        await self.policies.close()
        self.policies = Policies()
        if self.publisher is not None:
            self.publisher.close()
            self.publisher = None
        if self.logs is not None:
            if clean:
                self.logs.shutdown()
            else:
                self.logs.release()
            self.logs = None
        await self.close_registry()
        self.cleaner = None
        if self.monitoring is not None:
            await self.monitoring.close()
            self.monitoring = None
        if clean:
            self.log_stop()

    async def stop_requests(self) -> None:
        if self.groups is not None:
            await self.groups.stop()
            self.groups = None
        if self.transactions is not None:
            await self.transactions.stop()
            self.transactions = None
        if self.router is not None:
            await self.router.stop()
            self.router = None
        if self.security is not None:
            await self.security.stop()
            self.security = None

    async def close_registry(self) -> None:
        if self.registry is not None:
            try:
                await self.registry.close()
            except (RegistryError, StorageError) as error:
                logger.error("cannot close the registry session error=%s", error)
            self.registry = None

    def log_stop(self) -> None:
        watchdog = self.world.watchdog
        if watchdog.stalls:
            logger.warning(
                "event loop stalls broker=%d count=%d longest_s=%.1f",
                self.broker_id,
                watchdog.stalls,
                watchdog.longest_stall_s,
            )
        logger.info("broker stopped id=%d", self.broker_id)


def format_endpoints(endpoints: tuple[Endpoint, ...]) -> str:
    return ",".join(f"{each.listener}://{each.host}:{each.port}" for each in endpoints)
