"""A cluster as a client sees it: the way in, who leads what, a connection per broker, and when to try again.

Laws. The first contact is made or refused at once: where nothing listens there is nothing to wait for. After that,
whatever is retriable is tried again, with a growing pause, until the deadline of the call; then the last error is
raised, because it says more than "timed out" would.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from random import Random
from typing import Self, TypeVar

from barnabas.client.blocking import (
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    BlockingConnection,
    Deadline,
    pause,
)
from barnabas.client.view import ClusterView, TopicView, view_of
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import BrokerId, TopicPartition
from barnabas.retry import Backoff
from barnabas.wire.codec import Message
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")
R = TypeVar("R", bound=Message)

PAUSE_S_MIN = 0.05
PAUSE_S_MAX = 1.0
LOOK_UP_PATIENCE_S = 0.5
UNKNOWN_PATIENCE_S = 2.0
"""A topic that was just created, or a partition that was just moved, may be unknown to a broker for a moment; one that
was mistyped stays unknown, and nobody should wait long to hear it."""


class Unreachable(ApiError):
    """None of the addresses we know leads to a broker. `tried` says what became of each."""

    def __init__(self, tried: Sequence[tuple[str, str]]) -> None:
        why = "; ".join(f"{address} ({reason})" for address, reason in tried)
        super().__init__(ErrorCode.NETWORK_EXCEPTION, f"no broker reached: {why}")
        self.tried = tuple(tried)


class Cluster:
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "barnabas",
        timeout_s: float = REQUEST_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self.bootstrap = parse_addresses(bootstrap_servers)
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.connect_timeout_s = min(connect_timeout_s, timeout_s)
        self.view = ClusterView()
        self.connections: dict[tuple[str, int], BlockingConnection] = {}
        # Only spreads retries of many clients in time; nothing that is decided depends on it.
        self.random = Random()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()

    def afresh(self, *, timeout_s: float) -> Cluster:
        """The same cluster over new connections: for who was interrupted in the middle of an answer on these."""
        known = [f"{broker.host}:{broker.port}" for broker in self.view.brokers.values()]
        first = [f"{host}:{port}" for host, port in self.bootstrap]
        return Cluster([*known, *first], client_id=self.client_id, timeout_s=timeout_s)

    # ---- connections ----------------------------------------------------------------------------------------------

    def connection(self, broker: BrokerId) -> BlockingConnection:
        known = self.view.brokers.get(broker)
        if known is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not in the cluster")
        return self.connect(known.host, known.port)

    def connect(self, host: str, port: int) -> BlockingConnection:
        connection = self.connections.get((host, port))
        if connection is None or not connection.is_open:
            connection = BlockingConnection.open(
                host, port, client_id=self.client_id, timeout_s=self.connect_timeout_s
            )
            self.connections[host, port] = connection
        return connection

    def any_connection(self, avoid: Container[str] = ()) -> BlockingConnection:
        """An open one, or the first broker that can be reached: known ones first, then the way we came in.
        Unreachable if there is none but at the addresses to `avoid`."""
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
                tried.append((f"{host}:{port}", error.message.removeprefix(f"{host}:{port}: ")))
        raise Unreachable(tried)

    # ---- metadata -------------------------------------------------------------------------------------------------

    def refresh(self, topics: Iterable[str] | None = None) -> ClusterView:
        """Ask any broker. `topics=None` asks for all of them."""
        request = MetadataRequest(
            topics=None
            if topics is None
            else tuple(MetadataRequestTopic(name=name) for name in topics),
            allow_auto_topic_creation=False,
        )
        view = view_of(self.ask_whoever_is_there(request, MetadataResponse))
        self.view = view if topics is None else self.view.with_topics_of(view)
        return self.view

    def ask_whoever_is_there(
        self, request: Message, response: type[R], *, at_most: int | None = None
    ) -> R:
        """A broker may have died since it was last spoken to; the next one knows as much."""
        dead: dict[str, ApiError] = {}
        while True:
            try:
                connection = self.any_connection(avoid=dead)
            except Unreachable:
                if dead:
                    raise next(iter(dead.values())) from None
                raise
            try:
                return connection.exchange(
                    request, response, timeout_s=self.timeout_s, at_most=at_most
                )
            except ApiError as error:
                if error.code is not ErrorCode.NETWORK_EXCEPTION:
                    raise
                dead[connection.address] = error

    def topic(self, name: str) -> TopicView:
        """ApiError UNKNOWN_TOPIC_OR_PARTITION if it does not exist, INVALID_TOPIC_EXCEPTION if it never could."""
        if name in self.view.topics:
            return self.view.topics[name]
        return self.retry(
            lambda: self.refresh([name]).topic(name), Deadline(LOOK_UP_PATIENCE_S), refresh=False
        )

    # ---- asking ---------------------------------------------------------------------------------------------------

    def ask_any(self, request: Message, response: type[R], *, at_most: int | None = None) -> R:
        return self.retry(
            lambda: self.any_connection().exchange(
                request, response, timeout_s=self.timeout_s, at_most=at_most
            )
        )

    def ask(self, broker: BrokerId, request: Message, response: type[R]) -> R:
        if broker not in self.view.brokers:
            self.refresh([])
        return self.retry(
            lambda: self.connection(broker).exchange(request, response, timeout_s=self.timeout_s)
        )

    def ask_controller(
        self,
        request: Message,
        response: type[R],
        *,
        codes: Callable[[R], Iterable[int]],
        at_most: int | None = None,
    ) -> R:
        """`codes` finds the error codes in an answer: nothing but NOT_CONTROLLER means nothing was done, look again.

        A controller that loses its office over a request may have granted some of it; the rest is the caller's."""

        def attempt() -> R:
            controller = self.refresh([]).controller
            if controller not in self.view.brokers:
                raise ApiError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
            answer = self.connection(controller).exchange(
                request, response, timeout_s=self.timeout_s, at_most=at_most
            )
            if set(codes(answer)) == {ErrorCode.NOT_CONTROLLER}:
                raise ApiError(ErrorCode.NOT_CONTROLLER, f"broker {controller}")
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
        """Ask each partition's leader, those of one leader together; ask again for those whose answer may change."""
        done: dict[TopicPartition, T] = {}
        waiting = list(partitions)

        def attempt() -> None:
            failed: ApiError | None = None
            for leader, led in self.by_leader(waiting).items():
                try:
                    answers = list(ask(self.connection(leader), led))
                except ApiError as error:
                    failed = worse(failed, error)
                    continue
                for partition, answer in answers:
                    if isinstance(answer, ApiError):
                        failed = worse(failed, answer)
                    else:
                        done[partition] = answer
            waiting[:] = [partition for partition in waiting if partition not in done]
            if failed is not None:
                raise failed
            if waiting:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer about {waiting[0]}")

        self.retry(attempt, topics=lambda: sorted({partition.topic for partition in waiting}))
        return done

    def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[BrokerId, list[TopicPartition]]:
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
    ) -> T:
        """Run it until it succeeds, fails for good, or the deadline is near; look at the cluster anew in between."""
        deadline = deadline or Deadline(self.timeout_s)
        backoff = self.new_backoff()
        stale = False
        unknown: Deadline | None = None
        while True:
            try:
                if stale and refresh:
                    self.refresh(topics())
                return attempt()
            except ApiError as error:
                first_contact = isinstance(error, Unreachable) and not self.view.brokers
                if first_contact or not error.code.retriable or deadline.left_s() < backoff.delay_s:
                    raise
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    unknown = unknown or Deadline(UNKNOWN_PATIENCE_S)
                    if unknown.passed:
                        raise
                stale = stale or error.code.refresh_metadata
            pause(backoff.next_s())

    def new_backoff(self) -> Backoff:
        """Delays between the attempts of one call."""
        return Backoff(PAUSE_S_MIN, PAUSE_S_MAX, random=self.random)


def worse(known: ApiError | None, found: ApiError) -> ApiError:
    """Of two errors the one that ends the retries."""
    return found if known is None or not found.code.retriable else known


def parse_addresses(servers: str | Sequence[str]) -> list[tuple[str, int]]:
    """`localhost:9092,[::1]:9093` to pairs; 9092 where no port is given."""
    texts = servers.split(",") if isinstance(servers, str) else servers
    addresses = [parse_address(text.strip()) for text in texts if text.strip()]
    if not addresses:
        raise ConfigError("bootstrap.servers", "no address given; write host:port")
    return addresses


def parse_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, "9092"
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError("bootstrap.servers", f"{text!r} is not an address; write host:port")
    return host, int(port)
