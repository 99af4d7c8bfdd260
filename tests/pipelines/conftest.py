"""A cluster and a Spark Connect server for all tests of pipelines: every start of Spark takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas import LocalCluster
from barnabas.pipelines.server_process import ServerProcess
from tests.pipelines.test_pipeline_command import Shell, descendants
from tests.processes import assert_ended, is_java
from tests.security.logins import sasl_servers


@pytest.fixture(scope="package")
def cluster() -> Iterator[LocalCluster]:
    """One broker with a listener for each shell."""
    settings = {
        "auto.create.topics.enable": "false",
        "listeners": "SASL_SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    }
    with LocalCluster(brokers=1, security="SASL_SSL", settings=settings) as running:
        yield running


@pytest.fixture(scope="package")
def shell(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory, trained_spark: str
) -> Shell:
    found = Shell(tmp_path_factory.mktemp("pipelines"), sasl_servers(cluster, "PLAINTEXT"))
    for topic in ("lines", "upper", "other"):
        assert found.run("topics", "create", topic)[0] == 0
    return found


@pytest.fixture(scope="package")
def remote(shell: Shell) -> Iterator[str]:
    """A Connect server that several commands use, with --remote."""
    arguments = {
        "master": "local[2]",
        "app_name": "tests",
        "bootstrap_servers": shell.servers,
        "catalog": str(shell.directory / "catalog"),
        "config": {},
        "short": True,
    }
    server = ServerProcess(arguments, shell.directory / "server.log")
    yield server.wait_ready()
    java = descendants(server.process)
    assert any(is_java(child) for child in java)
    server.stop()
    assert_ended(java)
