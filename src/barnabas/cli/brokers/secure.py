"""`barnabas up --secure`: the files that clients need, and the lines to paste for each client."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from barnabas.cluster.client_settings import (
    ClientAccess,
    kafka_python_arguments,
    kafka_settings,
    librdkafka_settings,
)
from barnabas.cluster.local_security import ADMIN_USER, LocalSecurity
from barnabas.errors import ConfigError

DIRECTORY = "security"
PROTOCOL = "SASL_SSL"
INDENT = 16


def secure_data(data: Path, *, is_secure: bool) -> LocalSecurity | None:
    """Return the security of the cluster in a data directory, or None without --secure.

    Raises ConfigError if the cluster was secured by an earlier start: it must not become open by mistake.
    """
    directory = data / DIRECTORY
    if is_secure:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)  # the registry has credentials
        return LocalSecurity(PROTOCOL, directory, acls=True)
    if directory.is_dir():
        why = "this data belongs to a secured cluster; add --secure"
        raise ConfigError("--data", f"{why}, or remove {directory} to open it to everyone")
    return None


def client_config(security: LocalSecurity) -> Path:
    """The file with the settings of the administrator, with Kafka's names."""
    return security.files.directory / "client.properties"


def librdkafka_config(security: LocalSecurity) -> Path:
    return security.files.directory / "librdkafka.conf"


def write_client_files(security: LocalSecurity, servers: str) -> None:
    access = security.access(servers)
    security.files.write_settings(client_config(security), kafka_settings(access))
    security.files.write_librdkafka_settings(
        librdkafka_config(security), librdkafka_settings(access)
    )


def security_lines(security: LocalSecurity, servers: str, topic: str) -> list[str]:
    """Return the lines of the banner: the user, and those to paste for each client.

    They read the password from its file. The password itself is shown only at the start that generates it.
    """
    access = security.access(servers)
    password = security.files.password(ADMIN_USER)
    config = client_config(security)
    about = [f"{ADMIN_USER}, a super user; its password is in", str(password)]
    if security.is_new:
        about.append(f"{access.password}    (shown only at this first start)")
    blocks = {
        "User": about,
        "Barnabas": [
            f"export BARNABAS_CLIENT_CONFIG={shlex.quote(str(config))}",
            f"barnabas topics list -b {servers}",
        ],
        "Kafka's tools": [
            f"kafka-topics.sh --list --bootstrap-server {servers} \\",
            f"  --command-config {shlex.quote(str(config))}",
        ],
        "Java": [
            "var settings = new java.util.Properties();",
            f"settings.load(new java.io.FileReader({json.dumps(str(config))}));",
        ],
        "kcat": [f"kcat -L -F {shlex.quote(str(librdkafka_config(security)))}"],
        "confluent-kafka": confluent_lines(access, password, topic),
        "kafka-python": kafka_python_lines(access, password),
        "aiokafka": aiokafka_lines(access, password),
        "kafkajs": kafkajs_lines(access, password),
    }
    return [line for name, lines in blocks.items() for line in block(name, lines)]


def block(name: str, lines: list[str]) -> list[str]:
    """Return the lines with a name before the first one, after an empty line.

    >>> block("kcat", ["kcat -L", "kcat -C"])
    ['', '  kcat            kcat -L', '                  kcat -C']
    """
    heads = [name, *[""] * (len(lines) - 1)]
    return ["", *(f"  {head:{INDENT}}{line}" for head, line in zip(heads, lines, strict=True))]


def read_in_python(password: Path) -> str:
    return f"open({json.dumps(str(password))}).read().strip()"


def argument_lines(
    arguments: Mapping[str, str], secret: str, expression: str, form: str
) -> list[str]:
    """Return one line per argument. The argument of the secret has an expression instead of its value."""
    return [
        form.format(name=name, value=expression if name == secret else json.dumps(value))
        for name, value in arguments.items()
    ]


def confluent_lines(access: ClientAccess, password: Path, topic: str) -> list[str]:
    return [
        "from confluent_kafka import Producer",
        "producer = Producer({",
        *argument_lines(
            librdkafka_settings(access),
            "sasl.password",
            read_in_python(password),
            '    "{name}": {value},',
        ),
        "})",
        f'producer.produce("{topic}", b"hello"); producer.flush()',
    ]


def kafka_python_lines(access: ClientAccess, password: Path) -> list[str]:
    return [
        "from kafka import KafkaProducer",
        "producer = KafkaProducer(",
        *keyword_lines(kafka_python_arguments(access), password),
        ")",
    ]


def aiokafka_lines(access: ClientAccess, password: Path) -> list[str]:
    arguments = kafka_python_arguments(access)
    ca = arguments.pop("ssl_cafile")
    return [
        "import ssl, aiokafka",
        "producer = aiokafka.AIOKafkaProducer(",
        *keyword_lines(arguments, password),
        f"    ssl_context=ssl.create_default_context(cafile={json.dumps(ca)}),",
        ")",
    ]


def keyword_lines(arguments: Mapping[str, str], password: Path) -> list[str]:
    secret = "sasl_plain_password"
    return argument_lines(arguments, secret, read_in_python(password), "    {name}={value},")


def kafkajs_lines(access: ClientAccess, password: Path) -> list[str]:
    def read(path: Path | None, more: str = "") -> str:
        return f"fs.readFileSync({json.dumps(str(path))}{more})"

    text = ', "utf8"'
    return [
        'const fs = require("fs"), { Kafka } = require("kafkajs")',
        "const kafka = new Kafka({",
        f"  brokers: {json.dumps(access.servers.split(','))},",
        f"  ssl: {{ ca: [{read(access.ca)}] }},",
        "  sasl: {",
        f"    mechanism: {json.dumps(access.mechanism.lower())},",
        f"    username: {json.dumps(access.user)},",
        f"    password: {read(password, text)}.trim(),",
        "  },",
        "})",
    ]
