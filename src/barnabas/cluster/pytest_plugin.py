"""pytest fixtures: a real cluster for tests, and a topic of its own for each test.

    def test_orders_arrive(barnabas_cluster, barnabas_topic):
        producer = KafkaProducer(bootstrap_servers=barnabas_cluster.bootstrap_servers)
        producer.send(barnabas_topic, b"one order")

`pytest --barnabas-brokers 3`, or `barnabas_brokers = 3` in pytest's configuration, gives the cluster three brokers.

pytest loads this module in every run if Barnabas is installed. The fixtures import the rest of Barnabas when a test
uses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from barnabas.cluster.local import LocalCluster

TOPIC_NAME_MAX = 249


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "number of brokers of barnabas_cluster"
    parser.addini("barnabas_brokers", about, default="1")
    parser.getgroup("barnabas").addoption(
        "--barnabas-brokers", type=int, metavar="N", help=f"{about}; overrides barnabas_brokers"
    )


def pytest_configure(config: pytest.Config) -> None:
    broker_count(config)  # an invalid number ends the run before any test


@pytest.fixture(scope="session")
def barnabas_cluster(pytestconfig: pytest.Config) -> Iterator[LocalCluster]:
    """A cluster of one broker (or --barnabas-brokers), shared by all tests of the run and removed at its end."""
    from barnabas.cluster.local import LocalCluster

    with LocalCluster(brokers=broker_count(pytestconfig)) as cluster:
        yield cluster


def broker_count(config: pytest.Config) -> int:
    """Return the number of brokers from the option or the configuration. Raises UsageError if it is not 1 or more."""
    option: int | None = config.getoption("--barnabas-brokers")
    text = config.getini("barnabas_brokers") if option is None else str(option)
    if not text.isdecimal() or int(text) < 1:
        name = "barnabas_brokers =" if option is None else "--barnabas-brokers"
        raise pytest.UsageError(f"{name} {text}: not a number of brokers; use 1 or more")
    return int(text)


@pytest.fixture
def barnabas_topic(barnabas_cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic with one partition, created for this test and deleted after it."""
    from barnabas.client.admin import Admin, NewTopic
    from barnabas.client.cluster import Cluster
    from barnabas.errors import ErrorCode

    name = unique_topic_name(request.node.name, uuid4().hex[:8])
    with Cluster(barnabas_cluster.bootstrap_servers) as client:
        for outcome in Admin(client).create_topics([NewTopic(name=name, partitions=1)]):
            if outcome.error is not None:
                raise outcome.error
        yield name
        for outcome in Admin(client).delete_topics([name]):
            # A test may delete its topic itself.
            if outcome.error and outcome.error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise outcome.error


def unique_topic_name(test: str, suffix: str) -> str:
    """Return a valid topic name from the name of a test, so that log lines show which test uses the topic.

    test_sum[1-a b] becomes test_sum-1-a-b-5f3a9c01.
    """
    valid = re.sub(r"[^A-Za-z0-9._-]+", "-", test).strip("-.")
    return f"{valid[: TOPIC_NAME_MAX - len(suffix) - 1]}-{suffix}"
