"""Faust: add up amounts per user in a table, after a repartition by user. The program ends after COUNT orders.

barnabas up --ephemeral --topic faust-orders:2:1 --topic faust-totals:1:1 -- python examples/faust/totals.py worker
"""

import os
import sys

import faust

COUNT = 30
SERVERS = os.environ.get("BARNABAS_BOOTSTRAP_SERVERS", "localhost:9092")
app = faust.App(
    "faust",
    broker=[f"kafka://{server}" for server in SERVERS.split(",")],
    store="memory://",
    datadir=os.environ.get("DIRECTORY", "faust-data"),
    topic_partitions=2,
    topic_replication_factor=int(os.environ.get("REPLICAS", "1")),
    web_enabled=False,
)


class Order(faust.Record):
    user: str
    amount: int


orders = app.topic("faust-orders", key_type=str, value_type=Order)
results = app.topic("faust-totals", key_type=str, value_type=int)
totals = app.Table("totals", default=int)
seen = []


@app.agent(orders)
async def sum_orders(stream):
    async for order in stream.group_by(Order.user):
        totals[order.user] += order.amount
        await (await results.send(key=order.user, value=totals[order.user]))
        seen.append(order)
        if len(seen) == COUNT:
            # Faust redirects print to its log.
            print("totals", dict(sorted(totals.items())), file=sys.__stdout__, flush=True)
            app.loop.call_soon(os._exit, 0)


@app.task
async def send():
    for number in range(COUNT):
        await orders.send(key=str(number), value=Order(user=f"u{number % 3}", amount=number))


if __name__ == "__main__":
    app.main()
