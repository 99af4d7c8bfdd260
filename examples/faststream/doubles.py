"""FastStream: double the numbers of one topic into another. The program ends after COUNT numbers.

barnabas up --ephemeral -- python examples/faststream/doubles.py
"""

import asyncio
import os

from faststream import FastStream
from faststream.kafka import KafkaBroker

COUNT = 20
broker = KafkaBroker(os.environ.get("BARNABAS_BOOTSTRAP_SERVERS", "localhost:9092").split(","))
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
print("doubled", seen)
