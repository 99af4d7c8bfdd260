"""Addresses where no Spark Connect server answers are reported within seconds, in one line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import pyspark.sql.connect.proto as pb2
import pytest
from pyspark.sql.connect.proto import base_pb2_grpc

from barnabas import LocalCluster
from barnabas.errors import ConfigError
from barnabas.spark import connect
from barnabas.spark.connect import RemoteUnreachable, check_remote

HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
PYSPARK_RETRIES_S = 60
"""PySpark would retry for ten minutes."""
OPTIONS = ["", "/;use_ssl=true", "/;token=hidden"]


@contextmanager
def listener(reply: Callable[[socket.socket], object]) -> Iterator[str]:
    """The address of a server that calls `reply` with each connection, and closes the connections at its end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = []

        def serve() -> None:
            while True:
                try:
                    connections.append(server.accept()[0])
                except OSError:
                    return
                with suppress(OSError):
                    reply(connections[-1])

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in connections:
                each.close()


def stay_silent(connection: socket.socket) -> None:
    pass


def answer(data: bytes) -> Callable[[socket.socket], None]:
    def reply(connection: socket.socket) -> None:
        if connection.recv(1000):
            connection.sendall(data)

    return reply


def hang_up(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.close()


class ConnectService(base_pb2_grpc.SparkConnectServiceServicer):  # type: ignore[misc]
    """Knows no session. Answers after `delay_s`, with an error if there is one."""

    def __init__(self, delay_s: float = 0.0, error: grpc.StatusCode | None = None) -> None:
        self.delay_s = delay_s
        self.error = error
        self.released: list[str] = []

    def ReleaseSession(self, request: Any, context: Any) -> Any:  # noqa: N802 - Spark's name
        time.sleep(self.delay_s)
        self.released.append(request.session_id)
        if self.error is not None:
            context.abort(self.error, "rejected")
        return pb2.ReleaseSessionResponse(session_id=request.session_id)


@contextmanager
def grpc_server(service: ConnectService | None = None) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor())
    if service is not None:
        base_pb2_grpc.add_SparkConnectServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def problem(remote: str) -> str:
    started = time.monotonic()
    with pytest.raises(RemoteUnreachable) as caught:
        check_remote(remote, "master")
    assert time.monotonic() - started < PYSPARK_RETRIES_S
    text = str(caught.value)
    assert text.endswith(connect.REMOTE_HINT)
    assert "\n" not in text
    assert "hidden" not in text
    return text


@pytest.fixture
def short_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "HANDSHAKE_S", 0.5)


@pytest.mark.parametrize("options", OPTIONS)
def test_silent_listener_is_reported(options: str, short_handshake: None) -> None:
    with listener(stay_silent) as address:
        found = problem(f"sc://{address}{options}")
    assert found.startswith(f"master: no Spark Connect server answers at {address} (gRPC: ")


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("reply", [answer(HTTP), answer(b"\x00\x01 not HTTP " * 9), hang_up])
def test_other_protocol_is_reported(options: str, reply: Callable[[socket.socket], object]) -> None:
    with listener(reply) as address:
        found = problem(f"sc://{address}{options}")
    assert found.startswith(f"master: no Spark Connect server answers at {address} (gRPC: ")
    assert "failed to connect to all addresses" not in found


def test_broker_is_reported() -> None:
    with LocalCluster() as cluster:
        assert f"{cluster.bootstrap_servers} (gRPC: " in problem(
            f"sc://{cluster.bootstrap_servers}"
        )


def test_other_grpc_server_is_reported() -> None:
    with grpc_server() as address:
        assert "(gRPC: Method not found!); check" in problem(f"sc://{address}")


def test_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "ANSWER_S", 0.3)
    with grpc_server(ConnectService(1)) as address:
        assert f"{address} (gRPC: " in problem(f"sc://{address}")


def test_slow_server_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "HANDSHAKE_S", 4)
    with grpc_server(ConnectService(6)) as address:
        check_remote(f"sc://{address}", "master")


def test_rejected_token_is_reported() -> None:
    with grpc_server(ConnectService(error=grpc.StatusCode.UNAUTHENTICATED)) as address:
        text = problem(f"sc://{address}")
    assert f"the Spark Connect server at {address} rejects the request (gRPC: rejected); " in text


def test_check_ignores_other_errors_of_server() -> None:
    with grpc_server(ConnectService(error=grpc.StatusCode.NOT_FOUND)) as address:
        check_remote(f"sc://{address}", "master")


def test_session_of_the_address_is_not_released() -> None:
    service = ConnectService()
    session = str(uuid.uuid4())
    with grpc_server(service) as address:
        check_remote(f"sc://{address}/;session_id={session}", "master")
    assert len(service.released) == 1
    assert session not in service.released


@pytest.mark.parametrize("rest", ["/path", "/;token"])
def test_invalid_options_are_reported(rest: str) -> None:
    with grpc_server(ConnectService()) as address, pytest.raises(ConfigError, match=r"^master: "):
        check_remote(f"sc://{address}{rest}", "master")


PROGRAM = """
import sys
import barnabas.spark
from barnabas.spark import connect
connect.HANDSHAKE_S = 1
try:
    barnabas.spark.session(sys.argv[1])
except connect.RemoteUnreachable as error:
    print(error)
"""


@pytest.mark.parametrize("reply", [stay_silent, answer(HTTP)])
@pytest.mark.parametrize("options", ["", "/;use_ssl=true"])
def test_session_fails_soon_and_logs_nothing(
    reply: Callable[[socket.socket], object], options: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if "GRPC" not in name}
    with listener(reply) as address:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, f"sc://{address}{options}"],
            capture_output=True,
            text=True,
            timeout=PYSPARK_RETRIES_S,
            check=False,
            env=environment,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("master: no Spark Connect server answers at ")
    assert done.stdout.count("\n") == 1
