"""Listening sockets of a broker that get other addresses while it runs."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest

from barnabas.broker.listener import Listeners
from barnabas.broker.request_metrics import RequestMetrics
from barnabas.config import BrokerConfig
from barnabas.errors import AddressInUse
from barnabas.model import Endpoint
from barnabas.world.network import SocketNetwork

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
