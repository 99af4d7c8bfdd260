"""Commands that talk to a cluster: their common options, their connection, and completion of names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from typing import Any

import click
from click.shell_completion import CompletionItem

from barnabas.cli.options import (
    COMPLETION_TIMEOUT_S,
    bootstrap_option,
    completions,
    default_servers,
    output_option,
    servers_text,
    timeout_option,
)
from barnabas.client.cluster import Cluster
from barnabas.errors import BarnabasError


def cluster_command(command: Callable[..., None]) -> Callable[..., None]:
    """Add --bootstrap-servers, --timeout and --output. The command gets a `Cluster` as its first argument."""

    @bootstrap_option
    @timeout_option
    @output_option
    @wraps(command)
    def run(bootstrap_servers: str, timeout_s: float, **options: Any) -> None:
        with Cluster(bootstrap_servers, timeout_s=timeout_s) as cluster:
            command(cluster, **options)

    return run


def servers_hint() -> str:
    """Return ` -b HOST:PORT` for commands in hints, or an empty text if they need no option to reach these brokers."""
    return servers_text(click.get_current_context().params["bootstrap_servers"])


def complete_names(
    list_names: Callable[[Cluster], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return a shell completion function for the names from `list_names`. It completes nothing if no broker answers."""

    def complete(
        context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        with suppress(BarnabasError):
            servers = context.params.get("bootstrap_servers") or default_servers()
            with Cluster(servers, timeout_s=COMPLETION_TIMEOUT_S) as cluster:
                return completions(list_names(cluster), incomplete)
        return []

    return complete
