"""Fixtures: one cluster per test module, one topic per test, and broker processes for the tests that kill one."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from barnabas import LocalCluster
from support.broker import BrokerProcess
from tests.compatibility.files import Files
from tests.compatibility.raw import Raw

NUMBERS = count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    # Records here carry old timestamps on purpose. With retention, they would be deleted after half a minute.
    with LocalCluster(settings={"log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture
def servers(cluster: LocalCluster) -> str:
    return cluster.bootstrap_servers


@pytest.fixture
def files(cluster: LocalCluster) -> Files:
    """The broker's log directory."""
    return Files(cluster.data / "broker-1")


@pytest.fixture
def new_topic(servers: str) -> Callable[..., str]:
    """Create a topic and return its name: `new_topic(partitions=3, **{"retention.ms": "1"})`."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"topic-{next(NUMBERS)}"
        with Raw(servers) as raw:
            raw.create_topic(name, partitions=partitions, configs=configs)
        return name

    return make


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    """A topic with one partition."""
    return new_topic()


@pytest.fixture
def raw(servers: str) -> Iterator[Raw]:
    with Raw(servers) as connection:
        yield connection


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker in its own process. Its port and data survive restarts."""
    with BrokerProcess(tmp_path / "data", {"log.retention.ms": "-1"}) as running:
        yield running
