"""Faust: sums amounts per user in a table, after a repartition by user, and ends after COUNT."""

import os

import faust

COUNT = 30
app = faust.App(
    "faust",
    broker=[f"kafka://{server}" for server in os.environ["SERVERS"].split(",")],
    store="memory://",
    datadir=os.environ["DIRECTORY"],
    topic_partitions=2,
    topic_replication_factor=3,
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
            app.loop.call_soon(os._exit, 0)


@app.task
async def send():
    for number in range(COUNT):
        await orders.send(key=str(number), value=Order(user=f"u{number % 3}", amount=number))


if __name__ == "__main__":
    app.main()
