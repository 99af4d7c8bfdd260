"""The client's access to a cluster: bootstrap servers, metadata, one connection per broker, and retries.

If no bootstrap server can be reached, the first call fails at once. After the first contact, retriable errors are
retried with exponential backoff until the timeout of the call. Then the last error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from random import Random
from typing import Self, TypeVar

from msgspec.structs import replace

from barnabas.client.blocking import (
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    BlockingConnection,
    Deadline,
    pause,
)
from barnabas.client.login import ConnectionSecurity, is_refusal
from barnabas.client.view import ClusterView, TopicView, parse_metadata
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import BrokerId, TopicPartition
from barnabas.retry import Backoff
from barnabas.security.client_settings import PLAINTEXT, ClientSecurity
from barnabas.wire.codec import Message
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")
R = TypeVar("R", bound=Message)

DEFAULT_PORT = "9092"
BACKOFF_S_MIN = 0.05
BACKOFF_S_MAX = 1.0
TOPIC_LOOKUP_TIMEOUT_S = 0.5
"""Limit for retries of `Cluster.fetch_topic`, unless the topic is known already."""
UNKNOWN_TOPIC_TIMEOUT_S = 2.0
"""Limit for retries of UNKNOWN_TOPIC_OR_PARTITION. A broker may learn of a topic late, but a typo should fail soon."""


class Unreachable(ApiError):
    """No broker could be reached. `tried` holds each address and the reason of its failure."""

    def __init__(self, tried: Sequence[tuple[str, str]]) -> None:
        why = "; ".join(f"{address} ({reason})" for address, reason in tried)
        super().__init__(ErrorCode.NETWORK_EXCEPTION, f"no broker reached: {why}")
        self.tried = tuple(tried)


class Cluster:
    """Connections to the brokers of one cluster, and its metadata (`view`). A context manager."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "barnabas",
        timeout_s: float = REQUEST_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        self.bootstrap = parse_addresses(bootstrap_servers)
        self.connection_security = ConnectionSecurity(security)
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.connect_timeout_s = min(connect_timeout_s, timeout_s)
        self.view = ClusterView()
        self.connections: dict[tuple[str, int], BlockingConnection] = {}
        self.random = Random()  # for the jitter of the backoff

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()

    def with_new_connections(self, *, timeout_s: float) -> Cluster:
        """Return a client of the same cluster that shares no connections with this one.

        It tries brokers first to which this client is connected: others may be paused.
        """
        connected = [address for address, each in self.connections.items() if each.is_open]
        known = [(broker.host, broker.port) for broker in self.view.brokers.values()]
        addresses = dict.fromkeys([*connected, *self.bootstrap, *known])
        servers = [f"{host}:{port}" for host, port in addresses]
        return Cluster(
            servers, client_id=self.client_id, timeout_s=timeout_s, security=self.security
        )

    @property
    def security(self) -> ClientSecurity:
        return self.connection_security.settings

    @property
    def servers(self) -> str:
        """The bootstrap servers, as "host:port,host:port"."""
        return ",".join(format_address(host, port) for host, port in self.bootstrap)

    @property
    def broker_timeout_ms(self) -> int:
        """Timeout for the broker. It is shorter than the client's, so that the broker's response arrives in time."""
        return int(self.timeout_s * 900)

    # ---- connections ----------------------------------------------------------------------------------------------

    def connection(self, broker: BrokerId) -> BlockingConnection:
        """Return the connection to a known broker; open it if necessary. Raises ApiError."""
        known = self.view.brokers.get(broker)
        if known is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not in the cluster")
        return self.connect(known.host, known.port)

    def connect(self, host: str, port: int) -> BlockingConnection:
        """Return the shared connection to this address; open it if necessary. Raises ApiError."""
        connection = self.connections.get((host, port))
        if connection is None or not connection.is_open:
            connection = self.connections[host, port] = self.open_connection(host, port)
        return connection

    def open_connection(self, host: str, port: int) -> BlockingConnection:
        """Open a connection that is not shared. The caller must close it."""
        return BlockingConnection.open(
            host,
            port,
            client_id=self.client_id,
            timeout_s=self.connect_timeout_s,
            security=self.connection_security,
        )

    def any_connection(self, avoid: Container[str] = ()) -> BlockingConnection:
        """Return any open connection, or connect to a broker: first known brokers, then bootstrap servers.

        Skips the addresses in `avoid`. Raises Unreachable if no other broker can be reached, and at once the error of
        a broker that refuses the login or whose certificate is not trusted.
        """
        for connection in self.connections.values():
            if connection.is_open and connection.address not in avoid:
                return connection
        known = [(broker.host, broker.port) for broker in self.view.brokers.values()]
        tried = []
        for host, port in dict.fromkeys([*known, *self.bootstrap]):
            if f"{host}:{port}" in avoid:
                continue
            try:
                return self.connect(host, port)
            except ApiError as error:
                if is_refusal(error):
                    raise
                tried.append((f"{host}:{port}", error.message.removeprefix(f"{host}:{port}: ")))
        raise Unreachable(tried)

    # ---- metadata -------------------------------------------------------------------------------------------------

    def refresh(self, topics: Iterable[str] | None = None) -> ClusterView:
        """Fetch the metadata of the brokers and of these topics (None: all topics). Returns the updated view."""
        request = MetadataRequest(
            topics=None
            if topics is None
            else tuple(MetadataRequestTopic(name=name) for name in topics),
            allow_auto_topic_creation=False,
        )
        view = parse_metadata(self.ask_first_reachable(request, MetadataResponse))
        self.view = view if topics is None else self.view.merge(view)
        return self.view

    def ask_first_reachable(
        self, request: Message, response: type[R], *, max_version: int | None = None
    ) -> R:
        """Send the request to one broker after another until one responds. If none does, raises the first error."""
        failed_brokers: dict[str, ApiError] = {}
        while True:
            try:
                connection = self.any_connection(avoid=failed_brokers)
            except Unreachable:
                if failed_brokers:
                    raise next(iter(failed_brokers.values())) from None
                raise
            try:
                return connection.exchange(
                    request, response, timeout_s=self.timeout_s, max_version=max_version
                )
            except ApiError as error:
                if error.code is not ErrorCode.NETWORK_EXCEPTION:
                    raise
                failed_brokers[connection.address] = error

    def forget_topics(self) -> None:
        """Make the next call of `topic` fetch the metadata of the topic."""
        self.view = replace(self.view, topics={})

    def topic(self, name: str) -> TopicView:
        """Return a topic from the known metadata, or fetch its metadata. Raises ApiError like `fetch_topic`."""
        if name in self.view.topics:
            return self.view.topics[name]
        return self.fetch_topic(name)

    def fetch_topic(self, name: str) -> TopicView:
        """Fetch the metadata of a topic.

        Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION if it does not exist, INVALID_TOPIC_EXCEPTION for an invalid name.
        """
        timeout_s = self.timeout_s if name in self.view.topics else TOPIC_LOOKUP_TIMEOUT_S
        return self.retry(
            lambda: self.refresh([name]).topic(name), Deadline(timeout_s), refresh=False
        )

    # ---- requests -------------------------------------------------------------------------------------------------

    def ask_any(self, request: Message, response: type[R], *, max_version: int | None = None) -> R:
        """Send a request that any broker can answer, with retries."""
        return self.retry(
            lambda: self.any_connection().exchange(
                request, response, timeout_s=self.timeout_s, max_version=max_version
            )
        )

    def ask(self, broker: BrokerId, request: Message, response: type[R]) -> R:
        """Send a request to one broker, with retries."""

        def attempt() -> R:
            if broker not in self.view.brokers:
                self.refresh([])
            return self.connection(broker).exchange(request, response, timeout_s=self.timeout_s)

        return self.retry(attempt)

    def ask_controller(
        self,
        request: Message,
        response: type[R],
        *,
        codes: Callable[[R], Iterable[int]],
        max_version: int | None = None,
    ) -> R:
        """Send a request to the controller, with retries.

        `codes` extracts the error codes of a response. If all are NOT_CONTROLLER, the request is sent to the new
        controller. If only some are, the caller must retry these parts.
        """

        def attempt() -> R:
            controller = self.refresh([]).controller
            if controller not in self.view.brokers:
                raise ApiError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller")
            answer = self.connection(controller).exchange(
                request, response, timeout_s=self.timeout_s, max_version=max_version
            )
            if set(codes(answer)) == {ErrorCode.NOT_CONTROLLER}:
                raise ApiError(
                    ErrorCode.NOT_CONTROLLER, f"broker {controller} is not the controller"
                )
            return answer

        return self.retry(attempt, refresh=False)

    def ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[
            [BlockingConnection, list[TopicPartition]],
            Iterable[tuple[TopicPartition, T | ApiError]],
        ],
    ) -> dict[TopicPartition, T]:
        """Call `ask` once per leader with its partitions, and collect the results.

        Partitions with a retriable error are retried. Any other error is raised.
        """
        done: dict[TopicPartition, T] = {}
        waiting = list(partitions)

        def attempt() -> None:
            failure: ApiError | None = None
            for leader, led in self.by_leader(waiting).items():
                try:
                    answers = list(ask(self.connection(leader), led))
                except ApiError as error:
                    failure = prefer_fatal(failure, error)
                    continue
                for partition, answer in answers:
                    if isinstance(answer, ApiError):
                        failure = prefer_fatal(failure, answer)
                    else:
                        done[partition] = answer
            waiting[:] = [partition for partition in waiting if partition not in done]
            if failure is not None:
                raise failure
            if waiting:
                raise ApiError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"the response has no result for {waiting[0]}"
                )

        self.retry(attempt, topics=lambda: sorted({partition.topic for partition in waiting}))
        return done

    def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[BrokerId, list[TopicPartition]]:
        """Group partitions by leader. Raises ApiError for a partition without a leader."""
        led: dict[BrokerId, list[TopicPartition]] = {}
        for partition in partitions:
            self.topic(partition.topic)
            led.setdefault(self.view.leader(partition), []).append(partition)
        return led

    def retry(
        self,
        attempt: Callable[[], T],
        deadline: Deadline | None = None,
        *,
        refresh: bool = True,
        topics: Callable[[], Sequence[str]] = tuple,
        backoff: Backoff | None = None,
    ) -> T:
        """Call `attempt` until it succeeds. Raises its error if that is not retriable, or if the deadline is too near.

        After an error that suggests stale metadata, the metadata of `topics()` is refreshed before every later attempt,
        unless `refresh` is false.
        """
        deadline = deadline or Deadline(self.timeout_s)
        backoff = backoff or self.new_backoff()
        is_stale = False
        unknown_deadline: Deadline | None = None
        while True:
            try:
                if is_stale and refresh:
                    self.refresh(topics())
                return attempt()
            except ApiError as error:
                is_first = isinstance(error, Unreachable) and not self.view.brokers
                if is_first or not error.code.retriable or deadline.left_s() < backoff.delay_s:
                    raise
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    unknown_deadline = unknown_deadline or Deadline(UNKNOWN_TOPIC_TIMEOUT_S)
                    if unknown_deadline.passed:
                        raise
                is_stale = is_stale or error.code.refresh_metadata
            pause(backoff.next_s())

    def new_backoff(self) -> Backoff:
        """Return the backoff for the retries of one call."""
        return Backoff(BACKOFF_S_MIN, BACKOFF_S_MAX, random=self.random)


def prefer_fatal(known: ApiError | None, found: ApiError) -> ApiError:
    """Return the error that is not retriable, if there is one; otherwise the first error."""
    return found if known is None or not found.code.retriable else known


def parse_addresses(
    servers: str | Sequence[str], *, default_port: str = DEFAULT_PORT
) -> list[tuple[str, int]]:
    """Parse `localhost:9092,[::1]:9093`. Raises ConfigError, also for a missing port if there is no default port."""
    texts = servers.split(",") if isinstance(servers, str) else servers
    addresses = [parse_address(text.strip(), default_port) for text in texts if text.strip()]
    if not addresses:
        raise ConfigError("bootstrap.servers", "is empty; set it to host:port")
    return addresses


def format_address(host: str, port: int) -> str:
    """
    >>> format_address("::1", 9092)
    '[::1]:9092'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str, default_port: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, default_port
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError("bootstrap.servers", f"{text!r} is not an address; write host:port")
    return host, int(port)
