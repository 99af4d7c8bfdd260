"""Secrets of a cluster are not sent to a Spark Connect server without encryption."""

from __future__ import annotations

import pytest

from barnabas.cli.spark.job_session import job_session
from barnabas.cli.spark.session import check_secrets, spark_session
from barnabas.client.cluster import Cluster
from barnabas.errors import ConfigError
from barnabas.security.client_sources import load_security

LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ada",
    "sasl.password": "hidden",
}
SERVER = "sc://host:15002"
REFUSED = r"^--master: sasl\.password would be sent to the server without encryption; add /;use_ssl"


def cluster(settings: dict[str, str]) -> Cluster:
    return Cluster("b:9092", security=load_security(settings))


def test_secrets_of_any_cluster_need_encryption() -> None:
    open_one, secured = cluster({}), cluster(LOGIN)
    with pytest.raises(ConfigError, match=REFUSED) as caught:
        check_secrets(SERVER, open_one, secured)
    assert "hidden" not in str(caught.value)
    check_secrets(SERVER, open_one)
    for master in (None, "local[2]", "spark://host:7077", f"{SERVER}/;use_ssl=true"):
        check_secrets(master, secured)


def test_sessions_are_refused_before_they_connect() -> None:
    with pytest.raises(ConfigError, match=REFUSED):
        job_session(SERVER, cluster(LOGIN), "archive orders")
    session = spark_session(SERVER, cluster({}), cluster(LOGIN), app_name="mirror", short=True)
    with pytest.raises(ConfigError, match=REFUSED), session:
        pass
