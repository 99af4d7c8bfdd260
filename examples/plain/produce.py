"""Produce six orders with keys and a header, and print the place of each.

barnabas up --ephemeral --topic orders:3:1 -- python examples/plain/produce.py
"""

from __future__ import annotations

import json
import os

import barnabas

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP_SERVERS", "localhost:9092")
ORDERS = [("frieda", 12), ("klamm", 30), ("olga", 7), ("frieda", 5), ("klamm", 1), ("olga", 9)]


def main() -> None:
    with barnabas.Producer(SERVERS, compression_type="lz4") as producer:
        deliveries = [
            producer.send(
                "orders", json.dumps({"amount": amount}), key=user, headers={"source": "example"}
            )
            for user, amount in ORDERS
        ]
        producer.flush()
        for (user, amount), delivery in zip(ORDERS, deliveries, strict=True):
            place = delivery.result()
            print(f"{user} {amount}: partition {place.partition}, offset {place.offset}")


if __name__ == "__main__":
    main()
