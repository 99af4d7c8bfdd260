"""The connection that a Client shares with its producers, consumers and admin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Self

from barnabas.api.settings import require_positive
from barnabas.client.cluster import Cluster
from barnabas.client.view import TopicView
from barnabas.errors import ApiError, ClientClosed, ConfigError, ErrorCode
from barnabas.security.client_settings import TokenCallback
from barnabas.security.client_sources import SecuritySource, load_security

REQUEST_TIMEOUT_MS = 30_000


class Closable(ABC):
    """Base of the public classes: closed once, by `close` or at the end of a `with` block."""

    def __init__(self) -> None:
        self._is_closing = self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close(is_failed=kind is not None)

    def close(self) -> None:
        """Release the connections. Producers flush first. Every other call after it raises ClientClosed."""
        self._close(is_failed=False)

    def _close(self, *, is_failed: bool) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        try:
            self._finish(is_failed=is_failed)
        finally:
            self._is_closed = True

    @abstractmethod
    def _finish(self, *, is_failed: bool) -> None:
        """Do the last work, and release the connections. `is_failed` is true if a `with` block raised an exception."""


class Connection(Closable):
    """A connection to a cluster. `bootstrap_servers` is "host:port,host:port", or a list of "host:port".

    It connects on the first request. It keeps a list of its open users, and closes them with itself.

    `security` has Kafka's client settings for TLS and logins, or is the path of a properties file with them. By
    default they come from the environment. `oauth_token` is called for each login with OAUTHBEARER.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "barnabas",
        request_timeout_ms: float = REQUEST_TIMEOUT_MS,
        security: SecuritySource = None,
        oauth_token: TokenCallback | None = None,
    ) -> None:
        super().__init__()
        require_positive("request_timeout_ms", request_timeout_ms)
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            timeout_s=request_timeout_ms / 1000,
            security=load_security(security, token_callback=oauth_token),
        )
        self._users: list[ConnectionUser] = []

    def _finish(self, *, is_failed: bool) -> None:
        with ExitStack() as stack:  # closes all, in reverse order, even if one raises an error
            stack.callback(self._cluster.close)
            for user in self._users[:]:
                stack.callback(user._close, is_failed=is_failed)

    def _open_cluster(self) -> Cluster:
        if self._is_closed:
            raise ClientClosed("Client")
        return self._cluster


class ConnectionUser(Closable):
    """Base of the classes that use a connection: their own, or that of a Client."""

    def __init__(
        self,
        bootstrap_servers: Connection | str | Sequence[str],
        *,
        security: SecuritySource = None,
    ) -> None:
        super().__init__()
        if isinstance(bootstrap_servers, Connection):
            if security is not None:
                raise ConfigError("security", "is a setting of the Client; set it there")
            self._connection, self._is_owner = bootstrap_servers, False
        else:
            self._connection = Connection(bootstrap_servers, security=security)
            self._is_owner = True
        self._connection._open_cluster()
        self._connection._users.append(self)

    def _finish(self, *, is_failed: bool) -> None:
        self._connection._users.remove(self)
        try:
            self._finish_work(is_failed=is_failed)
        finally:
            if self._is_owner:
                self._connection.close()

    @abstractmethod
    def _finish_work(self, *, is_failed: bool) -> None:
        """Finish what was begun, such as sending records, before the connection closes."""

    def _open_cluster(self) -> Cluster:
        """Return the cluster. Raises ClientClosed after `close`."""
        if self._is_closed:
            raise ClientClosed(type(self).__name__)
        return self._connection._open_cluster()


def existing_topic(cluster: Cluster, name: str) -> TopicView:
    """Fetch the metadata of a topic: it may have new partitions.

    Raises ApiError UNKNOWN_TOPIC_OR_PARTITION, with the next step, if it does not exist.
    """
    try:
        return cluster.fetch_topic(name)
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        why = f"topic {name!r} does not exist; create it with Admin.create_topic"
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why) from None
