"""The work of a Spark sink task without Spark, while the cluster is down."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from barnabas.client.producer import Producer
from barnabas.errors import ConfigError
from barnabas.spark.lookup import connect
from barnabas.spark.options import parse_write
from barnabas.spark.writer import Sink, delivery_settings
from support.broker import BrokerProcess
from tests.faults.raw_client import RawClient

TOPIC = "orders"


def test_sink_task_waits_for_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.address) as client:
            assert client.create_topic(TOPIC) == 0
        options = parse_write({"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": TOPIC})
        broker.kill()
        with (
            connect(delivery_settings(options.client)) as cluster,
            ThreadPoolExecutor(1) as pool,
        ):
            found = pool.submit(Sink(options, Producer(cluster)).topic, TOPIC)
            with pytest.raises(TimeoutError):
                found.result(1.5)
            broker.start()
            assert len(found.result(30).partitions) == 1


def test_sink_task_waits_no_longer_than_delivery_timeout(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        pass
    options = parse_write(
        {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": TOPIC,
            "kafka.delivery.timeout.ms": "1000",
        }
    )
    with connect(delivery_settings(options.client)) as cluster:
        sink = Sink(options, Producer(cluster))
        with pytest.raises(ConfigError, match="no broker reached"):
            sink.topic(TOPIC)
