"""Port that is reserved for a broker while it is stopped."""

from __future__ import annotations

import socket

import pytest

from barnabas.errors import AddressInUse
from barnabas.world.network import HeldPort, SocketListener, SocketNetwork
from barnabas.world.socket_stream import SocketStream

HOST = "127.0.0.1"


def refuse_all(stream: SocketStream) -> None:
    return None


async def listen(network: SocketNetwork, port: int) -> SocketListener:
    return await network.listen(HOST, port, refuse_all)


async def test_broker_may_listen_repeatedly_on_held_port() -> None:
    network = SocketNetwork()
    port = HeldPort(HOST)
    try:
        for _ in range(3):
            listener = await listen(network, port.port)
            assert listener.address == (HOST, port.port)
            with socket.create_connection((HOST, port.port), timeout=10):
                pass
            await listener.close()
    finally:
        port.release()
        network.close()


def test_held_port_refuses_connections_without_listener() -> None:
    port = HeldPort(HOST)
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port.port), timeout=10)
    finally:
        port.release()


async def test_port_with_listener_cannot_be_held() -> None:
    network = SocketNetwork()
    listener = await listen(network, 0)
    with pytest.raises(AddressInUse, match=str(listener.address[1])):
        HeldPort(*listener.address)
    await listener.close()
    network.close()


def test_held_port_is_not_given_to_outgoing_connections() -> None:
    port = HeldPort(HOST)
    with socket.socket() as other:
        try:
            with pytest.raises(OSError, match="in use"):
                other.bind((HOST, port.port))
        finally:
            port.release()
