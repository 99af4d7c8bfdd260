"""Sessions on a Spark Connect server: `session("sc://host:15002")`."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from barnabas.errors import BarnabasError, ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEME = "sc://"
CONNECT_PORT = 15002
REACH_S = 5.0
REMOTE_HINT = "check the address, and that a Spark Connect server runs there"


class RemoteUnreachable(BarnabasError):
    """No Spark Connect server answers at the address."""


def check_remote(remote: str, option: str) -> None:
    """Raise ConfigError for an invalid address, and RemoteUnreachable if nothing listens there.

    PySpark would retry for ten minutes.
    """
    address = urlsplit(remote)
    try:
        host, port = address.hostname, address.port or CONNECT_PORT
    except ValueError:
        host, port = None, 0
    if address.scheme != "sc" or not host:
        raise ConfigError(option, f"{remote!r} is not an address; write sc://host:port")
    try:
        socket.create_connection((host, port), REACH_S).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise RemoteUnreachable(
            f"{option}: no Spark Connect server reached at {host}:{port} ({why}); {REMOTE_HINT}"
        ) from None


def uses_tls(remote: str) -> bool:
    """Return whether the connection to a Spark Connect server is encrypted.

    >>> uses_tls("sc://host:15002/;use_ssl=true"), uses_tls("sc://host:15002")
    (True, False)
    """
    pairs = (each.partition("=") for each in urlsplit(remote).path.split(";")[1:])
    return {name: value for name, _, value in pairs}.get("use_ssl", "").lower() == "true"


def connect_session(remote: str, app_name: str, settings: Mapping[str, str]) -> SparkSession:
    """Return a session on a Spark Connect server, with the data source. The server's Python needs barnabas[spark].

    Raises ConfigError and RemoteUnreachable.
    """
    check_remote(remote, "master")
    from pyspark.sql import SparkSession

    from pyspark_barnabas import DefaultSource

    try:
        builder = SparkSession.builder.remote(remote).appName(app_name).config(map=dict(settings))
        spark = builder.getOrCreate()
    except ImportError as error:
        why = (
            f"needs the packages of Spark Connect ({error}); run: pip install 'barnabas[pipelines]'"
        )
        raise ConfigError("master", why) from None
    spark.dataSource.register(DefaultSource)
    return spark
