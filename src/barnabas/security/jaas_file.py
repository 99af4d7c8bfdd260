"""JAAS files: named sections with login modules.

    KafkaServer {
      org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="…";
      org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="…";
    };
    Client {
      org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="…";
    };

A Java program gets the path of its file with `-Djava.security.auth.login.config=…`. Kafka's scripts pass the options in
the environment variable KAFKA_OPTS. jaas.py explains the content of a section. As in Java, ${name} in a quoted value is
replaced by the system property.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

from barnabas.errors import ConfigError, reason

JAVA_OPTIONS_VARIABLE = "KAFKA_OPTS"
FILE_PROPERTY = "java.security.auth.login.config"
FILE_CHARACTERS_MAX = 1 << 20
SERVER_SECTION = "KafkaServer"
"""Section of all listeners with SASL. The section of one listener is `<listener>.KafkaServer`, in lower case."""

ReadText = Callable[[str], str]
PROPERTY = re.compile(r"\$\{([^{}]*)\}")

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


def jaas_path(options: Mapping[str, str]) -> str | None:
    """Return the path of the JAAS file that Java's system properties name: a path or a `file:` URL.

    A second `=` makes Java ignore other files, which Barnabas does not have.

    >>> jaas_path({FILE_PROPERTY: "=file:/etc/jaas.conf"})
    '/etc/jaas.conf'
    """
    text = options.get(FILE_PROPERTY, "").removeprefix("=")
    return (unquote(urlsplit(text).path) if text.startswith("file:") else text) or None


def read_sections(path: str, read_text: ReadText, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the text of each section of a file. `properties` are Java's system properties. Raises ConfigError."""
    try:
        content = read_text(path)
    except OSError as error:
        why = f"cannot read {path}: {error.strerror or reason(error)}"
        raise ConfigError(FILE_PROPERTY, why) from error
    return split_sections(content, path, properties)


def server_section(sections: Mapping[str, str], listener: str) -> str | None:
    """Return the name of the section for a listener: its own one, or that of all listeners. None if there is none.

    >>> server_section({"KafkaServer": "", "external.KafkaServer": ""}, "EXTERNAL")
    'external.KafkaServer'
    """
    names = (f"{listener.lower()}.{SERVER_SECTION}", SERVER_SECTION)
    return next((name for name in names if name in sections), None)


def split_sections(text: str, path: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the text of each section. `path` is the name of the file, for errors. Raises ConfigError.

    >>> split_sections('A { x.Y required b="${c}"; }; B { };', "f", {"c": "d"})
    {'A': ' x.Y required b="d"; ', 'B': ' '}
    """
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
        elif found.lastgroup == "quoted" and is_inside:
            inside += expand_properties(part, path, properties)
        elif is_inside:
            inside += part
        elif part != ";":
            outside += part
    if is_inside:
        raise ConfigError(path, f"section {name} is not closed: add }};")
    return sections


def expand_properties(quoted: str, path: str, properties: Mapping[str, str]) -> str:
    """Replace each ${name} in a quoted value. Raises ConfigError for an unknown property: it may be a password."""
    quote = quoted[0]

    def value_of(found: re.Match[str]) -> str:
        name = found[1]
        value = properties.get(name)
        if not value:
            why = f"${{{name}}} is not set; add -D{name}=… to the environment variable {JAVA_OPTIONS_VARIABLE}"
            raise ConfigError(path, why)
        escaped = value.replace("\\", "\\\\").replace(quote, "\\" + quote)
        return escaped.replace("\n", "\\n").replace("\r", "\\r")

    return PROPERTY.sub(value_of, quoted)
