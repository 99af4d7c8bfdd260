"""Settings with which a user connects to a local cluster, in the form of each client library. Pure.

kafka_settings          Kafka's names: Java clients, Kafka's commands, Barnabas
librdkafka_settings     confluent-kafka, kcat and other clients with librdkafka
kafka_python_arguments  keyword arguments of kafka-python
aiokafka_arguments      keyword arguments of aiokafka
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from barnabas.model import SecurityProtocol
from barnabas.security.sasl.mechanism import LOGIN_MODULES

JAVA_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


class ClientAccess(NamedTuple):
    """How one user reaches a cluster. `repr` does not show the password."""

    servers: str
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    ca: Path | None = None
    """File with the certificate of the authority that signed those of the brokers."""
    identity: Path | None = None
    """File with the key and the certificate of the user; only without a password."""
    mechanism: str = ""
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"ClientAccess({self.servers!r}, {self.protocol.name}, {self.user!r})"


def kafka_settings(access: ClientAccess) -> dict[str, str]:
    """Return the settings under Kafka's names."""
    settings = {
        "bootstrap.servers": access.servers,
        "security.protocol": access.protocol.name,
    }
    if access.ca is not None:
        settings["ssl.truststore.type"] = "PEM"
        settings["ssl.truststore.location"] = str(access.ca)
    if access.identity is not None:
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.location"] = str(access.identity)
    if access.protocol.has_sasl:
        settings["sasl.mechanism"] = access.mechanism
        settings["sasl.jaas.config"] = jaas_line(
            access.mechanism, username=access.user, password=access.password
        )
    return settings


def librdkafka_settings(access: ClientAccess) -> dict[str, str]:
    """Return the settings under librdkafka's names."""
    settings = {
        "bootstrap.servers": access.servers,
        "security.protocol": access.protocol.name,
    }
    if access.ca is not None:
        settings["ssl.ca.location"] = str(access.ca)
    if access.identity is not None:
        settings["ssl.certificate.location"] = str(access.identity)
        settings["ssl.key.location"] = str(access.identity)
    if access.protocol.has_sasl:
        settings["sasl.mechanism"] = access.mechanism
        settings["sasl.username"] = access.user
        settings["sasl.password"] = access.password
    return settings


def kafka_python_arguments(access: ClientAccess) -> dict[str, str]:
    """Return the keyword arguments of a client of kafka-python."""
    arguments = {"bootstrap_servers": access.servers, "security_protocol": access.protocol.name}
    if access.ca is not None:
        arguments["ssl_cafile"] = str(access.ca)
    if access.identity is not None:
        arguments["ssl_certfile"] = str(access.identity)
        arguments["ssl_keyfile"] = str(access.identity)
    return arguments | sasl_arguments(access)


def aiokafka_arguments(access: ClientAccess) -> dict[str, object]:
    """Return the keyword arguments of a client of aiokafka. Reads the certificates."""
    arguments: dict[str, object] = {
        "bootstrap_servers": access.servers,
        "security_protocol": access.protocol.name,
    }
    if access.ca is not None:
        context = ssl.create_default_context(cafile=str(access.ca))
        if access.identity is not None:
            context.load_cert_chain(str(access.identity))
        arguments["ssl_context"] = context
    return arguments | sasl_arguments(access)


def sasl_arguments(access: ClientAccess) -> dict[str, str]:
    if not access.protocol.has_sasl:
        return {}
    return {
        "sasl_mechanism": access.mechanism,
        "sasl_plain_username": access.user,
        "sasl_plain_password": access.password,
    }


def jaas_line(mechanism: str, **options: str) -> str:
    r"""Return a JAAS line.

    >>> jaas_line("PLAIN", username="alice", password='a"b')
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="a\\"b";'
    """
    pairs = "".join(f' {name}="{value.translate(JAVA_ESCAPES)}"' for name, value in options.items())
    return f"{LOGIN_MODULES[mechanism]} required{pairs};"
