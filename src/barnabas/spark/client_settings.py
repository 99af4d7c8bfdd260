"""Kafka's own client settings, as `kafka.<name>` among Spark's options. Pure.

Three kinds: those our client acts on, those it knows to be Kafka's but does nothing with, and those it must refuse,
because leaving them without effect would change what is read or written. A name that is in neither list is a slip of
the pen, and nobody is helped by a query that runs without the setting they meant.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.errors import ConfigError
from barnabas.wire.compression import Compression

PREFIX = "kafka."
BOOTSTRAP = "bootstrap.servers"
COMMITTED = "read_committed"
UNCOMMITTED = "read_uncommitted"

READ_WITH = frozenset({
    BOOTSTRAP, "client.id", "request.timeout.ms", "default.api.timeout.ms", "retry.backoff.ms", "retry.backoff.max.ms",
    "fetch.max.wait.ms", "fetch.max.bytes", "max.partition.fetch.bytes", "check.crcs", "metadata.max.age.ms",
    "socket.connection.setup.timeout.ms", "isolation.level",
})  # fmt: skip

WRITTEN_WITH = frozenset({
    BOOTSTRAP, "client.id", "request.timeout.ms", "delivery.timeout.ms", "acks", "compression.type",
    "enable.idempotence", "max.request.size", "buffer.memory", "batch.size", "socket.connection.setup.timeout.ms",
})  # fmt: skip

WITHOUT_EFFECT = frozenset({
    "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter",
    "bootstrap.controllers", "client.dns.lookup", "client.rack", "compression.gzip.level", "compression.lz4.level",
    "compression.zstd.level", "connections.max.idle.ms", "enable.metrics.push", "exclude.internal.topics",
    "fetch.min.bytes", "group.id", "group.instance.id", "group.protocol", "group.remote.assignor",
    "heartbeat.interval.ms", "linger.ms", "max.block.ms",
    "max.in.flight.requests.per.connection", "max.poll.interval.ms", "max.poll.records", "metadata.max.idle.ms",
    "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "partition.assignment.strategy", "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms", "partitioner.class", "partitioner.ignore.keys", "rebalance.timeout.ms",
    "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retries", "sasl.mechanism",
    "security.protocol", "security.providers", "send.buffer.bytes", "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms", "transaction.timeout.ms",
})  # fmt: skip
"""Of consumer, producer and admin client; `ssl.` and `sasl.` settings are Kafka's too and have no effect either."""

KNOWN = READ_WITH | WRITTEN_WITH | WITHOUT_EFFECT

DECODED_HERE = (
    "keys and values arrive as bytes; convert them with Spark, as in value.cast('string')"
)
ENCODED_HERE = "keys and values are written as they are; convert them with Spark beforehand"
REFUSED = {
    "auto.offset.reset": "Spark keeps the offsets; use startingOffsets",
    "enable.auto.commit": "Spark keeps the offsets, in the checkpoint; leave it out",
    "interceptor.classes": "Java classes cannot run here; leave it out",
    "key.deserializer": DECODED_HERE,
    "value.deserializer": DECODED_HERE,
    "key.serializer": ENCODED_HERE,
    "value.serializer": ENCODED_HERE,
    "transactional.id": "this sink does not write transactions; leave it out, it writes at least once",
}


def client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Those of the options that are for the client, by Kafka's names; ConfigError for one that cannot be honoured."""
    settings = {
        option.removeprefix(PREFIX): value.strip()
        for option, value in options.items()
        if option.startswith(PREFIX)
    }
    for name, why in REFUSED.items():
        if name in settings:
            raise ConfigError(PREFIX + name, f"is not supported: {why}")
    if settings.get("security.protocol", "PLAINTEXT").upper() != "PLAINTEXT":
        why = f"{settings['security.protocol']} is not supported yet; use a PLAINTEXT listener"
        raise ConfigError("kafka.security.protocol", why)
    isolation = settings.get("isolation.level", UNCOMMITTED).lower()
    if isolation not in (COMMITTED, UNCOMMITTED):
        why = f"must be {COMMITTED} or {UNCOMMITTED}, not {isolation!r}"
        raise ConfigError("kafka.isolation.level", why)
    if not settings.get(BOOTSTRAP):
        raise ConfigError(PREFIX + BOOTSTRAP, "is missing; set it to host:port of a broker")
    return settings


def is_known(name: str) -> bool:
    return name in KNOWN or name in REFUSED or name.startswith(("ssl.", "sasl."))


def without_effect(settings: Mapping[str, str], honoured: frozenset[str]) -> list[str]:
    """Names to warn of. Groups are not among them: `options.py` says why those have no effect."""
    silent = {"group.id", "security.protocol"}
    return sorted(name for name in settings if name not in honoured and name not in silent)


def number(settings: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    text = settings.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(PREFIX + name, f"must be a whole number, not {text!r}") from None
    if not least <= value <= 0x7FFF_FFFF:
        raise ConfigError(PREFIX + name, f"must be at least {least}, it is {value}")
    return value


def acks_of(settings: Mapping[str, str]) -> int:
    text = settings.get("acks", "all").lower()
    known = {"all": -1, "-1": -1, "1": 1, "0": 0}
    if text not in known:
        raise ConfigError("kafka.acks", f"must be all, 1 or 0, not {text!r}")
    return known[text]


def compression_of(settings: Mapping[str, str]) -> Compression:
    text = settings.get("compression.type", "none").lower()
    known = {compression.name.lower(): compression for compression in Compression}
    if text not in known:
        raise ConfigError("kafka.compression.type", f"must be {', '.join(known)}, not {text!r}")
    return known[text]


def idempotence_of(settings: Mapping[str, str], acks: int) -> bool | None:
    """None leaves it to the producer: on for acks=all, where the cluster offers it."""
    text = settings.get("enable.idempotence")
    if text is None:
        return None
    if text.lower() not in ("true", "false"):
        raise ConfigError("kafka.enable.idempotence", f"must be true or false, not {text!r}")
    wanted = text.lower() == "true"
    if wanted and acks != -1:
        raise ConfigError("kafka.enable.idempotence", "needs kafka.acks=all; change one of the two")
    return wanted
