"""A ZooKeeper server that accepts a connection and stays silent is abandoned in time for another
attempt.
"""

from __future__ import annotations

import asyncio

from barnabas.world.registry.zookeeper import SHORTEST_ATTEMPT_S, ZooKeeperRegistry

SESSION_MS = 60_000
SESSION_S = SESSION_MS / 1000


async def test_silent_server_is_retried_within_session_timeout() -> None:
    accepted: asyncio.Queue[float] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    writers: list[asyncio.StreamWriter] = []

    async def accept_silently(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        accepted.put_nowait(loop.time())

    server = await asyncio.start_server(accept_silently, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    registry = ZooKeeperRegistry(f"127.0.0.1:{port}", connection_timeout_ms=SESSION_MS)
    connecting = asyncio.create_task(registry.connect(int(3000 * SHORTEST_ATTEMPT_S)))
    try:
        async with asyncio.timeout(SESSION_S):
            first = await accepted.get()
            second = await accepted.get()
        assert second - first < 3 * SHORTEST_ATTEMPT_S  # the whole session timeout
    finally:
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        for writer in writers:
            writer.close()
        server.close()
