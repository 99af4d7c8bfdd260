"""One cluster per file of tests, one topic per test, and real broker processes where they are to die."""

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
    # Records here carry old timestamps on purpose; retention would take them after half a minute.
    with LocalCluster(settings={"log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture
def servers(cluster: LocalCluster) -> str:
    return cluster.bootstrap_servers


@pytest.fixture
def files(cluster: LocalCluster) -> Files:
    """What the broker has written."""
    return Files(cluster.data / "broker-1")


@pytest.fixture
def new_topic(servers: str) -> Callable[..., str]:
    """Makes a topic of its own: `new_topic(partitions=3, **{"retention.ms": "1"})` is its name."""

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
    """A broker in a process of its own, whose port and data outlive it."""
    with BrokerProcess(tmp_path / "data", {"log.retention.ms": "-1"}) as running:
        yield running
