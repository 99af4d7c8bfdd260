"""A small application: it writes an invoice for every order."""

from __future__ import annotations

import json

import barnabas


def write_invoices(servers: str, orders: str, invoices: str, *, limit: int | None = None) -> None:
    """Write an invoice for each order that has none yet. Ends after `limit` orders; without it, never."""
    count = 0
    with barnabas.Client(servers) as client:
        producer = client.producer()
        consumer = client.group_consumer(
            "invoices", [orders], auto_offset_reset="earliest", enable_auto_commit=False
        )
        for order in consumer:
            producer.send(invoices, invoice_of(order), key=order.key).result()
            consumer.commit(order)  # only now: after a crash, the order is read again
            count += 1
            if count == limit:
                return


def invoice_of(order: barnabas.ConsumedRecord) -> str:
    """Return the invoice of an order, as JSON. It has 20 % tax."""
    amount = json.loads(order.value or b"{}")["amount"]
    return json.dumps({"order": order.offset, "total": round(amount * 1.2, 2)})
