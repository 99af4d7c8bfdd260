"""FastStream: doubles the numbers of one topic into another, and ends after COUNT."""

import asyncio
import os

from faststream import FastStream
from faststream.kafka import KafkaBroker

COUNT = 20
broker = KafkaBroker(os.environ["SERVERS"].split(","))
app = FastStream(broker)
seen = []


@broker.subscriber("faststream-in", group_id="faststream", auto_offset_reset="earliest")
@broker.publisher("faststream-out")
async def double(message: dict[str, int]) -> dict[str, int]:
    seen.append(message["number"])
    if len(seen) == COUNT:
        app.exit()
    return {"number": 2 * message["number"]}


@app.after_startup
async def send() -> None:
    for number in range(COUNT):
        await broker.publish({"number": number}, "faststream-in")


asyncio.run(app.run())
