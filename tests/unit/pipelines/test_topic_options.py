"""Security settings of a pipeline: which options a source gets, and secrets for a server without encryption."""

from __future__ import annotations

import pytest

from barnabas.errors import ConfigError
from barnabas.pipelines.topic_options import added_options, check_secrets
from barnabas.spark.connect import uses_tls

SERVERS = {"kafka.bootstrap.servers": "a:1"}
CLUSTER = {**SERVERS, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.password": "hunter2"}


def test_source_gets_the_options_that_it_lacks() -> None:
    assert added_options(CLUSTER, {"subscribe": "orders"}) == CLUSTER
    assert added_options(CLUSTER, {"kafka.bootstrap.servers": "b:1"}) == {}
    assert added_options(CLUSTER, {"clientconfig": "/client.properties"}) == SERVERS


def test_secrets_are_refused_without_their_values() -> None:
    check_secrets(
        {**SERVERS, "clientconfig": "/f", "kafka.ssl.ca.location": "/ca.pem"}, "flows.py:3"
    )
    with pytest.raises(
        ConfigError, match=r"flows.py:3: kafka.sasl.password .*clientConfig.*use_ssl=true"
    ) as error:
        check_secrets(CLUSTER, "flows.py:3")
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        ("sc://host", False),
        ("sc://host:15002/;use_ssl=true;user_id=a", True),
        ("sc://host/;user_id=a;use_ssl=TRUE", True),
        ("sc://host/;use_ssl=false", False),
        ("sc://host/;user_id=use_ssl=true", False),
    ],
)
def test_address_says_whether_the_connection_is_encrypted(remote: str, expected: bool) -> None:
    assert uses_tls(remote) is expected
