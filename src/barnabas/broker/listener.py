"""Listening sockets of a broker, and the limits on connections: total, per IP address, idle time, and per second.

A new connection over a limit is closed, at once or after a delay (connection_rates.py). A log line names the setting,
rate-limited to one line per second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from barnabas.broker.broker_requests import BROKER_REQUESTS
from barnabas.broker.connection import (
    API_KEY,
    CloseConnection,
    Connection,
    EncodedResponse,
    PendingResponse,
    Serve,
    ServeResult,
)
from barnabas.broker.connection_rates import ConnectionRates
from barnabas.broker.memory_budget import MemoryBudget
from barnabas.broker.request_metrics import RequestMetrics
from barnabas.broker.security.broker_security import BrokerSecurity
from barnabas.config import BrokerConfig
from barnabas.config.client_quotas import CONNECTION_RATE
from barnabas.errors import AddressInUse
from barnabas.model import Endpoint
from barnabas.replication.replica_manager import loop_ms
from barnabas.security.principal import ANONYMOUS, Principal
from barnabas.world.ports import Listener, Network, Receiver, ServerTls, Stream

logger = logging.getLogger("barnabas.network")

SWEEP_SECONDS = 5.0
SWEEP_SECONDS_MIN = 0.1
REFUSED_SECONDS = 0.001
"""Time after which a connection is closed that is refused before its TLS handshake."""
DEFAULT_BUFFERED_BYTES_MAX = 128 << 20  # queued.max.request.bytes=-1


class Listening(NamedTuple):
    """An open listener. The port of `endpoint` may be 0, that of the socket is the one that the system chose."""

    endpoint: Endpoint
    socket: Listener


class Listeners:
    """All listening sockets of a broker and their connections."""

    def __init__(
        self,
        network: Network,
        config: BrokerConfig,
        serve: Serve,
        metrics: RequestMetrics,
        security: BrokerSecurity | None = None,
        rates: ConnectionRates | None = None,
    ) -> None:
        self.network = network
        self.security = security
        self.config = config
        self.serve = serve
        self.metrics = metrics
        self.rates = rates or ConnectionRates(config, loop_ms)
        self.opened = asyncio.Event()
        budget = config.queued_max_request_bytes
        self.memory = MemoryBudget(DEFAULT_BUFFERED_BYTES_MAX if budget < 0 else budget)
        self.listening: dict[str, Listening] = {}
        """By listener name."""
        self.replaced: list[Listening] = []
        """Listeners at former addresses, which accept connections until `close_replaced`."""
        self.connections: dict[Connection, None] = {}
        self.per_ip: dict[str, int] = {}
        self.per_ip_overrides = dict(config.max_connections_per_ip_overrides)
        self.accepted: dict[str, int] = {}
        """Number of connections since the start, by listener name."""
        self.refused_count = 0
        self.refusal_logged_at = -1.0

    def reconfigure(self, _: BrokerConfig, config: BrokerConfig) -> None:
        """Use new limits for the next connections. Connections over a lower limit stay open."""
        self.config = config
        self.rates.reconfigure(config)
        self.per_ip_overrides = dict(config.max_connections_per_ip_overrides)

    async def listen(self, name: str, host: str, port: int) -> tuple[str, int]:
        """Open a listener. Return the address it is bound to."""
        await self.open_all([Endpoint(listener=name, host=host, port=port)])
        return self.listening[name].socket.address

    async def open_all(self, wanted: Collection[Endpoint]) -> None:
        """Open the listeners that do not have these addresses yet. Connections are not affected, except those of a
        listener that gets another security protocol: they are closed.

        Raises AddressInUse or ConfigError if one of them cannot be opened. Then all keep their former addresses.
        """
        await self.close_replaced()
        tls = {each.listener: await self.find_tls(each) for each in wanted}
        kept = [each.endpoint for each in self.listening.values() if each.endpoint in wanted]
        opened: dict[str, Listening] = {}
        closed: list[Listening] = []
        try:
            for endpoint in wanted:
                if endpoint in kept:
                    continue
                for each in self.listening.values():
                    # The port may be that of another listener, or of this one on another interface.
                    if each.endpoint not in kept and each.socket.address[1] == endpoint.port:
                        await each.socket.close()
                        closed.append(each)
                address = endpoint.host, endpoint.port
                opened[endpoint.listener] = await self.open_socket(
                    endpoint, address, tls[endpoint.listener]
                )
        except BaseException as error:  # also if the broker stops meanwhile
            for each in opened.values():
                await each.socket.close()
            if isinstance(error, AddressInUse):
                await self.reopen(closed)
            raise
        replaced = [self.listening[name] for name in opened if name in self.listening]
        self.listening |= opened
        for each in replaced:
            name = each.endpoint.listener
            if each.endpoint.protocol is opened[name].endpoint.protocol:
                self.replaced.append(each)
            else:
                await each.socket.close()
                self.close_connections(name, "the listener has another security protocol")

    async def reopen(self, closed: Iterable[Listening]) -> None:
        for each in closed:
            with suppress(AddressInUse):
                tls = await self.find_tls(each.endpoint)
                reopened = await self.open_socket(each.endpoint, each.socket.address, tls)
                self.listening[each.endpoint.listener] = reopened

    async def find_tls(self, endpoint: Endpoint) -> ServerTls | None:
        return None if self.security is None else await self.security.server_tls(endpoint)

    async def open_socket(
        self, endpoint: Endpoint, address: tuple[str, int], tls: ServerTls | None
    ) -> Listening:
        accept = partial(self.accept, endpoint)
        opened = await self.network.listen(*address, accept, tls)
        opened.admit = partial(self.admit, endpoint.listener, opened)
        return Listening(endpoint, opened)

    async def close_replaced(self) -> None:
        """Close the listeners at former addresses. Their connections stay open."""
        for each in self.replaced:
            await each.socket.close()
        self.replaced.clear()

    async def close_listener(self, name: str) -> None:
        """Close a listener and its connections."""
        await self.listening.pop(name).socket.close()
        self.close_connections(name, "the listener was removed")

    def close_connections(self, listener_name: str, why: str) -> None:
        for connection in list(self.connections):
            if connection.listener_name == listener_name:
                connection.stream.close(why)

    def admit(self, listener_name: str, listener: Listener, host: str) -> float:
        """Return 0 to serve a new connection, or the time in seconds after which it is closed unserved."""
        held_s = self.rates.hold_seconds(host)
        if held_s:
            self.log_refused(host, CONNECTION_RATE)
            return held_s
        # Other connections are refused in `accept`.
        if handshakes := listener.handshakes_of(host):
            per_ip_max = self.per_ip_max(host)
            if self.per_ip.get(host, 0) + handshakes >= per_ip_max:
                self.log_refused(host, f"max.connections.per.ip={per_ip_max}")
                return REFUSED_SECONDS
        pause_s = self.rates.pause_seconds(listener_name)
        if pause_s:
            listener.pause_accepting(pause_s)
        return 0.0

    def accept(self, endpoint: Endpoint, stream: Stream) -> Receiver | None:
        """Return a new connection, or None to refuse it. `endpoint` is the one that was opened."""
        host, listener_name = stream.peer[0], endpoint.listener
        count = self.per_ip.get(host, 0)
        if len(self.connections) >= self.config.max_connections:
            self.log_refused(host, f"max.connections={self.config.max_connections}")
            return None
        per_ip_max = self.per_ip_max(host)
        if count >= per_ip_max:
            self.log_refused(host, f"max.connections.per.ip={per_ip_max}")
            return None
        try:
            principal = self.find_principal(endpoint, stream)
        except ValueError as error:
            self.log_refused(host, str(error))
            return None
        connection = Connection(
            stream,
            listener_name=listener_name,
            serve=self.current_serve(),
            on_closed=self.remove,
            memory=self.memory,
            frame_bytes_max=self.config.socket_request_max_bytes,
            metrics=self.metrics,
        )
        connection.principal = principal
        if self.security is not None:
            connection.serve = self.security.select_serve(
                connection, endpoint.protocol, self.current_serve
            )
        self.connections[connection] = None
        self.accepted[listener_name] = self.accepted.get(listener_name, 0) + 1
        self.per_ip[host] = count + 1
        return connection

    def per_ip_max(self, host: str) -> int:
        return self.per_ip_overrides.get(host, self.config.max_connections_per_ip)

    def current_serve(self) -> Serve:
        return self.serve if self.opened.is_set() else self.serve_early

    def find_principal(self, endpoint: Endpoint, stream: Stream) -> Principal:
        if self.security is None:
            return ANONYMOUS
        return self.security.principal_of(endpoint, stream)

    def serve_early(self, frame: memoryview, connection: Connection) -> ServeResult:
        """Serve a request that arrives before the broker knows its partitions.

        Requests that only brokers send are served at once. Others wait, since any response would be wrong.
        """
        if len(frame) >= API_KEY.size and API_KEY.unpack_from(frame)[0] in BROKER_REQUESTS:
            return self.serve(frame, connection)
        # Waiting requests keep their memory. The other half is for controller requests, which end the wait.
        if self.memory.used_bytes > self.memory.limit_bytes // 2:
            raise CloseConnection(
                "the broker is starting and waiting requests use "
                f"{self.memory.used_bytes} of {self.memory.limit_bytes} bytes "
                "(queued.max.request.bytes); retry later"
            )
        # The buffer of the connection does not change until the response is sent, so the frame needs no copy.
        return self.serve_later(frame, connection)

    async def serve_later(
        self, frame: memoryview, connection: Connection
    ) -> EncodedResponse | PendingResponse:
        await self.opened.wait()
        response = self.serve(frame, connection)
        if response is None or isinstance(response, (list, PendingResponse)):
            return response
        return await response

    def open_to_clients(self) -> None:
        self.opened.set()
        for connection in self.connections:
            if connection.serve == self.serve_early:  # others have not logged in yet
                connection.serve = self.serve

    def log_refused(self, host: str, limit: str) -> None:
        self.refused_count += 1
        now = asyncio.get_running_loop().time()
        if now - self.refusal_logged_at >= 1.0:
            self.refusal_logged_at = now
            logger.warning(
                "refusing connection peer=%s limit=%s refused=%d", host, limit, self.refused_count
            )

    def remove(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        del self.connections[connection]
        if self.security is not None:
            self.security.connection_closed(connection)
        host = connection.stream.peer[0]
        left = self.per_ip[host] - 1
        if left:
            self.per_ip[host] = left
        else:
            del self.per_ip[host]

    async def sweep(self) -> None:
        """Run forever: close idle connections and shrink their buffers."""
        loop = asyncio.get_running_loop()
        idle_seconds_max = self.config.connections_max_idle_ms / 1000
        period = SWEEP_SECONDS
        if idle_seconds_max >= 0:
            period = min(period, max(idle_seconds_max / 4, SWEEP_SECONDS_MIN))
        while True:
            await asyncio.sleep(period)
            now = loop.time()
            for connection in list(self.connections):
                idle_seconds = now - connection.active_at
                if idle_seconds >= SWEEP_SECONDS:
                    connection.shrink_when_idle()
                if 0 <= idle_seconds_max < idle_seconds:
                    connection.stream.close("idle for longer than connections.max.idle.ms")

    async def stop_listening(self) -> None:
        await self.close_replaced()
        for each in self.listening.values():
            await each.socket.close()
        self.listening.clear()

    async def close(self) -> None:
        await self.stop_listening()
        for connection in list(self.connections):
            connection.stream.close("broker is shutting down")
