"""A producer and a group member on one event loop, with aiokafka: its client is made for asyncio.

barnabas up --ephemeral --topic numbers:2:1 -- python examples/asyncio/squares.py
"""

from __future__ import annotations

import asyncio
import os

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP_SERVERS", "localhost:9092")
TOPIC, COUNT = "numbers", 10


async def produce() -> None:
    async with AIOKafkaProducer(bootstrap_servers=SERVERS) as producer:
        for number in range(COUNT):
            await producer.send(TOPIC, str(number).encode())


async def consume() -> list[int]:
    consumer = AIOKafkaConsumer(
        TOPIC, bootstrap_servers=SERVERS, group_id="squares", auto_offset_reset="earliest"
    )
    squares = []
    async with consumer:
        async for record in consumer:
            squares.append(int(record.value) ** 2)
            if len(squares) == COUNT:
                break
    return squares


async def main() -> None:
    squares, _ = await asyncio.gather(consume(), produce())
    print(sorted(squares))


if __name__ == "__main__":
    asyncio.run(main())
