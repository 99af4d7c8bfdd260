"""Quix Streams: keeps a total per key in its state, which has a changelog topic, and ends after COUNT."""

import json
import os

from confluent_kafka import Producer
from quixstreams import Application

COUNT = 30
servers = os.environ["SERVERS"]
producer = Producer({"bootstrap.servers": servers})
for number in range(COUNT):
    producer.produce("quix-in", key=f"u{number % 3}", value=json.dumps({"amount": number}))
producer.flush()

app = Application(
    broker_address=servers,
    consumer_group="quix",
    auto_offset_reset="earliest",
    state_dir=os.environ["DIRECTORY"],
)
orders = app.topic("quix-in", value_deserializer="json")
results = app.topic("quix-out", value_serializer="json")


def add(value, state):
    total = state.get("total", 0) + value["amount"]
    state.set("total", total)
    return {"total": total}


app.dataframe(orders).apply(add, stateful=True).to_topic(results)
app.run(count=COUNT, timeout=60)
