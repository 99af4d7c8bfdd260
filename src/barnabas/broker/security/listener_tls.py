"""TLS of the listeners of one broker: its certificates, and new ones while the broker runs.

The files of a listener are checked every FILES_CHECK_SECONDS. They are loaded again when one has changed, or when a
dynamic setting of the listener changes. New connections use the new certificate, and existing connections stay open.
If the new files cannot be used, the listener keeps its certificate, and an error is logged.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import NamedTuple

from msgspec.structs import replace

from barnabas.config import BrokerConfig
from barnabas.config.current import CurrentConfig
from barnabas.errors import ConfigError, StorageError
from barnabas.log_rate_limiter import LogRateLimiter
from barnabas.model import SecurityProtocol
from barnabas.security.principal import ANONYMOUS, Principal
from barnabas.security.tls.context import build_client_context, build_server_context
from barnabas.security.tls.errors import CLOSED_EARLY, describe_tls_error
from barnabas.security.tls.mapping import Rule, map_subject, parse_rules
from barnabas.security.tls.names import read_alternative_names, read_expiry, read_subject
from barnabas.security.tls.rehearsal import connect_in_memory
from barnabas.security.tls.settings import TlsSettings, read_tls_settings
from barnabas.security.tls.stores import Stores, read_stores
from barnabas.tasks import Tasks, in_thread
from barnabas.world.ports import Disk

logger = logging.getLogger("barnabas.tls")

FILES_CHECK_SECONDS = 5.0
LOG_SECONDS = 1.0
PRINCIPALS_MAX = 1000
"""Maximum certificates per listener whose principal is remembered."""

FileVersions = tuple[tuple[int, int] | None, ...]
"""Modification time and size of each file. None: the file cannot be read."""


class LoadedTls(NamedTuple):
    """The certificates of a listener, as they were loaded."""

    settings: TlsSettings
    stores: Stores
    versions: FileVersions
    server: ssl.SSLContext
    client: ssl.SSLContext | None
    """For connections to this listener of other brokers. None if brokers do not use the listener."""


class ListenerTls:
    """TLS of one listener. Implements `ServerTls`."""

    def __init__(self, name: str, loaded: LoadedTls, rules: tuple[Rule, ...]) -> None:
        self.name = name
        self.loaded = loaded
        self.rules = rules
        self.tried: tuple[TlsSettings, FileVersions] = (loaded.settings, loaded.versions)
        """Settings and files of the last attempt to load them, also if it failed."""
        self.principals: dict[bytes, Principal] = {}
        self.failed_count = 0
        self.limiter = LogRateLimiter(LOG_SECONDS)

    def current_context(self) -> ssl.SSLContext:
        return self.loaded.server

    def handshake_failed(self, peer: tuple[str, int], reason: str) -> None:
        if reason == CLOSED_EARLY:  # as the health check of a load balancer does
            logger.debug("connection closed before TLS handshake peer=%s:%s", *peer)
            return
        self.failed_count += 1
        if self.limiter.is_due(asyncio.get_running_loop().time()):
            logger.warning(
                "TLS handshake failed listener=%s peer=%s:%s reason=%s failed=%d",
                *(self.name, *peer, reason, self.failed_count),
            )

    def principal_of(self, certificate: bytes) -> Principal:
        """Return the principal of a client. Raises ValueError if no mapping rule matches."""
        principal = self.principals.get(certificate)
        if principal is None:
            principal = Principal(map_subject(self.rules, read_subject(certificate)))
            if len(self.principals) >= PRINCIPALS_MAX:
                self.principals.clear()
            self.principals[certificate] = principal
        return principal


class BrokerTls:
    """TLS of all listeners of a broker, and of its connections to other brokers."""

    def __init__(self, config: CurrentConfig, disk: Disk) -> None:
        self.config = config
        self.disk = disk
        self.listeners: dict[str, ListenerTls] = {}
        self.tasks = Tasks()
        self.lock = asyncio.Lock()
        """Held while certificates are loaded."""

    async def start(self) -> None:
        """Load the certificates of the listeners in the file. Raises ConfigError if one cannot be used."""
        for endpoint in self.config.static.listeners:
            if endpoint.protocol.has_tls:
                await self.open(endpoint.listener)
        self.config.on_change(self.reconfigure)

    async def stop(self) -> None:
        await self.tasks.stop()

    async def open(self, name: str) -> ListenerTls:
        """Return TLS of a listener. Loads its certificates if it is new. Raises ConfigError.

        Dynamic settings must not prevent the start of a broker. So those of the file are used if they are invalid.
        """
        async with self.lock:
            if name in self.listeners:
                return self.listeners[name]
            config = self.config.value
            try:
                loaded = await in_thread(load_listener, config, name, self.disk)
            except ConfigError as error:
                if config is self.config.static:
                    raise
                config = self.config.static
                loaded = await in_thread(load_listener, config, name, self.disk)
                logger.error("cannot use dynamic settings listener=%s error=%s", name, error)
            rules = parse_rules(str(config.security_value("ssl.principal.mapping.rules", name)))
            listener = self.listeners[name] = ListenerTls(name, loaded, rules)
            log_loaded(name, loaded)
            if len(self.listeners) == 1:
                self.tasks.start("tls-files", self.watch_files())
            return listener

    def peer_context(self, name: str) -> ssl.SSLContext:
        """Return the context for connections to this listener of other brokers. Raises ConnectionError."""
        listener = self.listeners.get(name)
        if listener is None or listener.loaded.client is None:
            raise ConnectionError(f"listener {name} has no certificates")
        return listener.loaded.client

    def principal_of(self, name: str, certificate: bytes | None) -> Principal:
        """Return the principal of a connection. Raises ValueError if no mapping rule matches."""
        if certificate is None or name not in self.listeners:
            return ANONYMOUS
        return self.listeners[name].principal_of(certificate)

    async def check(self, config: BrokerConfig) -> None:
        """Raise ConfigError if a listener could not use these settings."""
        for endpoint in config.listeners:
            if not endpoint.protocol.has_tls:
                continue
            name = endpoint.listener
            current = self.listeners.get(name)
            if current is None or settings_of(config, name) != current.loaded.settings:
                loaded = await in_thread(load_listener, config, name, self.disk)
                if current is not None:
                    check_names(config, name, current.loaded, loaded)

    def reconfigure(self, _: BrokerConfig, config: BrokerConfig) -> None:
        self.tasks.start("tls-settings", self.reload_changed())

    async def watch_files(self) -> None:
        """Run forever: load the files that have changed."""
        while True:
            await asyncio.sleep(FILES_CHECK_SECONDS)
            await self.reload_changed()

    async def reload_changed(self) -> None:
        async with self.lock:
            for listener in list(self.listeners.values()):
                await self.reload_if_changed(self.config.value, listener)

    async def reload_if_changed(self, config: BrokerConfig, listener: ListenerTls) -> None:
        name = listener.name
        if all(each.listener != name for each in config.listeners):
            return  # the listener was removed
        try:
            settings = settings_of(config, name)
            versions = await in_thread(read_versions, settings, self.disk)
            if (settings, versions) == listener.tried:
                return
            listener.tried = settings, versions
            loaded = await in_thread(load_listener, config, name, self.disk)
            check_names(config, name, listener.loaded, loaded)
        except ConfigError as error:
            logger.error(
                "cannot use new certificates, keeping the current ones listener=%s error=%s",
                *(name, error),
            )
            return
        listener.loaded = loaded
        log_loaded(name, loaded)


def settings_of(config: BrokerConfig, name: str) -> TlsSettings:
    """Return the settings of a listener. Raises ConfigError."""
    settings = read_tls_settings(lambda each: config.security_value(each, name))
    if config.protocol_of(name) is SecurityProtocol.SASL_SSL:
        # As in Kafka: a client with a login needs no certificate, unless this listener requires one.
        own = config.security.get(f"listener.name.{name.lower()}.ssl.client.auth", "none")
        settings = replace(settings, client_auth=str(own))
    return settings


def is_for_peers(config: BrokerConfig, name: str) -> bool:
    """Return whether other brokers connect to this listener."""
    return name in (config.inter_broker_listener, config.control_plane_listener)


def read_versions(settings: TlsSettings, disk: Disk) -> FileVersions:
    versions: list[tuple[int, int] | None] = []
    for path in settings.files:
        try:
            versions.append((disk.modified_ms(path), disk.size(path)))
        except StorageError:
            versions.append(None)
    return tuple(versions)


def load_listener(config: BrokerConfig, name: str, disk: Disk) -> LoadedTls:
    """Load the certificates of a listener. Raises ConfigError. Reads files: call it in a thread."""
    try:
        settings = settings_of(config, name)
        versions = read_versions(settings, disk)  # before the content: a later change is noticed
        stores = read_stores(settings, disk.read_bytes)
        server = build_server_context(settings, stores)
        client = None
        if is_for_peers(config, name):
            client = build_client_context(settings, stores)
            check_trusts_itself(settings, stores, server)
    except ConfigError as error:
        raise ConfigError(error.key, f"{error.why} (listener {name})") from error
    return LoadedTls(settings, stores, versions, server, client)


def check_trusts_itself(settings: TlsSettings, stores: Stores, server: ssl.SSLContext) -> None:
    """Raise ConfigError if brokers with these stores could not connect to each other. Kafka has the same check."""
    any_host = replace(settings, endpoint_identification_algorithm="")
    try:
        connect_in_memory(server, build_client_context(any_host, stores))
    except ssl.SSLError as error:
        why = f"brokers with these stores cannot connect to each other: {describe_tls_error(error)}"
        raise settings.error("truststore_location", why) from error


def check_names(config: BrokerConfig, name: str, before: LoadedTls, after: LoadedTls) -> None:
    """Raise ConfigError if a new certificate is for another name: clients would not expect it."""
    assert before.stores.key is not None and after.stores.key is not None
    old, new = before.stores.key.certificates[0], after.stores.key.certificates[0]
    old_subject, new_subject = read_subject(old), read_subject(new)
    if old_subject != new_subject and not config.security_value("ssl.allow.dn.changes", name):
        why = f"the new certificate has the subject {new_subject} instead of {old_subject}"
        raise ConfigError(
            after.settings.name("keystore_location"), f"{why}; set ssl.allow.dn.changes=true"
        )
    is_covered = read_alternative_names(new) >= read_alternative_names(old)
    if not is_covered and not config.security_value("ssl.allow.san.changes", name):
        why = "the new certificate lacks alternative names of the current one"
        raise ConfigError(
            after.settings.name("keystore_location"), f"{why}; set ssl.allow.san.changes=true"
        )


def log_loaded(name: str, loaded: LoadedTls) -> None:
    settings, key = loaded.settings, loaded.stores.key
    assert key is not None
    logger.info(
        "loaded certificate listener=%s subject=%r expires=%s",
        *(name, read_subject(key.certificates[0]), read_expiry(key.certificates[0]).isoformat()),
    )
    if settings.client_auth != "none" and not settings.has_trust:
        logger.warning(
            "client certificates are verified by the authorities of the system listener=%s "
            "ssl.client.auth=%s; set ssl.truststore.location",
            *(name, settings.client_auth),
        )
