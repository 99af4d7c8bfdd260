"""A web service on a topic. POST /orders produces a record, GET /totals shows what the service has consumed.

barnabas up --ephemeral --topic orders:3:1 -- python examples/fastapi/orders.py
curl -X POST localhost:8000/orders -H 'content-type: application/json' -d '{"user": "olga", "amount": 7}'
curl localhost:8000/totals

The service reads the whole topic when it starts, so its totals survive a restart.
"""

import asyncio
import os
from contextlib import asynccontextmanager

import uvicorn
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from fastapi import FastAPI
from pydantic import BaseModel

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP_SERVERS", "localhost:9092")
TOPIC = "orders"


class Order(BaseModel):
    user: str
    amount: int


totals: dict[str, int] = {}


async def add_orders(consumer: AIOKafkaConsumer) -> None:
    async for record in consumer:
        order = Order.model_validate_json(record.value)
        totals[order.user] = totals.get(order.user, 0) + order.amount


@asynccontextmanager
async def lifespan(app: FastAPI):
    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=SERVERS, auto_offset_reset="earliest")
    async with AIOKafkaProducer(bootstrap_servers=SERVERS) as producer, consumer:
        app.state.producer = producer
        reading = asyncio.create_task(add_orders(consumer))
        yield
        reading.cancel()


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def create_order(order: Order) -> dict[str, int]:
    value = order.model_dump_json().encode()
    sent = await app.state.producer.send_and_wait(TOPIC, value, key=order.user.encode())
    return {"partition": sent.partition, "offset": sent.offset}


@app.get("/totals")
async def show_totals() -> dict[str, int]:
    return totals


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))
