"""One broker: its parts built, started in order, stopped in the opposite order.

    registry session ─► logs loaded ─► topics led ─► sockets open ─► registered ─► background work

Clients find a broker only when it can serve them: sockets open after the logs are recovered and every partition has its
leader. Stopping begins where clients are and ends where the data is.
"""

from __future__ import annotations

import logging

from barnabas.broker import maintenance
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.listener import ConnectionLimits, Listeners
from barnabas.broker.parts import BrokerParts
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.router import Router
from barnabas.broker.topics import Topics
from barnabas.config import BrokerConfig
from barnabas.errors import ConfigError, RegistryError, StorageError
from barnabas.metadata import registration
from barnabas.metadata.cache import MetadataCache
from barnabas.model import Broker as BrokerEntry
from barnabas.model import BrokerId, Endpoint
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.log_manager import LogManager
from barnabas.tasks import Tasks
from barnabas.world.ports import RegistrySession, SessionState, World

logger = logging.getLogger("barnabas.broker")

EVERYWHERE = ("", "0.0.0.0", "::")


class Broker:
    """A broker in this process. `start()` returns when clients can use it."""

    def __init__(self, config: BrokerConfig, world: World) -> None:
        if not __debug__:
            raise ConfigError("python -O", "a broker relies on its assertions; start it without -O")
        self.config = config
        self.world = world
        self.broker_id = BrokerId(config.broker_id)
        self.tasks = Tasks()
        self.endpoints: tuple[Endpoint, ...] = ()
        self.session: RegistrySession | None = None
        self.logs: LogManager | None = None
        self.listeners: Listeners | None = None
        self.router: Router | None = None
        self.topics: Topics | None = None

    async def start(self) -> None:
        try:
            await self.bring_up()
        except BaseException:
            await self.stop(clean=False)
            raise

    async def bring_up(self) -> None:
        config, world = self.config, self.world
        now_ms = world.clock.now_ms()
        session = self.session = await world.registry.connect(config.zookeeper_session_timeout_ms)
        session.on_state(self.on_session)
        await registration.prepare(session)
        cluster_id = await registration.cluster_id(session, world.random)

        metadata = MetadataCache(cluster_id)
        controller_epoch = await registration.take_charge(session, self.broker_id, now_ms)
        topics = self.topics = Topics(
            world,
            session,
            metadata,
            broker_id=self.broker_id,
            controller_epoch=controller_epoch,
            defaults=config.topic_defaults(),
            partitions_default=config.num_partitions,
            replication_factor_default=config.default_replication_factor,
            adopts_logs=config.barnabas_adopt_logs,
        )
        await topics.read_overrides()
        logs = self.logs = LogManager.open(
            world.disk,
            config.log_dirs,
            broker_id=self.broker_id,
            cluster_id=cluster_id,
            config_of=topics.config_of,
            random=world.random,
            now_ms=now_ms,
            producer_expiration_ms=config.producer_id_expiration_ms,
        )
        replicas = ReplicaManager(self.broker_id, logs, world.disk, world.clock)
        await topics.load(replicas)

        parts = BrokerParts(
            config=config,
            clock=world.clock,
            metadata=metadata,
            replicas=replicas,
            sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots, world.random),
            producer_ids=ProducerIds(self.broker_id, session),
            topics=topics,
        )
        self.router = Router(parts)
        self.listeners = Listeners(world.network, connection_limits(config), self.router.serve)
        await self.open_listeners(self.listeners)
        entry = BrokerEntry(id=self.broker_id, endpoints=self.endpoints, rack=config.broker_rack)
        metadata.set_brokers([entry], self.broker_id)
        await registration.register(session, entry, now_ms)
        self.tasks.start("sweep", self.listeners.sweep())
        maintenance.start(self.tasks, config, replicas, world.clock)
        logger.info(
            "broker started id=%d cluster=%s listeners=%s partitions=%d",
            self.broker_id,
            cluster_id,
            ",".join(f"{e.listener}://{e.host}:{e.port}" for e in self.endpoints),
            len(replicas.partitions),
        )

    def on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED and self.session is not None:
            logger.error(
                "the registry is lost: records are served, but no topic can be created or deleted until this broker "
                "is started again"
            )

    async def open_listeners(self, listeners: Listeners) -> None:
        """Listen, then advertise: where no address was configured, the one that was bound."""
        advertised = {entry.listener: entry for entry in self.config.advertised_listeners or ()}
        found = []
        for wanted in self.config.listeners:
            _, port = await listeners.listen(wanted.listener, wanted.host, wanted.port)
            entry = advertised.get(wanted.listener)
            if entry is None:
                host = (
                    wanted.host if wanted.host not in EVERYWHERE else self.world.network.host_name()
                )
                entry = Endpoint(listener=wanted.listener, host=host, port=port)
            elif entry.port == 0:
                entry = Endpoint(listener=entry.listener, host=entry.host, port=port)
            found.append(entry)
        self.endpoints = tuple(found)

    async def stop(self, *, clean: bool = True) -> None:
        """Let go of clients, then of the data. Not `clean`: as if the process had died, for tests and failed starts."""
        if self.listeners is not None:
            await self.listeners.close()
            self.listeners = None
        if self.router is not None:
            await self.router.stop()
            self.router = None
        await self.tasks.stop()
        if self.logs is not None:
            if clean:
                self.logs.shutdown()
            else:
                self.logs.release()
            self.logs = None
        if self.session is not None:
            try:
                await self.session.close()
            except (RegistryError, StorageError) as error:
                logger.error("cannot say goodbye to the registry error=%s", error)
            self.session = None
        if clean:
            logger.info("broker stopped id=%d", self.broker_id)


def connection_limits(config: BrokerConfig) -> ConnectionLimits:
    return ConnectionLimits(
        request_bytes_max=config.socket_request_max_bytes,
        connections_max=config.max_connections,
        connections_per_ip_max=config.max_connections_per_ip,
        connections_per_ip_overrides=dict(config.max_connections_per_ip_overrides),
        idle_ms_max=config.connections_max_idle_ms,
        buffered_bytes_max=config.queued_max_request_bytes,
    )
