"""A ZooKeeper server that takes a connection and says nothing is left in time to ask again."""

from __future__ import annotations

import asyncio

from barnabas.world.registry.zookeeper import SHORTEST_ATTEMPT_S, ZooKeeperRegistry

SESSION_MS = 60_000
SESSION_S = SESSION_MS / 1000


async def test_a_server_that_forgets_a_connection_is_asked_again_while_the_session_lives() -> None:
    taken: asyncio.Queue[float] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    greetings: list[asyncio.StreamWriter] = []

    async def forget(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greetings.append(writer)
        taken.put_nowait(loop.time())

    server = await asyncio.start_server(forget, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    registry = ZooKeeperRegistry(f"127.0.0.1:{port}", connection_timeout_ms=SESSION_MS)
    connecting = asyncio.create_task(registry.connect(int(3000 * SHORTEST_ATTEMPT_S)))
    try:
        async with asyncio.timeout(SESSION_S):
            first = await taken.get()
            second = await taken.get()
        assert second - first < 3 * SHORTEST_ATTEMPT_S  # the whole session
    finally:
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        for writer in greetings:
            writer.close()
        server.close()
