"""Security of the connections of commands to a ZooKeeper.

The settings are those of a broker, in a file: its server.properties can be used. Without a file, the section Client of
the JAAS file in KAFKA_OPTS applies, if there is one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.options import read_properties

if TYPE_CHECKING:
    from barnabas.security.zookeeper import ZooKeeperSettings
    from barnabas.world.registry.zookeeper_security import ZooKeeperSecurity

VARIABLE = "BARNABAS_ZOOKEEPER_CONFIG"

zookeeper_config_option = click.option(
    "--zookeeper-config",
    metavar="FILE",
    envvar=VARIABLE,
    show_envvar=True,
    help="File with the settings of secured ZooKeeper connections, such as server.properties.",
)


def read_command_settings(config: str | None) -> ZooKeeperSettings:
    """Read the file `config`, or the one that BARNABAS_ZOOKEEPER_CONFIG names. Raises ConfigError."""
    # Imported here because `--help` and completion do not need them.
    from barnabas.cluster.zookeeper_client import read_settings
    from barnabas.security.zookeeper import SET_ACL, parse_zookeeper_properties

    path = config or os.environ.get(VARIABLE)
    values = parse_zookeeper_properties(read_properties(Path(path)) if path else {})
    values.pop(SET_ACL, None)
    return read_settings(values)


def command_security(config: str | None = None) -> ZooKeeperSecurity:
    """Return the security of a command. Like Kafka's commands, a command with an identity creates znodes with ACLs.

    Raises ConfigError.
    """
    from msgspec.structs import replace

    from barnabas.cluster.zookeeper_client import build_security

    settings = read_command_settings(config)
    return build_security(replace(settings, set_acl=settings.has_identity))
