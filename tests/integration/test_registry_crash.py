"""Repeated SIGKILL during writes on one directory: all acknowledged writes survive."""

import random
from pathlib import Path

from barnabas.world.clock import SystemClock
from barnabas.world.registry.embedded import EmbeddedRegistry
from support import python_process

# Six concurrent writers, so that commits carry several transactions. Each prints a line when a write is acknowledged.
# `round` keeps the names of successive runs distinct.
WRITE = """if True:
    import asyncio, os, sys
    from barnabas.world.clock import SystemClock
    from barnabas.world.registry.embedded import EmbeddedRegistry

    async def write(registry, round, writer):
        session = await registry.connect(6000)
        await session.create(f"/live/{round}-{writer}", ephemeral=True)
        number = 0
        while True:
            path = f"/kept/{round}-{writer}-{number}"
            data = os.urandom(20).hex()
            await session.create(path, data.encode())
            os.write(1, f"{path} {data}\\n".encode())
            number += 1

    async def main(directory, round):
        registry = EmbeddedRegistry(directory, SystemClock())
        session = await registry.connect(6000)
        for path in ("/kept", "/live"):
            if not await session.exists(path):
                await session.create(path)
        assert await session.children("/live") == []
        await asyncio.gather(*(write(registry, round, writer) for writer in range(6)))

    asyncio.run(main(*sys.argv[1:]))
"""
LIVES = 6


async def test_every_acknowledged_write_survives_kill_9(tmp_path: Path) -> None:
    directory = str(tmp_path / "registry")
    chance = random.Random(7)
    acknowledged: dict[str, str] = {}
    for life in range(LIVES):
        writer = python_process.start(WRITE, directory, str(life))
        with writer:
            assert writer.stdout is not None
            assert writer.stderr is not None
            lines = [writer.stdout.readline() for _ in range(chance.randrange(20, 200))]
            writer.kill()
            lines += writer.stdout.readlines()
            assert writer.stderr.read() == ""
        for line in lines:
            path, _, data = line.rstrip("\n").partition(" ")
            acknowledged[path] = data

        registry = EmbeddedRegistry(directory, SystemClock())
        session = await registry.connect(6000)
        found = {
            f"/kept/{name}": (await session.get(f"/kept/{name}"))[0].decode()
            for name in await session.children("/kept")
        }
        assert acknowledged.items() <= found.items()
        # Each of the six writers had at most one write in flight.
        assert len(found) - len(acknowledged) <= 6 * (life + 1)
        assert await session.children("/live") == []
        _, stat = await session.get("/kept")
        assert stat.num_children == len(found)
        await registry.close()
    assert len(acknowledged) > 100
