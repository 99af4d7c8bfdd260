"""JAAS files: named sections with a login module each.

    Client {
      org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="…";
    };

A Java program gets the path of its file with `-Djava.security.auth.login.config=…`. Kafka's scripts pass the options in
the environment variable KAFKA_OPTS. jaas.py explains the content of a section.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from barnabas.errors import ConfigError
from barnabas.security.jaas import JaasLine, parse_jaas

JAVA_OPTIONS_VARIABLE = "KAFKA_OPTS"
FILE_PROPERTY = "java.security.auth.login.config"
FILE_CHARACTERS_MAX = 1 << 20

TOKEN = re.compile(
    r"""
    (?P<comment> //[^\n]* | /\*.*?\*/ )
    | (?P<quoted> "(?: [^"\\\n] | \\[^\n] )*" | '(?: [^'\\\n] | \\[^\n] )*' )
    | (?P<mark> [{};] )
    | (?P<other> [^{};"'/]+ | / )
    """,
    re.VERBOSE | re.DOTALL,
)


def java_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the system properties that KAFKA_OPTS sets. Raises ConfigError.

    >>> java_properties({"KAFKA_OPTS": "-Xmx1g -Djava.security.auth.login.config='/etc/a b.conf'"})
    {'java.security.auth.login.config': '/etc/a b.conf'}
    """
    text = environment.get(JAVA_OPTIONS_VARIABLE, "")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(JAVA_OPTIONS_VARIABLE, f"cannot be split into options: {error}") from None
    options = (word[2:].partition("=") for word in words if word.startswith("-D"))
    return {name: value for name, _, value in options}


def parse_section(text: str, section: str, path: str) -> JaasLine | None:
    """Return the login module of a section, or None if there is no such section. Raises ConfigError.

    `path` is the name of the file, for errors.

    >>> parse_section("A { x.Y required a=1; }; B { x.Z required; };", "B", "f")
    JaasLine('x.Z', [])
    """
    body = split_sections(text, path).get(section)
    return None if body is None else parse_jaas(body, f"{path}, section {section}")


def split_sections(text: str, path: str) -> dict[str, str]:
    """Return the text of each section."""
    if len(text) > FILE_CHARACTERS_MAX:
        raise ConfigError(path, f"has more than {FILE_CHARACTERS_MAX} characters")
    sections: dict[str, str] = {}
    name, outside, inside = "", "", ""
    is_inside = False
    at = 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:
            line = text.count("\n", 0, at) + 1
            raise ConfigError(path, f"line {line} has a quote that is not closed")
        at = found.end()
        part = found[0]
        if found.lastgroup == "comment":
            inside += " "
        elif part == "{" and not is_inside:
            name, outside, inside, is_inside = outside.strip(), "", "", True
        elif part == "}" and is_inside:
            sections.setdefault(name, inside)
            is_inside = False
        elif is_inside:
            inside += part
        elif part != ";":
            outside += part
    if is_inside:
        raise ConfigError(path, f"section {name} is not closed: add }};")
    return sections
