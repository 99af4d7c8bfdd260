"""Sessions on a Spark Connect server: `session("sc://host:15002")`."""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from barnabas.errors import BarnabasError, ConfigError
from barnabas.spark.error_text import message_lines
from barnabas.spark.progress import show_remote_progress
from barnabas.spark.query_log import silence_query_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEME = "sc://"
CONNECT_PORT = 15002
REACH_S = 5.0
HANDSHAKE_S = 15.0
"""Time limit for TLS and the first frame of HTTP/2. Spark sends it at once, even if it is slow to open a session."""
ANSWER_S = 60.0
NO_SERVER = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "UNIMPLEMENTED"})
"""gRPC's codes for a peer that is no Spark Connect server."""
REJECTED = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
DEFAULTS = {"spark.sql.connect.serverStacktrace.enabled": "false"}
REMOTE_HINT = (
    "check the address and its options (use_ssl, token), and that a Spark Connect server runs there"
)
CONNECTION_FAILED = re.compile(r"failed to connect to all addresses; last error: \w+: (?:\S+: )?")
"""Start of gRPC's text for a failed connection, with the address."""


class RemoteUnreachable(BarnabasError):
    """No Spark Connect server answers at the address."""

    def __init__(self, option: str, problem: str, why: str) -> None:
        super().__init__(f"{option}: {problem} ({why}); {REMOTE_HINT}")


def check_remote(remote: str, option: str) -> None:
    """Raise ConfigError for an invalid address, and RemoteUnreachable if no Spark Connect server answers there.

    PySpark would retry for ten minutes. Raises ImportError if packages of Spark Connect are missing.
    """
    address = urlsplit(remote)
    try:
        host, port = address.hostname, address.port or CONNECT_PORT
    except ValueError:
        host, port = None, 0
    if address.scheme != "sc" or not host:
        shown = remote.partition(";")[0]  # a token may follow
        raise ConfigError(option, f"{shown!r} is not an address; write sc://host:port")
    try:
        socket.create_connection((host, port), REACH_S).close()
    except OSError as error:
        why = error.strerror or str(error)
        problem = f"no Spark Connect server reached at {host}:{port}"
        raise RemoteUnreachable(option, problem, why) from None
    check_answer(remote, option)


def check_answer(remote: str, option: str) -> None:
    """Send one request over a connection of its own, without retries. The session keeps PySpark's retries."""
    # Without it, gRPC logs failed TLS handshakes. It has no effect if the program has used gRPC before.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    import grpc
    import pyspark.sql.connect.proto as pb2
    from pyspark.errors import PySparkValueError
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub

    # gRPC also uses this setting, which is 20 s by default, as the time limit of a handshake.
    limits = [("grpc.min_reconnect_backoff_ms", int(HANDSHAKE_S * 1000))]
    try:
        builder = DefaultChannelBuilder(remote, limits)
    except PySparkValueError as error:
        raise ConfigError(option, message_lines(str(error))[0]) from None
    # Spark answers this at once: there is no such session. Most other requests would open one.
    request = pb2.ReleaseSessionRequest(session_id=str(uuid.uuid4()), client_type=builder.userAgent)
    with builder.toChannel() as channel:
        try:
            SparkConnectServiceStub(channel).ReleaseSession(
                request, timeout=ANSWER_S, metadata=builder.metadata()
            )
        except grpc.RpcError as error:
            code = error.code().name
            if code in NO_SERVER:
                problem = f"no Spark Connect server answers at {builder.endpoint}"
            elif code in REJECTED:
                problem = f"the Spark Connect server at {builder.endpoint} rejects the request"
            else:
                return  # A server answers. The error of the session has more details.
            why = CONNECTION_FAILED.sub("", error.details() or code)
            raise RemoteUnreachable(option, problem, f"gRPC: {why}") from None


def uses_tls(remote: str) -> bool:
    """Return whether the connection to a Spark Connect server is encrypted.

    >>> uses_tls("sc://host:15002/;use_ssl=true"), uses_tls("sc://host:15002")
    (True, False)
    """
    pairs = (each.partition("=") for each in urlsplit(remote).path.split(";")[1:])
    return {name: value for name, _, value in pairs}.get("use_ssl", "").lower() == "true"


def is_remote(master: str | None) -> bool:
    """Return whether the master is the address of a Spark Connect server."""
    return master is not None and master.startswith(SCHEME)


def uses_connect(spark: SparkSession) -> bool:
    """Return whether the session is on a Spark Connect server. Then this process has no JVM and no SparkContext."""
    return not hasattr(spark, "sparkContext")


def connect_session(
    remote: str, app_name: str, settings: Mapping[str, str], *, progress: bool
) -> SparkSession:
    """Return a session on a Spark Connect server, with the data source. The server's Python needs barnabas[spark].

    Raises ConfigError and RemoteUnreachable.
    """
    from pyspark.sql import SparkSession

    from pyspark_barnabas import DefaultSource

    try:
        check_remote(remote, "master")
        builder = SparkSession.builder.remote(remote).appName(app_name)
        spark = builder.config(map={**DEFAULTS, **settings}).getOrCreate()
    except ImportError as error:
        why = (
            f"needs the packages of Spark Connect ({error}); run: pip install 'barnabas[pipelines]'"
        )
        raise ConfigError("master", why) from None
    silence_query_logger()
    spark.dataSource.register(DefaultSource)
    if progress:
        show_remote_progress(spark)
    return spark
