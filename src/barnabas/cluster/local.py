"""A cluster for tests and notebooks: real brokers on threads of this process.

    with LocalCluster(brokers=3) as cluster:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        cluster.controller.kill()

Without `data`, the cluster uses a temporary directory, from `start()` to `stop()`.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from barnabas.client.blocking import Deadline, pause
from barnabas.cluster.client_settings import (
    ClientAccess,
    aiokafka_arguments,
    kafka_python_arguments,
    kafka_settings,
    librdkafka_settings,
)
from barnabas.cluster.in_process import ClusterBroker, InProcessCluster
from barnabas.cluster.settings import HOST, TEST_SETTINGS
from barnabas.errors import ConfigError, ErrorCode, RegistryError
from barnabas.model import SecurityProtocol
from barnabas.retry import Backoff

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster
    from barnabas.cluster.local_security import LocalSecurity

ELECTION_TIMEOUT_S = 30.0
ELECTION_BACKOFF_S = (0.002, 0.05)


class LocalCluster:
    """A cluster in this process. Use it in a `with` or `async with` statement, or call `start()` and `stop()`.

    Thread-safe.
    """

    def __init__(
        self,
        brokers: int = 1,
        data: str | Path | None = None,
        *,
        port: int = 0,
        host: str = HOST,
        advertised: str | None = None,
        settings: Mapping[str, object] | None = None,
        security: str | None = None,
        users: Mapping[str, str] | Collection[str] = (),
        acls: bool = False,
    ) -> None:
        """The brokers listen on `port` and the ports after it; 0 lets the system choose each port. `settings` apply to
        all brokers; their names are those of server.properties.

        The brokers listen on the address `host`. For clients in containers, use "0.0.0.0" and set `advertised` to the
        name by which they reach this machine, such as "host.docker.internal". They use `advertised_servers`.

        `security` is SASL_SSL, SASL_PLAINTEXT or SSL, for clients and between brokers. `users` are users and their
        passwords; a list of names gets generated ones. The user `admin` always exists. With `acls`, all users except
        `admin` need permissions. `client_settings` returns the settings of a client.
        """
        self.is_temporary = data is None
        self.data = temporary_path() if data is None else Path(data).absolute()
        self.security = self.create_security(security, users, acls, [host, advertised or ""])
        self.lock = threading.RLock()
        self.cluster = InProcessCluster(
            self.data,
            brokers=brokers,
            port=port,
            host=host,
            advertised=advertised,
            settings={
                **TEST_SETTINGS,
                **{name: property_value(value) for name, value in (settings or {}).items()},
            },
            registry_in_memory=self.is_temporary,
            security=self.security,
        )

    def create_security(
        self,
        protocol: str | None,
        users: Mapping[str, str] | Collection[str],
        acls: bool,
        hosts: Sequence[str],
    ) -> LocalSecurity | None:
        directory = self.data / "security"
        if protocol is None or protocol == SecurityProtocol.PLAINTEXT.name:
            if users or acls:
                raise ConfigError("security", "users and acls need it; set security='SASL_SSL'")
            if directory.is_dir():
                why = "this data belongs to a secured cluster; set security='SASL_SSL'"
                raise ConfigError("data", f"{why}, or remove {directory} to open it to everyone")
            return None
        # Imported here, because a cluster starts faster without it.
        from barnabas.cluster.local_security import LocalSecurity

        return LocalSecurity(protocol, directory, users=users, hosts=hosts, acls=acls, plain=True)

    def __repr__(self) -> str:
        if not self.cluster.is_running:
            return f"<LocalCluster of {len(self.brokers)}, not running, data in {self.data}>"
        return f"<LocalCluster {list(self.brokers.values())}, data in {self.data}>"

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, for any Kafka client on this machine."""
        self.cluster.open_registry()
        return self.cluster.bootstrap_servers

    @property
    def advertised_servers(self) -> str:
        """`host:port` of every broker for clients elsewhere: with the host `advertised`, if it was set."""
        self.cluster.open_registry()
        return self.cluster.advertised_servers

    @property
    def brokers(self) -> Mapping[int, ClusterBroker]:
        """The brokers by id, from 1. Each has `kill()`, `stop()`, `start()`, `pause()` and `resume()`."""
        return self.cluster.brokers

    @property
    def controller_id(self) -> int | None:
        """The id of the active controller; None between the loss of a controller and the next election."""
        self.cluster.open_registry()
        return self.cluster.controller_id

    @property
    def controller(self) -> ClusterBroker:
        """The broker that is the active controller. Waits for the election of one.

        Raises RegistryError if no broker is elected within ELECTION_TIMEOUT_S, or if none is running.
        """
        deadline = Deadline(ELECTION_TIMEOUT_S)
        backoff = Backoff(*ELECTION_BACKOFF_S, random=Random())
        while True:
            broker = self.brokers.get(self.controller_id or 0)
            if broker is not None and broker.is_running:
                return broker
            if not any(each.is_running for each in self.brokers.values()):
                raise RegistryError(
                    "", "no broker is running, so there is no controller: start one"
                )
            if deadline.passed:
                raise RegistryError("", f"no controller within {ELECTION_TIMEOUT_S:g} s")
            pause(backoff.next_s())

    def start(self) -> Self:
        """Start the brokers. Returns when the metadata of each shows all brokers and a controller. Idempotent."""
        with self.lock:
            if not self.cluster.is_running:
                self.create_if_temporary()
                try:
                    self.cluster.start()
                except BaseException:
                    self.remove_if_temporary()
                    raise
            return self

    def stop(self) -> None:
        """Shut the brokers down cleanly. Idempotent."""
        with self.lock:
            if self.cluster.is_running:
                try:
                    self.cluster.stop()
                finally:
                    self.remove_if_temporary()

    # ---- clients

    def client_settings(
        self, user: str | None = None, *, mechanism: str | None = None
    ) -> dict[str, str]:
        """Return the settings of a client under Kafka's names, with bootstrap.servers. By default, of the user `admin`.

        They are for Java clients, for Kafka's commands and for Barnabas. `mechanism` is a SASL mechanism.
        """
        return kafka_settings(self.access(user, mechanism))

    def confluent_settings(
        self, user: str | None = None, *, mechanism: str | None = None
    ) -> dict[str, str]:
        """Like `client_settings`, for confluent-kafka and other clients with librdkafka."""
        return librdkafka_settings(self.access(user, mechanism))

    def kafka_python_arguments(
        self, user: str | None = None, *, mechanism: str | None = None
    ) -> dict[str, str]:
        """Like `client_settings`: keyword arguments of the clients of kafka-python."""
        return kafka_python_arguments(self.access(user, mechanism))

    def aiokafka_arguments(
        self, user: str | None = None, *, mechanism: str | None = None
    ) -> dict[str, object]:
        """Like `client_settings`: keyword arguments of the clients of aiokafka."""
        return aiokafka_arguments(self.access(user, mechanism))

    def access(self, user: str | None, mechanism: str | None) -> ClientAccess:
        if self.security is None:
            return ClientAccess(self.bootstrap_servers)
        return self.security.access(self.bootstrap_servers, user, mechanism)

    def connect(self) -> Cluster:
        """Return a client of the administrator."""
        # Imported here, because a cluster starts faster without the admin client.
        from barnabas.client.cluster import Cluster

        if self.security is None:
            return Cluster(self.bootstrap_servers)
        return Cluster(self.bootstrap_servers, security=self.security.client_security())

    # ---- topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int = -1,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic and return its name, once every broker knows the topic. Raises ApiError.

        -1 replicas means the default of the cluster.
        """
        from barnabas.client.admin import Admin, NewTopic

        configs = {key: property_value(value) for key, value in (config or {}).items()}
        topic = NewTopic(
            name=name, partitions=partitions, replication_factor=replicas, configs=configs
        )
        with self.connect() as client:
            (outcome,) = Admin(client).create_topics([topic])
        if outcome.error is not None:
            raise outcome.error
        self.cluster.wait_for_topics(lambda topics: name in topics)
        return name

    def delete_topics(self, names: Collection[str] | None = None) -> None:
        """Delete topics, or all topics except internal ones. Returns when no broker knows them. Raises ApiError.

        Topics that do not exist are ignored.
        """
        from barnabas.client.admin import Admin

        with self.connect() as client:
            admin = Admin(client)
            if names is None:
                names = [topic.name for topic in admin.list_topics() if not topic.is_internal]
            for outcome in admin.delete_topics(list(names)) if names else ():
                error = outcome.error
                if error and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise error
        deleted = frozenset(names)
        self.cluster.wait_for_topics(lambda topics: deleted.isdisjoint(topics))

    # ---- faults

    def kill(self, broker: int) -> None:
        """Crash a broker, as `kill -9` does. `cluster.brokers[broker]` has more ways to stop and start it."""
        self.broker(broker).kill()

    def expire_session(self, broker: int) -> None:
        """Expire the registry session of a broker. It keeps running, and joins the cluster again by itself."""
        self.broker(broker).expire_session()

    def slow_disk(self, broker: int, seconds: float) -> None:
        """Make each write and each fsync of a broker take `seconds` longer; 0 ends that.

        The whole broker waits for a write, so its other requests are slow too.
        """
        self.broker(broker).slow_disk(seconds)

    @contextmanager
    def partition_network(self, *groups: Collection[int]) -> Iterator[None]:
        """Cut the connections between the brokers of different groups, until the end of the `with` block.

        One group is cut off from all other brokers. A cut is silent: requests are lost until a timeout or the end of
        the cut. Clients and the registry still reach every broker.
        """
        named = [frozenset[int](self.broker(each).id for each in group) for group in groups]
        if len(named) == 1:
            named.append(frozenset(self.brokers) - named[0])
        if len(frozenset[int]().union(*named)) < sum(map(len, named)):
            raise ValueError(f"partition_network: a broker is in two groups: {groups}")
        with self.lock:
            self.cluster.partition_network(named)
        try:
            yield
        finally:
            with self.lock:
                self.cluster.heal_network(named)

    def restore(self) -> None:
        """End all faults: heal the network and the disks, resume paused brokers, start brokers that are down."""
        with self.lock:
            self.cluster.open_registry()
            self.cluster.clear_faults()
            for broker in self.brokers.values():
                broker.start()

    def broker(self, broker: int) -> ClusterBroker:
        try:
            return self.brokers[broker]
        except KeyError:
            known = ", ".join(map(str, self.brokers))
            raise ValueError(f"there is no broker {broker!r}; the brokers are {known}") from None

    def create_if_temporary(self) -> None:
        """Create the temporary directory. It is also removed if the program exits without `stop()`."""
        if self.is_temporary:
            self.data.mkdir(mode=0o700)
            atexit.register(self.remove_if_temporary)

    def remove_if_temporary(self) -> None:
        if self.is_temporary:
            shutil.rmtree(self.data, ignore_errors=True)
            atexit.unregister(self.remove_if_temporary)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)


def property_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def temporary_path() -> Path:
    """Return the path of a temporary directory that does not exist yet."""
    return Path(tempfile.gettempdir(), f"barnabas-{uuid4().hex}").absolute()
