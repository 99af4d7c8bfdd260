"""Connections from this broker to others, with the security of the listener that they connect to."""

from __future__ import annotations

from collections.abc import Callable
from ssl import SSLContext

from barnabas.broker.security.listener_tls import BrokerTls
from barnabas.broker.security.login_settings import PeerLogin, read_peer_login
from barnabas.broker.security.peer_login import log_in
from barnabas.broker.security.peer_tokens import PeerTokens
from barnabas.client.connection import BrokerConnection
from barnabas.config import BrokerConfig
from barnabas.config.current import CurrentConfig
from barnabas.errors import ConfigError
from barnabas.world.ports import Listener, Receiver, ServerTls, Stream, World


class PeerNetwork:
    """Implements `Network` and `LoginNetwork`."""

    def __init__(self, world: World, config: CurrentConfig, listener: str, tls: BrokerTls) -> None:
        self.network = world.network
        self.random = world.random
        self.config = config
        self.listener = listener
        """Name of the listener of the other brokers."""
        self.tls = tls
        self.tokens = PeerTokens(world.downloader)
        self.peer: PeerLogin | None = None
        self.peer_config: BrokerConfig | None = None
        """The config that `peer` was read from. A JAAS file can be large, so it is not read for every connection."""

    def host_name(self) -> str:
        return self.network.host_name()

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], Receiver | None],
        tls: ServerTls | None = None,
    ) -> Listener:
        return await self.network.listen(host, port, accept, tls)

    async def connect(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], Receiver],
        tls: SSLContext | None = None,
    ) -> Stream:
        if tls is None and self.config.value.protocol_of(self.listener).has_tls:
            tls = self.tls.peer_context(self.listener)
        return await self.network.connect(host, port, accept, tls)

    async def log_in(self, connection: BrokerConnection) -> None:
        """Authenticate a new connection. Raises ConnectionError if the other broker refuses."""
        config = self.config.value
        if config is not self.peer_config:
            try:
                self.peer = read_peer_login(config, self.listener)
            except ConfigError as error:
                raise ConnectionError(f"cannot log in at another broker: {error}") from error
            self.peer_config = config
        if self.peer is not None:
            await log_in(connection, self.peer, self.random, self.tokens)
