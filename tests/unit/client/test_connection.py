"""Connection between brokers: exchanges that our side interrupts."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from barnabas.client.connection import BrokerConnection, ExchangeInterrupted
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.world.ports import Stream


class SilentStream:
    """Stream to a peer that never responds."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection

    def send(self, parts: Any) -> None:
        pass

    def close(self, reason: str) -> None:
        self.connection.closed(reason)


@pytest.fixture
def connection() -> BrokerConnection:
    connection = BrokerConnection("test")
    connection.stream = cast(Stream, SilentStream(connection))
    return connection


async def start_exchange(connection: BrokerConnection) -> asyncio.Task[ApiVersionsResponse]:
    exchange = connection.exchange(ApiVersionsRequest(), ApiVersionsResponse, timeout_s=60)
    task = asyncio.ensure_future(exchange)
    await asyncio.sleep(0)
    assert connection.waiting
    return task


async def test_interrupted_exchange_raises_exchange_interrupted(
    connection: BrokerConnection,
) -> None:
    exchange = await start_exchange(connection)
    connection.interrupt("more to fetch")
    with pytest.raises(ExchangeInterrupted, match="more to fetch"):
        await exchange
    assert not connection.is_open


async def test_exchange_after_interruption_fails(connection: BrokerConnection) -> None:
    exchange = await start_exchange(connection)
    connection.interrupt("more to fetch")
    await asyncio.gather(exchange, return_exceptions=True)
    with pytest.raises(ConnectionError):
        await connection.exchange(ApiVersionsRequest(), ApiVersionsResponse, timeout_s=60)


async def test_interruption_without_exchange_is_ignored(connection: BrokerConnection) -> None:
    connection.interrupt("more to fetch")
    assert connection.is_open


async def test_interruption_is_ignored_once_a_response_arrives(
    connection: BrokerConnection,
) -> None:
    exchange = await start_exchange(connection)
    connection.received(2)
    connection.interrupt("more to fetch")
    assert connection.is_open
    assert not exchange.done()
    connection.close("done")
    with pytest.raises(ConnectionError):
        await exchange


async def test_timeout_error_names_the_duration(connection: BrokerConnection) -> None:
    with pytest.raises(TimeoutError, match=r"no response within 0\.01 s"):
        await connection.exchange(ApiVersionsRequest(), ApiVersionsResponse, timeout_s=0.01)
