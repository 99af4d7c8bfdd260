"""JAAS files and Java options."""

from __future__ import annotations

import pytest

from barnabas.errors import ConfigError
from barnabas.security.jaas_file import java_properties, parse_section

FILE = """
// brokers
KafkaServer {
  org.example.Plain required
  username="b" password="a}b{;";
};
/* the login to
   ZooKeeper */
Client {
  org.example.Digest required  // one user
  username='kafka'
  password="s3/cr\\"et";
};
"""


def test_section_is_found() -> None:
    client = parse_section(FILE, "Client", "f")
    assert client is not None
    assert client.module == "org.example.Digest"
    assert client.options == {"username": "kafka", "password": 's3/cr"et'}
    server = parse_section(FILE, "KafkaServer", "f")
    assert server is not None
    assert server.options["password"] == "a}b{;"


def test_missing_section_is_none() -> None:
    assert parse_section(FILE, "Other", "f") is None
    assert parse_section("", "Client", "f") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('Client { x.Y required a="hidden; };', "line 1 has a quote"),
        ("Client { x.Y required a=hidden;", "section Client is not closed"),
        ("Client { x.Y required a; };", "section Client: option 1"),
        ("Client { };", "section Client: must be of the form"),
    ],
)
def test_invalid_file_is_rejected_without_its_secrets(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        parse_section(text, "Client", "f")
    assert "hidden" not in str(raised.value)


def test_java_options_are_read() -> None:
    options = '-Da=1 -Xmx1g -Db="x y" -Dc'
    assert java_properties({"KAFKA_OPTS": options}) == {"a": "1", "b": "x y", "c": ""}
    assert java_properties({}) == {}
    with pytest.raises(ConfigError, match="KAFKA_OPTS"):
        java_properties({"KAFKA_OPTS": "-Da='"})
