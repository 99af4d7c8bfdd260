"""A real ZooKeeper for tests: one server per test run, and one chroot per test.

Without Java, its tests are skipped, but fail in CI.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from barnabas.java.find import NoJava, find_java
from barnabas.world.registry.zookeeper import ZooKeeperSession


@pytest.fixture(scope="session")
def shared_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServers]:
    """The shared server. Do not kill or pause it: many tests use it."""
    require_java()
    servers = ZooKeeperServers(tmp_path_factory.mktemp("zookeeper"))
    servers.start()
    yield servers
    servers.stop()


@pytest.fixture
def chroot(shared_zookeeper: ZooKeeperServers) -> str:
    """A connect string with an empty chroot."""
    return f"{shared_zookeeper.connect_string}/test-{uuid4().hex}"


def require_java() -> None:
    try:
        find_java("ZooKeeper")
    except NoJava as error:
        why = f"no Java to run ZooKeeper: {error.why}"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)


def expire(session: ZooKeeperSession) -> None:
    """Expire a session like the server does: another client with its id and password closes it.

    The server replaces the first connection by the second. The session must not reconnect before it is closed.
    """
    timeout_s, session.handler.connect_timeout_s = session.handler.connect_timeout_s, 0.0
    twin = KazooClient(hosts=session.registry.hosts, client_id=session.credentials)
    twin.start()
    twin.stop()
    twin.close()
    session.handler.connect_timeout_s = timeout_s
