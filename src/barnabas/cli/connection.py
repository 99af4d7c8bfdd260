"""Options with which commands connect to a cluster: its brokers, and Kafka's client settings for TLS and logins.

A setting comes from -X, the file of --command-config, the environment (BARNABAS_SASL_PASSWORD, for example), the file
$BARNABAS_CLIENT_CONFIG, or else the file of the profile. The settings of a profile apply only to its own brokers: a
password must not go to other ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from barnabas.cli.options import completions, servers_option
from barnabas.client.blocking import REQUEST_TIMEOUT_S
from barnabas.client.cluster import Cluster
from barnabas.errors import ConfigError
from barnabas.security.client_settings import (
    ALIASES,
    SECRET_SETTINGS,
    SETTINGS,
    ClientSecurity,
    merge_settings,
    parse_assignment,
    parse_client_security,
)
from barnabas.security.client_sources import (
    CONFIG_VARIABLE,
    load_security,
    read_environment,
    read_settings_file,
)

FILE_KEY = f"{__name__}.file"
ASSIGNMENTS_KEY = f"{__name__}.assignments"
"""Keys of click's Context.meta, under which the options are kept."""


def keep_value(key: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
        context.meta[key] = value

    return callback


def complete_settings(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    names = sorted({*SETTINGS, *ALIASES} - SECRET_SETTINGS)
    return completions([f"{name}=" for name in names], incomplete)


command_config_option = click.option(
    "--command-config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    expose_value=False,
    callback=keep_value(FILE_KEY),
    help=f"Kafka client settings for TLS and logins; default: ${CONFIG_VARIABLE}, or the profile's file.",
)
setting_option = click.option(
    "-X",
    "client_settings",
    multiple=True,
    metavar="NAME=VALUE",
    expose_value=False,
    callback=keep_value(ASSIGNMENTS_KEY),
    shell_complete=complete_settings,
    help="One client setting, such as security.protocol=SSL. Repeatable. Not for passwords.",
)


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --bootstrap-servers, --command-config and -X. Only the first is passed to the command; see `connect`."""
    for option in (setting_option, command_config_option, servers_option):
        command = option(command)
    return command


def connect(servers: str, *, timeout_s: float = REQUEST_TIMEOUT_S) -> Cluster:
    """Return a client with the security settings of the current command. Raises ConfigError."""
    context = click.get_current_context(silent=True)
    return Cluster(servers, timeout_s=timeout_s, security=find_security(servers, context))


def connect_with_file(servers: str, file: Path | None, *, timeout_s: float) -> Cluster:
    """Return a client with the settings of a file, or else of the environment. Raises ConfigError.

    Without a mixture of both, the password for one cluster cannot go to another.
    """
    return Cluster(servers, timeout_s=timeout_s, security=load_security(file))


def find_security(servers: str, context: click.Context | None) -> ClientSecurity:
    """Return the security settings for these brokers. Raises ConfigError."""
    file = None if context is None else context.meta.get(FILE_KEY)
    assignments = () if context is None else context.meta.get(ASSIGNMENTS_KEY) or ()
    given = dict(parse_assignment(text) for text in assignments)
    layers = [
        read_environment(os.environ, default_file=profile_file(servers)),
        {} if file is None else read_settings_file(file),
        given,
    ]
    return parse_client_security(merge_settings(layers))


def profile_file(servers: str) -> str | None:
    """Return the file with the settings of the profile in use, if these are its brokers."""
    from barnabas.cli.setup.profiles import profile_in_use

    try:
        found = profile_in_use()
    except ConfigError:  # reported already, if the brokers come from a profile
        return None
    return None if found is None or found.servers != servers else found.command_config


def config_text(context: click.Context) -> str:
    """Return ` --command-config FILE` for commands in hints, or an empty text."""
    file = context.meta.get(FILE_KEY)
    return "" if file is None else f" --command-config {file}"
