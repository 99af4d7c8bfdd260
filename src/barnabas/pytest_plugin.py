"""pytest fixtures: a real cluster for tests, and a topic of its own for each test.

    def test_orders_arrive(barnabas_cluster, barnabas_topic):
        producer = KafkaProducer(bootstrap_servers=barnabas_cluster.bootstrap_servers)
        producer.send(barnabas_topic, b"one order")

pytest loads this in every run where Barnabas is installed; a run that uses no fixture pays for nothing more than
this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from barnabas import LocalCluster

TOPIC_NAME_MAX = 249


@pytest.fixture(scope="session")
def barnabas_cluster() -> Iterator[LocalCluster]:
    """A cluster of one broker, shared by the whole run and gone with everything in it at its end."""
    from barnabas import LocalCluster

    with LocalCluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def barnabas_topic(barnabas_cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic made for this test, with one partition, and deleted after it."""
    from barnabas.client.admin import Admin, NewTopic
    from barnabas.client.cluster import Cluster
    from barnabas.errors import ErrorCode

    name = topic_name(request.node.name, uuid4().hex[:8])
    with Cluster(barnabas_cluster.bootstrap_servers) as client:
        for outcome in Admin(client).create_topics([NewTopic(name=name, partitions=1)]):
            if outcome.error is not None:
                raise outcome.error
        yield name
        for outcome in Admin(client).delete_topics([name]):
            # A test may delete its topic itself.
            if outcome.error and outcome.error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise outcome.error


def topic_name(test: str, mark: str) -> str:
    """The test's name, as far as Kafka allows it, so that a log line says whose topic it is.

    test_sum[1-a b] becomes test_sum-1-a-b-5f3a9c01.
    """
    legal = re.sub(r"[^A-Za-z0-9._-]+", "-", test).strip("-.")
    return f"{legal[: TOPIC_NAME_MAX - len(mark) - 1]}-{mark}"
