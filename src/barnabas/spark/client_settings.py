"""Kafka client settings, given as `kafka.<name>` in the Spark options. Pure.

The settings in UNSUPPORTED_SETTINGS are rejected. Other unsupported settings are ignored with a warning. Unknown names
are rejected as typos.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.batch.compression import Compression
from barnabas.client.cluster import Cluster, parse_addresses
from barnabas.errors import ConfigError
from barnabas.security.client_settings import ALIASES, PROTOCOL, SETTINGS, parse_client_security

PREFIX = "kafka."
BOOTSTRAP = "bootstrap.servers"
READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
INT32_MAX = 2**31 - 1

CONSUMER_SETTINGS = frozenset({
    BOOTSTRAP, "client.id", "request.timeout.ms", "default.api.timeout.ms", "retry.backoff.ms", "retry.backoff.max.ms",
    "fetch.max.wait.ms", "fetch.max.bytes", "max.partition.fetch.bytes", "check.crcs", "metadata.max.age.ms",
    "socket.connection.setup.timeout.ms", "isolation.level",
})  # fmt: skip

PRODUCER_SETTINGS = frozenset({
    BOOTSTRAP, "client.id", "request.timeout.ms", "delivery.timeout.ms", "acks", "compression.type",
    "enable.idempotence", "max.request.size", "buffer.memory", "batch.size", "socket.connection.setup.timeout.ms",
})  # fmt: skip

TIMEOUT_SETTINGS = (
    "request.timeout.ms",
    "delivery.timeout.ms",
    "socket.connection.setup.timeout.ms",
)

IGNORED_SETTINGS = frozenset({
    "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter",
    "bootstrap.controllers", "client.dns.lookup", "client.rack", "compression.gzip.level", "compression.lz4.level",
    "compression.zstd.level", "connections.max.idle.ms", "enable.metrics.push", "exclude.internal.topics",
    "fetch.min.bytes", "group.id", "group.instance.id", "group.protocol", "group.remote.assignor",
    "heartbeat.interval.ms", "linger.ms", "max.block.ms",
    "max.in.flight.requests.per.connection", "max.poll.interval.ms", "max.poll.records", "metadata.max.idle.ms",
    "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "partition.assignment.strategy", "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms", "partitioner.class", "partitioner.ignore.keys", "rebalance.timeout.ms",
    "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retries",
    "security.providers", "send.buffer.bytes", "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms", "transaction.timeout.ms",
})  # fmt: skip
"""Settings that are ignored with a warning, like all names that begin with `ssl.` or `sasl.`."""

SECURITY_SETTINGS = frozenset({*SETTINGS, *ALIASES})
KNOWN_SETTINGS = CONSUMER_SETTINGS | PRODUCER_SETTINGS | IGNORED_SETTINGS | SECURITY_SETTINGS

NO_DESERIALIZERS = (
    "keys and values are read as bytes; convert them with Spark, as in value.cast('string')"
)
NO_SERIALIZERS = "keys and values are written unchanged; convert them with Spark before writing"
UNSUPPORTED_SETTINGS = {
    "auto.offset.reset": "Spark keeps the offsets; use startingOffsets",
    "enable.auto.commit": "Spark keeps the offsets in its checkpoint; remove this option",
    "interceptor.classes": "Java classes cannot run here; remove this option",
    "key.deserializer": NO_DESERIALIZERS,
    "value.deserializer": NO_DESERIALIZERS,
    "key.serializer": NO_SERIALIZERS,
    "value.serializer": NO_SERIALIZERS,
    "transactional.id": "set exactlyOnce to true instead; the sink chooses its transactional ids",
}


def parse_client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return the client settings among the options, without the prefix. Raises ConfigError for an unsupported one."""
    settings = {
        option.removeprefix(PREFIX): value.strip()
        for option, value in options.items()
        if option.startswith(PREFIX)
    }
    for name, why in UNSUPPORTED_SETTINGS.items():
        if name in settings:
            raise ConfigError(PREFIX + name, f"is not supported: {why}")
    try:
        parse_client_security(settings)
    except ConfigError as error:
        raise ConfigError(PREFIX + error.key, error.why) from None
    isolation = settings.get("isolation.level", READ_UNCOMMITTED)
    if isolation.lower() not in (READ_COMMITTED, READ_UNCOMMITTED):
        why = f"must be {READ_COMMITTED} or {READ_UNCOMMITTED}, not {isolation!r}"
        raise ConfigError("kafka.isolation.level", why)
    if not settings.get(BOOTSTRAP):
        raise ConfigError(PREFIX + BOOTSTRAP, "is missing; set it to host:port of a broker")
    try:
        # Kafka's clients reject an address without a port too.
        parse_addresses(settings[BOOTSTRAP], default_port="")
    except ConfigError as error:
        raise ConfigError(PREFIX + BOOTSTRAP, error.why) from None
    for name in TIMEOUT_SETTINGS:
        integer_setting(settings, name, 1)
    return settings


def cluster_settings(cluster: Cluster) -> dict[str, str]:
    """Return the settings with which another client reaches the same cluster."""
    security = cluster.security
    # The protocol is always given: without security settings, those of the environment would apply.
    return {BOOTSTRAP: cluster.servers, **security.settings, PROTOCOL: security.protocol.name}


def cluster_options(cluster: Cluster) -> dict[str, str]:
    """Return the same settings as options of the source and the sink."""
    return {PREFIX + name: value for name, value in cluster_settings(cluster).items()}


def is_known(name: str) -> bool:
    return (
        name in KNOWN_SETTINGS or name in UNSUPPORTED_SETTINGS or name.startswith(("ssl.", "sasl."))
    )


def ignored_settings(settings: Mapping[str, str], supported: frozenset[str]) -> list[str]:
    """Return the settings that have no effect, for a warning: all except the `supported` ones."""
    # options.py has another warning for group.id.
    return sorted(settings.keys() - supported - SECURITY_SETTINGS - {"group.id"})


def integer_setting(settings: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    """Parse a setting, given without prefix, between `least` and INT32_MAX. Raises ConfigError."""
    text = settings.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(PREFIX + name, f"must be an integer, not {text!r}") from None
    if not least <= value <= INT32_MAX:
        raise ConfigError(PREFIX + name, f"must be between {least} and {INT32_MAX}, not {value}")
    return value


def client_id(settings: Mapping[str, str]) -> str:
    return settings.get("client.id", "barnabas-spark")


def reads_committed(settings: Mapping[str, str]) -> bool:
    return settings.get("isolation.level", "").lower() == READ_COMMITTED


def parse_acks(settings: Mapping[str, str]) -> int:
    text = settings.get("acks", "all")
    acks = {"all": -1, "-1": -1, "1": 1, "0": 0}.get(text.lower())
    if acks is None:
        raise ConfigError("kafka.acks", f"must be all, 1 or 0, not {text!r}")
    return acks


def parse_compression(settings: Mapping[str, str]) -> Compression:
    text = settings.get("compression.type", "none")
    known = {compression.name.lower(): compression for compression in Compression}
    if text.lower() not in known:
        raise ConfigError("kafka.compression.type", f"must be {', '.join(known)}, not {text!r}")
    return known[text.lower()]


def parse_idempotence(settings: Mapping[str, str], acks: int) -> bool | None:
    """Return None if it is not set: the producer is then idempotent if acks=all and the cluster supports it."""
    text = settings.get("enable.idempotence")
    if text is None:
        return None
    if text.lower() not in ("true", "false"):
        raise ConfigError("kafka.enable.idempotence", f"must be true or false, not {text!r}")
    is_enabled = text.lower() == "true"
    if is_enabled and acks != -1:
        raise ConfigError("kafka.enable.idempotence", "needs kafka.acks=all; change one of the two")
    return is_enabled
