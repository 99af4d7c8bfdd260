"""Commands that talk to a cluster: their common options, their connection, and completion of names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from typing import Any

import click
from click.shell_completion import CompletionItem

from barnabas.cli.connection import config_text, connect, connection_options, find_security
from barnabas.cli.options import (
    COMPLETION_TIMEOUT_S,
    completions,
    default_servers,
    output_option,
    servers_text,
    timeout_option,
)
from barnabas.client.cluster import Cluster
from barnabas.errors import BarnabasError


def cluster_command(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the connection, --timeout and --output. The command gets a `Cluster` as its first argument."""

    @connection_options
    @timeout_option
    @output_option
    @wraps(command)
    def run(bootstrap_servers: str, timeout_s: float, **options: Any) -> None:
        with connect(bootstrap_servers, timeout_s=timeout_s) as cluster:
            command(cluster, **options)

    return run


def servers_hint() -> str:
    """Return ` -b HOST:PORT` for commands in hints, or an empty text if they need no option to reach these brokers."""
    context = click.get_current_context()
    return servers_text(context.params["bootstrap_servers"]) + config_text(context)


def complete_names(
    list_names: Callable[[Cluster], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return a shell completion function for the names from `list_names`. It completes nothing if no broker answers."""

    def complete(
        context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        with suppress(BarnabasError):
            servers = context.params.get("bootstrap_servers") or default_servers()
            security = find_security(servers, context)
            with Cluster(servers, timeout_s=COMPLETION_TIMEOUT_S, security=security) as cluster:
                return completions(list_names(cluster), incomplete)
        return []

    return complete
