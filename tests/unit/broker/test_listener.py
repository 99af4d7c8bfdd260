"""Listening sockets of a broker that get other addresses while it runs, and limits on connections per address."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest
from msgspec.structs import replace

from barnabas.broker.listener import Listeners
from barnabas.broker.request_metrics import RequestMetrics
from barnabas.config import BrokerConfig
from barnabas.errors import AddressInUse
from barnabas.model import Endpoint, SecurityProtocol
from barnabas.world.network import SocketNetwork
from tests.unit.replication.nodes import eventually

HOST = "127.0.0.1"


@pytest.fixture
async def listeners() -> AsyncIterator[Listeners]:
    network = SocketNetwork()
    opened = Listeners(network, BrokerConfig(), cast(Any, None), RequestMetrics())
    yield opened
    await opened.close()


@pytest.fixture
def busy() -> Iterator[int]:
    """A port that another program uses."""
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


def endpoint(name: str, port: int = 0, host: str = HOST) -> Endpoint:
    return Endpoint(listener=name, host=host, port=port)


def ports(listeners: Listeners) -> dict[str, int]:
    return {name: each.socket.address[1] for name, each in listeners.listening.items()}


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0


def connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=30)


async def test_failed_change_keeps_all_listeners(listeners: Listeners, busy: int) -> None:
    await listeners.open_all([endpoint("A"), endpoint("B")])
    before = ports(listeners)
    with pytest.raises(AddressInUse):
        await listeners.open_all([endpoint("A", before["B"]), endpoint("B", busy)])
    assert ports(listeners) == before
    assert all(is_open(port) for port in before.values())


async def test_former_address_is_open_until_it_is_closed(listeners: Listeners) -> None:
    await listeners.open_all([endpoint("A"), endpoint("B")])
    before = ports(listeners)
    await listeners.open_all([endpoint("A", host="localhost"), endpoint("B")])
    assert ports(listeners)["B"] == before["B"]
    assert ports(listeners)["A"] != before["A"]
    assert is_open(before["A"])
    await listeners.close_replaced()
    assert not is_open(before["A"])
    assert all(is_open(port) for port in ports(listeners).values())


async def test_two_listeners_swap_their_ports(listeners: Listeners) -> None:
    await listeners.open_all([endpoint("A"), endpoint("B")])
    before = ports(listeners)
    await listeners.open_all([endpoint("A", before["B"]), endpoint("B", before["A"])])
    await listeners.close_replaced()
    assert ports(listeners) == {"A": before["B"], "B": before["A"]}
    assert all(is_open(port) for port in before.values())


async def test_listener_gets_another_interface_on_its_port(listeners: Listeners) -> None:
    await listeners.open_all([endpoint("A")])
    port = ports(listeners)["A"]
    await listeners.open_all([endpoint("A", port, host="0.0.0.0")])
    await listeners.close_replaced()
    assert listeners.listening["A"].socket.address == ("0.0.0.0", port)
    assert is_open(port)


async def test_listener_with_another_protocol_closes_its_connections(listeners: Listeners) -> None:
    """The listener may have been removed and added again before the first change was carried out."""
    await listeners.open_all([endpoint("A"), endpoint("B")])
    before = ports(listeners)
    with connect(before["A"]) as of_a, connect(before["B"]) as of_b:
        await eventually(lambda: len(listeners.connections) == 2)
        secured = replace(endpoint("A"), protocol=SecurityProtocol.SASL_PLAINTEXT)
        await listeners.open_all([secured, endpoint("B")])
        assert not is_open(before["A"])
        assert await asyncio.to_thread(of_a.recv, 1) == b""
        assert [each.listener_name for each in listeners.connections] == ["B"]
        of_b.setblocking(False)
        with pytest.raises(BlockingIOError):
            of_b.recv(1)
    assert is_open(ports(listeners)["A"])


async def test_connections_in_a_handshake_count_for_their_address(listeners: Listeners) -> None:
    listeners.reconfigure(listeners.config, replace(listeners.config, max_connections_per_ip=2))
    opened = await listeners.open_socket(endpoint("A"), (HOST, 0), cast(Any, NeverUsedTls()))
    port = opened.socket.address[1]

    async def wait_for_handshakes(count: int) -> None:
        await eventually(lambda: opened.socket.handshakes_of(HOST) == count)

    try:
        with connect(port) as first, connect(port):
            await wait_for_handshakes(2)
            with connect(port) as refused:
                assert await asyncio.to_thread(refused.recv, 1) == b""
            assert listeners.refused_count == 1
            first.close()
            await wait_for_handshakes(1)
            with connect(port):
                await wait_for_handshakes(2)
        await wait_for_handshakes(0)
        assert listeners.refused_count == 1
    finally:
        await opened.socket.close()


class NeverUsedTls:
    """TLS of a listener whose clients send nothing."""

    def current_context(self) -> None:
        raise AssertionError("a client has sent bytes")

    def handshake_failed(self, peer: tuple[str, int], reason: str) -> None:
        pass
