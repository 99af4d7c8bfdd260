"""`barnabas zookeeper-security-migration`: sets or removes the ACLs of znodes, with the options of Kafka's command."""

from __future__ import annotations

from collections.abc import Sequence

import click

from barnabas.cli.kafka.command import OK, KafkaCommand, run_kafka_command
from barnabas.cli.kafka.failures import WrongUsage
from barnabas.cli.kafka.options import COMMON_OPTIONS, Option, ParsedOptions
from barnabas.cli.registry.acls import TIMEOUT_MS, change_acls

ABOUT = (
    "ZooKeeper Migration Tool Help. This tool updates the ACLs of znodes as part of the process of"
    " setting up ZooKeeper authentication."
)
DEFAULT_CONNECT = "localhost:2181"
SECURE, UNSECURE = "secure", "unsecure"

OPTIONS = (
    *(each for each in COMMON_OPTIONS if each.name in ("help", "version")),
    Option("zookeeper.acl", "secure: only the brokers may write. unsecure: everyone may. Required.", "acl"),
    Option("zookeeper.connect", f"ZooKeeper of the cluster. Default: {DEFAULT_CONNECT}.", "host:port/chroot"),
    Option("zookeeper.session.timeout", f"Session timeout in milliseconds. Default: {TIMEOUT_MS}.", "ms"),
    Option("zookeeper.connection.timeout", f"Connection timeout in milliseconds. Default: {TIMEOUT_MS}.", "ms"),
    Option("enable.path.check", "No effect: a path without a cluster is always rejected."),
    Option("zk-tls-config-file", "File with zookeeper.ssl.* settings, for TLS connections to ZooKeeper.", "file"),
)  # fmt: skip


@click.command("zookeeper-security-migration", cls=KafkaCommand)
def zookeeper_security_migration(arguments: Sequence[str]) -> None:
    code = run_kafka_command(arguments, known=OPTIONS, about=ABOUT, brief=ABOUT, run=run_migration)
    raise click.exceptions.Exit(code)


def run_migration(options: ParsedOptions) -> int:
    acl = options.value("zookeeper.acl")
    if acl not in (SECURE, UNSECURE):
        raise WrongUsage(ABOUT)
    change_acls(
        options.value("zookeeper.connect") or DEFAULT_CONNECT,
        options.value("zk-tls-config-file"),
        is_secure=acl == SECURE,
        session_timeout_ms=milliseconds(options, "zookeeper.session.timeout"),
        connection_timeout_ms=milliseconds(options, "zookeeper.connection.timeout"),
    )
    return OK


def milliseconds(options: ParsedOptions, name: str) -> int:
    text = options.value(name)
    if text is None:
        return TIMEOUT_MS
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise WrongUsage(f"Cannot parse argument '{text}' of option {name}")
    return int(text)
