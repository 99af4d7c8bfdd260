"""JAAS files and Java options."""

from __future__ import annotations

import pytest

from barnabas.errors import ConfigError
from barnabas.security.jaas import JaasLine, parse_jaas, parse_jaas_lines
from barnabas.security.jaas_file import (
    FILE_PROPERTY,
    jaas_path,
    java_properties,
    read_sections,
    server_section,
    split_sections,
)

PROPERTIES = {"kafka.password": "a\\b\"c'd\ne", "empty": ""}
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


def parse_section(text: str, section: str, path: str) -> JaasLine | None:
    found = split_sections(text, path, PROPERTIES).get(section)
    return None if found is None else parse_jaas(found, f"{path}, section {section}")


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


@pytest.mark.parametrize("quote", ['"', "'"])
def test_system_properties_are_inserted(quote: str) -> None:
    text = f"A {{ x.Y required user_a={quote}<${{kafka.password}}>{quote}; }};"
    line = parse_section(text, "A", "f")
    assert line is not None
    assert line.options == {"user_a": "<" + PROPERTIES["kafka.password"] + ">"}


@pytest.mark.parametrize("name", ["unknown", "empty", ""])
def test_unknown_system_property_is_an_error(name: str) -> None:
    """Otherwise the text of the file, which more people may read, would be the password."""
    with pytest.raises(ConfigError, match=r"is not set; add -D.*KAFKA_OPTS"):
        parse_section(f'A {{ x.Y required user_a="${{{name}}}"; }};', "A", "f")


def test_java_options_are_read() -> None:
    options = '-Da=1 -Xmx1g -Db="x y" -Dc'
    assert java_properties({"KAFKA_OPTS": options}) == {"a": "1", "b": "x y", "c": ""}
    assert java_properties({}) == {}
    with pytest.raises(ConfigError, match="KAFKA_OPTS"):
        java_properties({"KAFKA_OPTS": "-Da='"})


def test_section_can_have_several_modules() -> None:
    text = split_sections("KafkaServer { x.A required a=1; x.B required b='}'; };", "f", {})
    lines = parse_jaas_lines(text["KafkaServer"], "f")
    assert lines == [JaasLine("x.A", {"a": "1"}), JaasLine("x.B", {"b": "}"})]
    with pytest.raises(ConfigError, match="must be of the form"):
        parse_jaas_lines("x.A required; x.B required", "f")


def test_section_of_a_listener_takes_precedence() -> None:
    sections = {"KafkaServer": "", "inside.KafkaServer": "", "OUTSIDE.KafkaServer": ""}
    assert server_section(sections, "INSIDE") == "inside.KafkaServer"
    assert server_section(sections, "OUTSIDE") == "KafkaServer"
    assert server_section({"Client": ""}, "INSIDE") is None


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("/etc/jaas.conf", "/etc/jaas.conf"),
        ("=/etc/jaas.conf", "/etc/jaas.conf"),
        ("file:/etc/a%20b.conf", "/etc/a b.conf"),
        ("file:///etc/jaas.conf", "/etc/jaas.conf"),
        ("", None),
    ],
)
def test_path_is_that_of_the_java_property(value: str, path: str | None) -> None:
    assert jaas_path({FILE_PROPERTY: value}) == path
    assert jaas_path({}) is None


def test_missing_file_is_an_error_with_its_name() -> None:
    def fail(_: str) -> str:
        raise FileNotFoundError(2, "No such file or directory")

    with pytest.raises(ConfigError, match=r"cannot read /etc/jaas.conf: No such file"):
        read_sections("/etc/jaas.conf", fail, {})
