"""Tests of the application. The fixtures come with Barnabas: a real cluster, and a topic for each test."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from invoices import write_invoices

import barnabas
from barnabas import LocalCluster


def produce(servers: str, topic: str, *amounts: float) -> None:
    with barnabas.Producer(servers) as producer:
        for amount in amounts:
            producer.send(topic, json.dumps({"amount": amount}), key="frieda")


def read(servers: str, topic: str) -> list[dict[str, float]]:
    with barnabas.Consumer(servers, topic, auto_offset_reset="earliest") as consumer:
        return [json.loads(record.value or b"") for record in consumer.read_to_end()]


def test_every_order_gets_an_invoice_with_tax(barnabas_fresh_cluster: LocalCluster) -> None:
    servers = barnabas_fresh_cluster.bootstrap_servers
    orders = barnabas_fresh_cluster.create_topic("orders")
    invoices = barnabas_fresh_cluster.create_topic("invoices")
    produce(servers, orders, 10, 5.5)
    write_invoices(servers, orders, invoices, limit=2)
    assert read(servers, invoices) == [{"order": 0, "total": 12.0}, {"order": 1, "total": 6.6}]

    produce(servers, orders, 1)
    write_invoices(servers, orders, invoices, limit=1)
    assert read(servers, invoices)[2:] == [{"order": 2, "total": 1.2}], "it continues after order 1"


@pytest.mark.barnabas(brokers=3, settings={"default.replication.factor": 3})
def test_no_order_is_lost_when_a_broker_crashes(
    barnabas_cluster: LocalCluster, barnabas_topics: Callable[..., str]
) -> None:
    servers = barnabas_cluster.bootstrap_servers
    orders, invoices = barnabas_topics("orders", replicas=3), barnabas_topics(replicas=3)
    produce(servers, orders, *range(10))
    write_invoices(servers, orders, invoices, limit=10)
    barnabas_cluster.kill(1)
    produce(servers, orders, *range(10))
    write_invoices(servers, orders, invoices, limit=10)
    assert [invoice["order"] for invoice in read(servers, invoices)] == list(range(20))
