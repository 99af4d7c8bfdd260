"""The security of one broker. broker.py creates it, starts it before the listeners open, and stops it after them."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.connection import Connection, Serve
from barnabas.broker.security.authorization import Authorization
from barnabas.broker.security.listener_tls import BrokerTls
from barnabas.broker.security.login_settings import check_logins
from barnabas.broker.security.logins import Logins
from barnabas.broker.security.peer_network import PeerNetwork
from barnabas.config import BrokerConfig
from barnabas.config.current import CurrentConfig
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import Endpoint, SecurityProtocol
from barnabas.security.principal import ANONYMOUS, Principal
from barnabas.world.ports import ServerTls, Stream, World


class BrokerSecurity:
    def __init__(self, config: CurrentConfig, world: World, registry: RegistryClient) -> None:
        self.config = config
        self.world = world
        self.registry = registry
        self.tls = BrokerTls(config, world.disk)
        static = config.value
        self.peers = PeerNetwork(world, config, static.inter_broker_listener, self.tls)
        self.control_plane = PeerNetwork(world, config, static.control_plane_listener, self.tls)
        self.authorization = Authorization(static, world, registry)
        self.access = self.authorization.access
        self.audit = self.authorization.audit
        self.logins = Logins(config, world, registry, self.audit)

    async def start(self) -> None:
        """Load what the first connections need. Raises ConfigError if a setting cannot be used."""
        await self.tls.start()
        await self.authorization.start()
        await self.logins.start()

    def session_opened(self) -> None:
        """Read again what may have changed. Called after the broker has registered in a new registry session."""
        self.authorization.session_opened()
        self.logins.session_opened()

    async def stop(self) -> None:
        await self.logins.stop()
        await self.authorization.stop()
        await self.tls.stop()

    async def check(self, config: BrokerConfig) -> None:
        """Raise ConfigError if the settings of a dynamic change cannot be used."""
        check_logins(config)
        await self.tls.check(config)

    async def server_tls(self, endpoint: Endpoint) -> ServerTls | None:
        """Return TLS of a listener, or None if it has none. Raises ConfigError."""
        return await self.tls.open(endpoint.listener) if endpoint.protocol.has_tls else None

    def principal_of(self, endpoint: Endpoint, stream: Stream) -> Principal:
        """Return the principal of a new connection, before its login. `endpoint` is the one that was opened.

        Raises ValueError to refuse the connection: ssl.principal.mapping.rules do not match its certificate, or the
        endpoint has SASL and no client can log in.
        """
        if endpoint.protocol.has_sasl:
            self.logins.require_settings(endpoint.listener)
            return ANONYMOUS
        certificate = stream.peer_certificate
        if certificate is None:
            return ANONYMOUS
        return self.tls.principal_of(endpoint.listener, certificate)

    def select_serve(
        self, connection: Connection, protocol: SecurityProtocol, find_serve: Callable[[], Serve]
    ) -> Serve:
        """Return the function that serves the next frames of a new connection: its login, or that of `find_serve`.

        `protocol` is that of the opened endpoint. Later settings do not change it.
        """
        return (
            self.logins.select_serve(connection, find_serve) if protocol.has_sasl else find_serve()
        )

    def connection_closed(self, connection: Connection) -> None:
        self.logins.forget(connection)
