"""Checks of settings that kafka-configs writes to ZooKeeper itself, with the messages of Kafka 2.8. Without I/O.

topic_settings.py has the checks for topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from barnabas.cli.kafka.config_options import IPS, USERS
from barnabas.cli.kafka.failures import RequestRejected
from barnabas.cli.kafka.quotas_by_protocol import scala_text
from barnabas.cli.kafka.scram_by_protocol import is_scram
from barnabas.cli.kafka.topic_settings import CONFIG_EXCEPTION, parse_setting
from barnabas.config.client_quotas import CLIENT_QUOTAS, IP_QUOTAS
from barnabas.config.dynamic import is_per_broker
from barnabas.config.load import find_setting
from barnabas.config.setting import (
    ANY,
    PASSWORD,
    READ_ONLY,
    Setting,
    at_least,
)

ALLOWED_WHILE_RUNNING = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Broker settings that may be written to ZooKeeper while the broker runs."""


def check_quotas(kind: str, quotas: Mapping[str, str]) -> None:
    """Check all quotas of an entity of type clients, users or ips. Raises RequestRejected."""
    known = IP_QUOTAS if kind == IPS else CLIENT_QUOTAS
    if kind == USERS:
        quotas = {name: text for name, text in quotas.items() if not is_scram(name)}
    unknown = [name for name in quotas if name not in known]
    if unknown:
        raise RequestRejected(
            f"requirement failed: Unknown Dynamic Configuration: {scala_text('Set', unknown)}."
        )
    for name, text in quotas.items():
        check = at_least(0) if kind == IPS else ANY
        parse_setting(Setting(name, known[name].kind, None, check, known[name].doc), text)


def needs_stopped_broker(names: Iterable[str]) -> list[str]:
    """Return the settings that may be written to ZooKeeper only while no broker that uses them runs."""
    return [name for name in names if name not in ALLOWED_WHILE_RUNNING]


def check_broker_settings(settings: Mapping[str, str], *, per_broker: bool) -> None:
    """Check new settings of a broker, or of all brokers if `per_broker` is false. Raises RequestRejected."""
    declared = {name: find_setting(name) for name in settings}
    reject(
        "Cannot update these configs dynamically",
        (name for name, each in declared.items() if each is not None and each.update is READ_ONLY),
    )
    passwords = [
        name for name, each in declared.items() if each is not None and each.kind is PASSWORD
    ]
    if passwords:
        raise RequestRejected(f"passwords cannot be stored in ZooKeeper: {', '.join(passwords)}")
    for name, each in declared.items():
        if each is not None:
            parse_setting(replace(each, name=name), settings[name])
    if not per_broker:
        reject(
            "Cannot update these configs at default cluster level, broker id must be specified",
            (
                name
                for name, each in declared.items()
                if each is not None and is_per_broker(each, has_prefix=each.name != name)
            ),
        )


def reject(message: str, names: Iterable[str]) -> None:
    found = list(names)
    if found:
        raise RequestRejected(f"{message}: {scala_text('Set', found)}", CONFIG_EXCEPTION)
